"""Short readable Python names for what a graph calls ``l_self_modules_layers_modules_0_parameters_weight_``.

A name is as short as possible but unique: the only weight of a minimal graph is ``weight``, two of them are
``conv1_weight`` and ``conv2_weight``. Numbers that FX appended are replaced by numbers in order, so that a minimized
graph has no gaps. Names that say nothing are left out: an input ``args_0`` is ``x``, a result ``input_14`` has the name
of its operation. Every name is an ASCII identifier that is no keyword, no builtin and no name that the script uses. No
input has the name of an operation, because a backend may look for names such as ``softmax`` in a graph.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
from collections import Counter
from collections.abc import Container, Sequence
from functools import cache

from ...store.document.names import table

#: Names that a printed script uses.
OWN = frozenset(
    {
        "actual", "actual_grads", "actual_inputs", "compiled", "cotangents", "draw", "expected", "expected_grads",
        "expected_inputs", "function", "generator", "gradients", "inf", "inputs", "make_inputs", "math", "nan",
        "operator", "os", "output", "outputs", "pathlib", "repro", "resource", "signal", "storage", "subprocess",
        "sys", "torch", "DEVICE",
    }
)  # fmt: skip
RESERVED = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins)) | OWN

#: Names of inputs that programs, Dynamo and AOTAutograd give to anything.
_TELLING_NOTHING = frozenset(
    {"arg", "args", "child", "input", "inputs", "primals", "tangents", "tensor", "tensors", "value", "values"}
)
_LONGEST = 32
_DYNAMO_PREFIX = re.compile(r"^(?:l|g|self)_+(?=[a-z])", re.IGNORECASE)
_CONTAINER = re.compile(r"_*(?<![a-z])(?:modules|parameters|buffers)_+")
_NUMBERED = re.compile(r"_\d+$")
#: The name that Dynamo gives to keys of a dictionary, such as the state of an optimizer.
_KEYS = re.compile(r".*dict_keys_L__(?:self_+)?(?=[a-z])", re.IGNORECASE)
#: The suffix that a reduction gives to parts of a composite operation (``softmax__part2_exp``) and to copies.
_PART = re.compile(r"^.*__part\d+_+")
_COPY = re.compile(r"__copy\d+$")


class Scope:
    """The names that were taken. ``outer`` is the scope around it."""

    def __init__(self, outer: Container[str] = ()) -> None:
        self._outer = outer
        self._taken: set[str] = set()
        #: Where the search for a free name goes on, by base.
        self._counts: dict[str, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._taken or name in self._outer or name in RESERVED

    def owns(self, name: str) -> bool:
        """Whether ``name`` was taken in this scope, not in an outer one."""
        return name in self._taken

    def fresh(self, base: str) -> str:
        """The first free name of ``base``, ``base_1``, ``base_2``..., which is taken then."""
        return self.take(identifier(base))

    def take(self, base: str) -> str:
        """`fresh` for a name that is an identifier already."""
        name, count = base, self._counts.get(base, 1)
        while name in self:
            name, count = f"{base}_{count}", count + 1
        self._counts[base] = count
        self._taken.add(name)
        return name


def identifier(text: str) -> str:
    """``text`` as a short lower-case ASCII identifier. Text without lower-case letters keeps its capitals."""
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
    """``name`` without the number that FX appended: ``add`` for ``add_12``."""
    name = _PART.sub("", _COPY.sub("", name))
    return _NUMBERED.sub("", name) or name


def input_names(targets: Sequence[str]) -> list[str]:
    """Names for the inputs with the FX targets ``targets``, in order: as few last words as make them unique."""
    paths = [_path(t) for t in targets]
    lengths = [_shortest(p) for p in paths]
    most = [_most(p) for p in paths]
    named: dict[str, str] = {}
    while True:
        texts = ["_".join(p[-n:]) for p, n in zip(paths, lengths, strict=True)]
        named |= {text: identifier(text) for text in set(texts) - named.keys()}
        names = [named[text] for text in texts]
        count = Counter(names)
        longer = [i for i, name in enumerate(names) if count[name] > 1 and lengths[i] < most[i]]
        if not longer:
            return _plain(names)
        for i in longer:
            lengths[i] = _shortest(paths[i], lengths[i] + 1)


def _plain(names: list[str]) -> list[str]:
    """``names`` without numbers that tell nothing apart; ``x`` for what says only that it is an input."""
    bases = [_NUMBERED.sub("", name) or name for name in names]
    count = Counter(bases)
    return [
        "x" if tells_nothing(base) else base if count[base] == 1 and base not in RESERVED else name
        for base, name in zip(bases, names, strict=True)
    ]


def _most(path: list[str]) -> int:
    """The most last words of ``path`` that a name is made of: the first that are too long together, or all."""
    together = itertools.accumulate(len(word) for word in reversed(path))
    return next((count for count, length in enumerate(together, 1) if length > _LONGEST), len(path))


def tells_nothing(name: str) -> bool:
    """Whether ``name``, without the number that FX appended, says no more than that there is a value."""
    return name.rstrip("0123456789") in _TELLING_NOTHING


def is_operation(name: str) -> bool:
    """Whether ``name`` without its number is FX's name for a node of some operation."""
    return unnumbered(name) in _operations()


@cache
def _operations() -> frozenset[str]:
    known = table()
    named = (re.split(r"\.|::", name) for name in (*known.functions, *known.packets, *known.methods, *known.hops))
    return frozenset(words[-1].strip("_") for words in named)


def _path(target: str) -> list[str]:
    """The words of a Dynamo target, with whole module names: ``["layers", "0", "self_attn", "weight"]``."""
    if is_operation(target):
        return ["x"]
    text = _DYNAMO_PREFIX.sub("", _PART.sub("", _COPY.sub("", target)).strip("_"))
    text = re.sub(r"^(?:kwargs|args)_+(?=[a-z])", "", text, flags=re.IGNORECASE)
    text = re.sub(r"^self_+(?=[a-z])", "", text, flags=re.IGNORECASE)
    parts = [p.strip("_") for p in _CONTAINER.split(text)]
    return [p for p in parts if p] or [text or "v"]


def _shortest(path: list[str], least: int = 1) -> int:
    """The least number of last words, at least ``least``, whose first word begins with a letter."""
    count = least
    while count < len(path) and not path[-count][:1].isalpha():
        count += 1
    return min(count, len(path))
