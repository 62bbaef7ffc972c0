"""Checking tagged values: a closed set of tags, each with its own content, names of nodes only after the node."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from .case import Value, tag
from .check_tensors import TensorChecks
from .checks import brief
from .names import UnknownName, check_target, table


class ValueChecks(TensorChecks):
    """Checks of values; ``custom`` admits operators of libraries outside torch."""

    custom = False

    def target(self, x: object) -> None:
        try:
            check_target(x, custom=self.custom)
        except UnknownName as exc:
            self.fail(str(exc))

    def value(self, x: Value, seen: set[str] | frozenset[str], depth: int = 0) -> None:
        self.count(depth)
        kind = type(x)
        if x is None or kind is bool:
            return
        if kind is int:
            self.need(x.bit_length() <= self.limits.integer_bits, "a number is too large")
        elif kind is float:
            self.need(math.isfinite(x), "a number is not finite")
        elif kind is str:
            self.text(x)
        elif kind is list:
            for item in x:
                self.value(item, seen, depth + 1)
        elif kind is dict:
            name = tag(x)
            check = _TAGS.get(name) if type(name) is str else None
            if check is None or name is None:
                self.fail(f"{brief(x)} is no value")
            if name == "ref":
                self.need(type(x["ref"]) is str and x["ref"] in seen, f"{brief(x['ref'])} is no node before this one")
            else:
                check(self, x[name], seen, depth + 1)
        else:
            self.fail(f"{kind.__name__} is no value")

    def values_of(self, x: object, seen: set[str] | frozenset[str], depth: int) -> list[Value]:
        found = self.items(x, self.limits.values)
        for item in found:
            self.value(item, seen, depth)
        return found

    def key(self, x: Value) -> None:
        """A dictionary key or a set's member must have a hash."""
        name = tag(x)
        if name in ("tuple", "frozenset", "size"):
            for item in x[name]:
                self.key(item)
        self.need(type(x) is not list and name not in _UNHASHABLE, "a key must be hashable")


_UNHASHABLE = ("dict", "set", "slice", "ref", "tensor", "generator", "return_type")
_Check = Callable[[ValueChecks, Any, "set[str] | frozenset[str]", int], Any]


def _float(r: ValueChecks, x: Any, _s: Any, _d: int) -> None:
    r.one_of(x, ("inf", "-inf", "nan"), "float")


def _complex(r: ValueChecks, x: Any, seen: Any, depth: int) -> None:
    parts = r.values_of(x, seen, depth)
    r.need(len(parts) == 2 and all(type(p) is float or tag(p) == "float" for p in parts), "two floats are expected")


def _slice(r: ValueChecks, x: Any, seen: Any, depth: int) -> None:
    r.need(len(r.values_of(x, seen, depth)) == 3, "a slice has three parts")


def _range(r: ValueChecks, x: Any, _s: Any, _d: int) -> None:
    big = 1 << 60
    r.need(len(found := [r.integer(i, -big, big) for i in r.items(x, 3)]) == 3 and found[2] != 0, "not a range")
    r.need(len(range(*found)) <= r.limits.range, "a range is too long")


def _dict(r: ValueChecks, x: Any, seen: Any, depth: int) -> None:
    for pair in r.items(x, r.limits.values):
        key, _ = r.values_of(pair, seen, depth) if len(r.items(pair, 2)) == 2 else r.fail("a pair is expected")
        r.key(key)


def _set(r: ValueChecks, x: Any, seen: Any, depth: int) -> None:
    for item in r.values_of(x, seen, depth):
        r.key(item)


def _enum(r: ValueChecks, x: Any, _s: Any, _d: int) -> None:
    r.need(len(pair := r.items(x, 2)) == 2, "a class and a member are expected")
    r.one_of(pair[1], table().enums[r.one_of(pair[0], table().enums, "enum")], "member")


def _return_type(r: ValueChecks, x: Any, seen: Any, depth: int) -> None:
    r.need(len(pair := r.items(x, 2)) == 2, "a name and values are expected")
    r.one_of(pair[0], table().return_types, "return type")
    r.values_of(pair[1], seen, depth)


def _sym(r: ValueChecks, x: Any, _s: Any, _d: int) -> None:
    x = r.fields(x, "kind expr hint")
    kinds = {"SymInt": int, "SymFloat": float, "SymBool": bool}
    kind = kinds[r.one_of(x["kind"], kinds, "symbolic number")]
    r.printable(x["expr"])
    r.need(type(x["hint"]) is kind or (kind is float and tag(x["hint"]) == "float"), "the hint is of another type")
    r.value(x["hint"], frozenset())


def _bytes(r: ValueChecks, x: Any, _s: Any, _d: int) -> None:
    r.need(re.fullmatch(r"(?:[0-9a-f]{2})*", r.text(x)), "hexadecimal digits are expected")


def _generator(r: ValueChecks, x: Any, _s: Any, _d: int) -> None:
    r.need(len(pair := r.items(x, 2)) == 2, "a device and a state are expected")
    r.device(pair[0])
    r.index(pair[1])
    state = r.tensors[pair[1]]
    r.need(state.dtype == "uint8" and len(state.shape) == 1, "a state is a row of bytes")


def _object(r: ValueChecks, _x: Any, _s: Any, _d: int) -> None:
    r.fail("an object of a process that is gone")


def _among(names: Callable[[], Any], what: str) -> _Check:
    return lambda r, x, _s, _d: r.one_of(x, names(), what)


_TAGS: dict[str, _Check] = {
    "ref": lambda *_: None,
    "tuple": lambda r, x, s, d: r.values_of(x, s, d),
    "size": lambda r, x, s, d: r.values_of(x, s, d),
    "dict": _dict,
    "set": _set,
    "frozenset": _set,
    "float": _float,
    "complex": _complex,
    "slice": _slice,
    "range": _range,
    "ellipsis": lambda r, x, _s, _d: r.need(x is True, "true is expected"),
    "dtype": _among(lambda: table().dtypes, "dtype"),
    "layout": _among(lambda: table().layouts, "layout"),
    "memory_format": _among(lambda: table().memory_formats, "memory format"),
    "qscheme": _among(lambda: table().qschemes, "qscheme"),
    "finfo": _among(lambda: table().dtypes, "dtype"),
    "iinfo": _among(lambda: table().dtypes, "dtype"),
    "device": lambda r, x, _s, _d: r.device(x),
    "enum": _enum,
    "target": lambda r, x, _s, _d: r.target(x),
    "tensor": lambda r, x, _s, _d: r.index(x),
    "sym": _sym,
    "bytes": _bytes,
    "return_type": _return_type,
    "generator": _generator,
    "object": _object,
}
