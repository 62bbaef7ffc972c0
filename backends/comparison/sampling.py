"""Choose the calls of a compiled graph to compare with eager, and the strictness: ``first:2,every:1000,strict``.

Calls are counted for each compiled graph from 1. ``first:N`` asks for the first N, ``every:N`` for each Nth. A
compiled graph counts down to the next call that is due, so a call that is not due costs one subtraction. ``first``
also asks for calls of a graph with symbolic sizes whose sizes have doubled (`LargestSizes`). ``strict`` makes a
divergence of each difference where eager has the float64 result, even if tiny changes of the inputs would make the
same difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: The meaning of ``check=True``, of ``--check`` without a value, and of ``strict`` alone.
DEFAULT = "first:2"
GRAMMAR = "first:N, every:N, strict, or several with commas (first:2,every:1000,strict); N is a positive integer"
STRICT = "strict"
_TERM = re.compile(r"(first|every):([1-9]\d{0,11})")


@dataclass(frozen=True, slots=True)
class Sampling:
    """The first ``first`` calls of each graph, and each ``every``-th one; 0 means none. ``strict``: see above."""

    first: int = 0
    every: int = 0
    strict: bool = False

    @classmethod
    def parse(cls, asked: bool | str) -> Sampling:
        """The sampling of a text; True means `DEFAULT`, False no calls. Raises `ValueError` with the grammar."""
        if isinstance(asked, bool):
            return cls.parse(DEFAULT) if asked else cls()
        terms = [term.strip() for term in asked.split(",")] if isinstance(asked, str) else [""]
        if strict := STRICT in terms:
            terms.remove(STRICT)
        found: dict[str, int] = {}
        for term in terms or [DEFAULT]:
            match = _TERM.fullmatch(term)
            if match is None or match[1] in found:
                raise ValueError(f"{asked!r} does not say which calls to check: write {GRAMMAR}")
            found[match[1]] = int(match[2])
        return cls(**found, strict=strict)

    def wait(self, done: int) -> int:
        """The number of calls up to the next one that is due, after ``done`` calls (1: the next one); 0 if none is."""
        if done < self.first:
            return 1
        return self.every - done % self.every if self.every else 0


class LargestSizes:
    """The largest sizes of the calls so far, by position. A backend may fail above some size."""

    def __init__(self, positions: Iterable[int]) -> None:
        self._largest = dict.fromkeys(positions, 0)

    def doubled(self, args: Sequence[Any]) -> bool:
        """Whether a size of this call is at least twice the largest one that was noted. Such sizes are noted."""
        larger = {
            i: args[i] for i, most in self._largest.items() if type(args[i]) is int and args[i] >= max(2 * most, 1)
        }
        self._largest |= larger
        return bool(larger)
