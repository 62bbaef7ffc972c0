"""Decide which translations of the exporter are right: `Trust`, with a table made by a hunt and a check of the rest.

The table says of a pattern of calls (`patterns`) that its translation gave what eager gives, or what was wrong. It
holds for the versions of torch, onnxscript and onnxruntime that made it, for the CPU and for the default opset. A call
of any other pattern, and every call under other versions, is checked once in a process, on made-up values, before its
translation is used; if it cannot be checked, it is left to PyTorch. docs/notes/0027-trusted-translations.md says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ....store.document import names_cache
from . import alone
from .options import TORCHLIB_OPSET, OnnxrtOptions
from .patterns import CallPattern, may_be_empty, pattern_of

SHIPPED = Path(__file__).with_name("translations.json")
#: What decides how a call is translated and computed.
PACKAGES = ("torch", "onnxscript", "onnxruntime")
#: Operators whose results have no defined values: any translation is right that gives the shape.
_UNDEFINED = frozenset({"aten::empty.memory_format", "aten::empty_like", "aten::new_empty"})
_CPU = ("CPUExecutionProvider",)


def installed() -> dict[str, str]:
    """Return the versions that are installed, without what follows a plus sign."""
    return {name: metadata.version(name).partition("+")[0] for name in PACKAGES}


@dataclass(frozen=True, slots=True)
class Table:
    """Knowledge of patterns under some ``versions``: an empty text if the translation is right, else the reason."""

    versions: Mapping[str, str]
    known: dict[CallPattern, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the table as text, in an order that depends on its contents alone."""
        right: dict[str, dict[str, list[str]]] = {}
        wrong: dict[str, dict[str, dict[str, str]]] = {}
        for pattern in sorted(self.known, key=str):
            operator, dtypes, arguments = pattern.operator, pattern.dtypes, pattern.arguments
            if reason := self.known[pattern]:
                wrong.setdefault(operator, {}).setdefault(reason, {})
                told = wrong[operator][reason]
                told[arguments] = f"{told[arguments]} {dtypes}" if arguments in told else dtypes
            else:
                right.setdefault(operator, {}).setdefault(arguments, []).append(dtypes)
        joined = {operator: {a: " ".join(d) for a, d in rows.items()} for operator, rows in right.items()}
        document = {"versions": dict(self.versions), "right": joined, "wrong": wrong}
        return json.dumps(document, indent=0, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Table:
        """Return the inverse of `to_json`. Raises `ValueError` for anything else."""
        try:
            document = json.loads(text)
            table = cls(dict(document["versions"]))
            for operator, rows in document["right"].items():
                table._add(operator, rows, "")
            for operator, reasons in document["wrong"].items():
                for reason, rows in reasons.items():
                    table._add(operator, rows, reason)
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(f"no table of translations: {exc}") from exc
        return table

    def _add(self, operator: str, rows: Mapping[str, str], reason: str) -> None:
        for arguments, several in rows.items():
            for dtypes in several.split(" "):
                self.known[CallPattern(operator, dtypes, arguments)] = reason


@cache
def table() -> Table:
    """Return the table for what is installed: the user's own, else the shipped one, else an empty one."""
    versions = installed()
    own = cached()
    texts: Iterable[bytes | None] = (names_cache.read(own) if own else None, SHIPPED.read_bytes())
    for text in texts:
        if text is not None and (found := Table.from_json(text)).versions == versions:
            return found
    return Table(versions)


def cached() -> Path | None:
    """Return where the table of what is installed is kept for this user; None without a home directory."""
    try:
        name = "-".join(["translations", *installed().values()])
        return names_cache.folder() / f"{name}.json"
    except (OSError, RuntimeError):
        return None


#: What was found out in this process, by opset, optimizer, providers and pattern.
_checked: dict[tuple[Any, ...], dict[CallPattern, str]] = {}


class Trust:
    """Says of each call of a graph why its translation cannot be used."""

    def __init__(self, options: OnnxrtOptions, providers: tuple[Any, ...]) -> None:
        self._options, self._providers = options, providers
        usual = options.target_opset == TORCHLIB_OPSET and not options.optimize and providers == _CPU
        self._known = table().known if usual else {}
        key = (options.target_opset, options.optimize, repr(providers))
        self._checked = _checked.setdefault(key, {})

    def why_not(self, node: torch.fx.Node) -> str:
        """Return why a call of an operator must stay in PyTorch; empty if its translation gives what eager gives."""
        if node.target.name() in _UNDEFINED:  # type: ignore[union-attr]
            return ""
        reason = self._reason(pattern_of(node), node, False)
        if not reason and may_be_empty(node):
            reason = self._reason(pattern_of(node, empty=True), node, True)
        return reason

    def _reason(self, pattern: CallPattern, node: torch.fx.Node, empty: bool) -> str:
        known = self._known.get(pattern)
        if known is None:
            known = self._checked.get(pattern)
        if known is None:
            known = self._checked[pattern] = self._check(node, empty)
        return known

    def _check(self, node: torch.fx.Node, empty: bool) -> str:
        why = "it takes no values that could be made up"
        with unset_fake_temporarily():
            try:
                for values in alone.made_up(node, empty=empty):
                    try:
                        reason = alone.check(node, values, self._options, self._providers)
                        if not reason and (also := alone.special(node, values)) is not None:
                            reason = alone.check(node, also, self._options, self._providers)
                        return reason
                    except alone.CannotCheck as exc:
                        why = str(exc)
            except alone.CannotCheck as exc:
                why = str(exc)
        return f"its translation could not be checked: {why}"
