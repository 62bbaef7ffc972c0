"""The small checks of which the reader of documents is made: what is not exactly right is an `InvalidDocument`."""

from __future__ import annotations

import math
import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, NoReturn

from .case import Json


class InvalidDocument(ValueError):
    """A document that no writer of ours makes; says where and why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a document may ask for, well above real graphs (962 nodes, two levels) and well below harm."""

    characters: int = 1 << 28
    nodes: int = 50_000
    values: int = 5_000_000
    depth: int = 64
    graphs_depth: int = 16
    tensors: int = 50_000
    dimensions: int = 64
    numel: int = 1 << 33
    string: int = 1 << 20
    integer_bits: int = 256
    range: int = 1 << 20


#: The limits unless a caller says otherwise.
DEFAULT = Limits()
_PRINTABLE = re.compile(r"[ -~]{0,600}\Z")


def brief(x: object) -> str:
    """``x`` for a message: short, printable, and cheap however large or deep ``x`` is."""
    if isinstance(x, str):
        return ascii(x[:60])
    if x is None or isinstance(x, bool | float) or (isinstance(x, int) and x.bit_length() < 100):
        return repr(x)
    return f"{type(x).__name__} of {len(x)}" if isinstance(x, list | dict) else type(x).__name__


class Checks:
    """One reading of one document: where it is, and how much it has seen."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.where = "document"
        self.values = 0

    def fail(self, why: str) -> NoReturn:
        raise InvalidDocument(f"{self.where[-160:]}: {why}")

    def need(self, ok: object, why: str) -> None:
        if not ok:
            self.fail(why)

    def fields(self, doc: object, required: str, optional: str = "") -> Json:
        """``doc``, if it is an object with exactly these keys."""
        if type(doc) is not dict:
            self.fail("an object is missing")
        must, may = set(required.split()), set(optional.split())
        missing, strange = must - doc.keys(), doc.keys() - must - may
        self.need(not missing, f"{sorted(missing)} missing")
        if strange:
            self.fail(f"{min(map(brief, strange))} does not belong here")
        return doc

    def items(self, x: object, most: int) -> list[Any]:
        if type(x) is not list or len(x) > most:
            self.fail(f"a list of at most {most} items is expected")
        return x

    def integer(self, x: object, low: int, high: int) -> int:
        if type(x) is not int or not low <= x <= high:
            self.fail(f"an integer from {low} to {high} is expected, not {brief(x)}")
        return x

    def flag(self, x: object) -> bool:
        if type(x) is not bool:
            self.fail(f"true or false is expected, not {brief(x)}")
        return x

    def text(self, x: object) -> str:
        if type(x) is not str or len(x) > self.limits.string:
            self.fail(f"a string of at most {self.limits.string} characters is expected")
        if not x.isascii() and any("\ud800" <= c <= "\udfff" for c in x):
            self.fail("a string holds half a character")
        return x

    def printable(self, x: object) -> str:
        if type(x) is not str or not _PRINTABLE.match(x):
            self.fail(f"short printable ASCII is expected, not {brief(x)}")
        return x

    def one_of(self, x: object, known: Container[str], what: str) -> str:
        if type(x) is not str or x not in known:
            self.fail(f"{brief(x)} is no {what}")
        return x

    def plain(self, x: object, depth: int) -> None:
        """Any JSON that a person could have meant."""
        self.count(depth)
        if type(x) is str:
            self.text(x)
        elif type(x) is float:
            self.need(math.isfinite(x), "a number is not finite")
        elif type(x) is int:
            self.need(x.bit_length() <= self.limits.integer_bits, "a number is too large")
        elif type(x) is list:
            for item in x:
                self.plain(item, depth + 1)
        elif type(x) is dict:
            for key, item in x.items():
                self.text(key)
                self.plain(item, depth + 1)
        else:
            self.need(x is None or type(x) is bool, f"{type(x).__name__} is no JSON")

    def count(self, depth: int) -> None:
        self.values += 1
        self.need(self.values <= self.limits.values, f"more than {self.limits.values} values")
        self.need(depth <= self.limits.depth, f"nested deeper than {self.limits.depth}")
