"""The corpus of messages in ``tests/shared/messages``: what compilers print of one bug in several runs.

A *form* in a file is one text with holes ``@{name}``. Each of its ``bugs`` fills some of them: what a person reads to
tell one bug from another. Each of its ``runs`` fills the others: where and how it was run. ``why`` says what a person
goes by, ``source`` names the public threads that have the text, or the version of the compiler that printed it here.
What was printed here has its texts whole: a ``[[bug]]`` with its ``runs``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxminify.backends.running import deaths
from fxminify.store.failure import Failure, FailureKind, Frame, Phase

MESSAGES = Path(__file__).with_name("messages")
_HOLE = re.compile(r"@\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug of a compiler, and its printed text in each run."""

    compiler: str
    name: str
    why: str
    source: str
    runs: tuple[Failure, ...]


def bugs() -> list[Bug]:
    """Return all bugs of the corpus. The name of a compiler is the name of its file up to a ``-``."""
    return [bug for path in sorted(MESSAGES.glob("*.toml")) for bug in _read(path)]


def _read(path: Path) -> Iterator[Bug]:
    document = tomllib.loads(path.read_text("utf-8"))
    compiler = path.stem.partition("-")[0]
    for number, form in enumerate(document.get("form", ())):
        for which, own in enumerate(form["bugs"]):
            runs = tuple(_failure(form, {**run, **own}) for run in form["runs"])
            yield Bug(compiler, f"{path.stem} {number}.{which}", form["why"], form["source"], runs)
    for bug in document.get("bug", ()):
        runs = tuple(_failure({**bug, **run}, {}) for run in bug["runs"])
        yield Bug(compiler, f"{path.stem} {bug['name']}", bug["why"], document["source"], runs)


def _failure(form: Mapping[str, Any], holes: Mapping[str, str]) -> Failure:
    def filled(text: str) -> str:
        while _HOLE.search(text):
            text = _HOLE.sub(lambda found: str(holes[found[1]]), text)
        return text

    diagnostics = filled(form.get("stderr", ""))
    if form.get("kind") == "crash":
        return deaths.crash(Phase.COMPILE, signal=form["signal"], diagnostics=diagnostics)
    kind = FailureKind(form.get("kind", "compile_error"))
    phase = Phase.FORWARD if kind is FailureKind.RUNTIME_ERROR else Phase.COMPILE
    return Failure(
        kind, phase, form["type"], filled(form["message"]),
        causes=tuple((name, filled(text)) for name, text in form.get("causes", ())),
        frames=tuple(Frame(filled(file), filled(function)) for file, function in form.get("frames", ())),
        diagnostics=diagnostics, detail={"nodes": form["nodes"]} if "nodes" in form else {},
    )  # fmt: skip
