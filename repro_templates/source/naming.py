"""Short readable Python names for what a graph calls ``l_self_modules_layers_modules_0_parameters_weight_``.

A name says the least that tells it apart: the one weight of a minimal graph is ``weight``, two of them are
``conv1_weight`` and ``conv2_weight``. Numbers FX appended are dropped and given again in order, so the names of a
minimized graph do not tell of the nodes that are gone. Every name is an ASCII identifier that hides no keyword, no
builtin and no name the script uses itself. No input is called like an operation: a backend that looks for ``softmax``
in all names of a graph would find it in an input that has taken the place of one.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Container, Sequence
from functools import cache

from ...store.document.names import table

#: Names a printed script uses itself.
OWN = frozenset(
    {
        "actual", "compiled", "cotangents", "draw", "expected", "function", "generator", "gradients", "inf", "inputs",
        "make_inputs", "math", "nan", "operator", "output", "outputs", "pathlib", "repro", "resource", "signal",
        "storage", "subprocess", "sys", "torch", "DEVICE",
    }
)  # fmt: skip
RESERVED = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins)) | OWN

_LONGEST = 32
_DYNAMO_PREFIX = re.compile(r"^(?:l|g|self)_+(?=[a-z])", re.IGNORECASE)
_CONTAINER = re.compile(r"_*(?<![a-z])(?:modules|parameters|buffers)_+")
_NUMBERED = re.compile(r"_\d+$")
#: What Dynamo says of the keys of a dictionary, such as the state of an optimizer, before it names the dictionary.
_KEYS = re.compile(r".*dict_keys_L__(?:self_+)?(?=[a-z])", re.IGNORECASE)
#: What a reduction calls a part of a composite operation (``softmax__part2_exp``), or another node of a name.
_PART = re.compile(r"^.*__part\d+_")
_COPY = re.compile(r"__copy\d+$")


class Scope:
    """Names taken so far; ``outer`` are those of the scope around it."""

    def __init__(self, outer: Container[str] = ()) -> None:
        self._outer = outer
        self._taken: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._taken or name in self._outer or name in RESERVED

    def owns(self, name: str) -> bool:
        """Whether ``name`` was taken in this scope itself."""
        return name in self._taken

    def fresh(self, base: str) -> str:
        """``base``, or ``base_1``, ``base_2``... whichever is free first."""
        return self.take(identifier(base))

    def take(self, base: str) -> str:
        """As `fresh`, for a name that is an identifier as it stands."""
        name, count = base, 1
        while name in self:
            name, count = f"{base}_{count}", count + 1
        self._taken.add(name)
        return name


def identifier(text: str) -> str:
    """``text`` as a short lower-case ASCII identifier (capitals stay where there is no lower-case letter)."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", _KEYS.sub("", text)).strip("_")
    text = text.lower() if any(c.islower() for c in text) else text
    if len(text) > _LONGEST:
        words = text.split("_")
        while len(words) > 1 and len("_".join(words)) > _LONGEST:
            words.pop(0)
        text = "_".join(words)[-_LONGEST:].strip("_")
    if not text:
        return "v"
    return text if text[0].isalpha() else f"v{text}" if text[0].isdigit() else text


def unnumbered(name: str) -> str:
    """``name`` without the number FX appended: ``add_12`` is ``add``."""
    name = _PART.sub("", _COPY.sub("", name))
    return _NUMBERED.sub("", name) or name


def input_names(targets: Sequence[str]) -> list[str]:
    """Names for the inputs whose FX targets are ``targets``, in order: as few trailing words as tell them apart."""
    paths = [_path(t) for t in targets]
    lengths = [_shortest(p) for p in paths]
    while True:
        names = [identifier("_".join(p[-n:])) for p, n in zip(paths, lengths, strict=True)]
        count = Counter(names)
        longer = [i for i, name in enumerate(names) if count[name] > 1 and lengths[i] < len(paths[i])]
        if not longer:
            return names
        for i in longer:
            lengths[i] = _shortest(paths[i], lengths[i] + 1)


def is_operation(name: str) -> bool:
    """Is ``name``, apart from its number, what FX calls a node of some operation?"""
    return unnumbered(name) in _operations()


@cache
def _operations() -> frozenset[str]:
    known = table()
    named = (re.split(r"\.|::", name) for name in (*known.functions, *known.packets, *known.methods, *known.hops))
    return frozenset(words[-1].strip("_") for words in named)


def _path(target: str) -> list[str]:
    """Words of a Dynamo target: module names whole, ``["layers", "0", "self_attn", "weight"]``."""
    if is_operation(target):
        return ["x"]
    text = _DYNAMO_PREFIX.sub("", _PART.sub("", _COPY.sub("", target)).strip("_"))
    text = re.sub(r"^(?:kwargs|args)_+(?=[a-z])", "", text, flags=re.IGNORECASE)
    text = re.sub(r"^self_+(?=[a-z])", "", text, flags=re.IGNORECASE)
    parts = [p.strip("_") for p in _CONTAINER.split(text)]
    return [p for p in parts if p] or [text or "v"]


def _shortest(path: list[str], least: int = 1) -> int:
    """The least number of trailing words, not fewer than ``least``, that begins with a letter."""
    count = least
    while count < len(path) and not path[-count][:1].isalpha():
        count += 1
    return min(count, len(path))
