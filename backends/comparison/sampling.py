"""Which calls of a compiled graph are compared with eager: ``first:2,every:1000``.

Calls are counted for each compiled graph from 1. ``first:N`` asks for the first N, ``every:N`` for each Nth. The
region only counts down to the next call that is due, so a call that is not due costs one subtraction. Where the first
calls are asked for, so are those of a graph with symbolic sizes that are the first of their `LargestSizes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: What ``check=True`` and a bare ``--check`` mean.
DEFAULT = "first:2"
GRAMMAR = "first:N, every:N, or both with a comma (first:2,every:1000), where N is a positive integer"
_TERM = re.compile(r"(first|every):([1-9]\d{0,11})")


@dataclass(frozen=True, slots=True)
class Sampling:
    """The first ``first`` calls of each graph, and each ``every``-th; 0 is none."""

    first: int = 0
    every: int = 0

    @classmethod
    def parse(cls, asked: bool | str) -> Sampling:
        """True is `DEFAULT`, False nothing. Raises `ValueError` that gives the grammar."""
        if isinstance(asked, bool):
            return cls.parse(DEFAULT) if asked else cls()
        found: dict[str, int] = {}
        for term in asked.split(",") if isinstance(asked, str) else [""]:
            match = _TERM.fullmatch(term.strip())
            if match is None or match[1] in found:
                raise ValueError(f"{asked!r} does not say which calls to check: write {GRAMMAR}")
            found[match[1]] = int(match[2])
        return cls(**found)

    def wait(self, done: int) -> int:
        """After ``done`` calls, how many calls it takes until one has been due (1: the next one is); 0 for never."""
        if done < self.first:
            return 1
        return self.every - done % self.every if self.every else 0


class LargestSizes:
    """The largest sizes of the calls so far, by position: backends go wrong above some size that calls grow to."""

    def __init__(self, positions: Iterable[int]) -> None:
        self._largest = dict.fromkeys(positions, 0)

    def doubled(self, args: Sequence[Any]) -> bool:
        """Is a size of this call at least twice as large as in those for which that was so before?"""
        larger = {
            i: args[i] for i, most in self._largest.items() if type(args[i]) is int and args[i] >= max(2 * most, 1)
        }
        self._largest |= larger
        return bool(larger)
