"""Search a small set, or a small range, with which something fails, in few questions.

Both assume what is usual and not certain: that a failure stays when more is added. What is returned has been seen to
fail in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest_set(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a smallest subset of ``items`` that fails; all of them do, and none of them does not.

    With one culprit among N it takes at most 2 log2 N questions (QuickXplain: Junker, AAAI 2004).
    """
    place = {item: i for i, item in enumerate(items)}

    def ask(some: Sequence[T]) -> bool:
        return fails(sorted(some, key=place.__getitem__))

    def search(base: list[T], is_new: bool, rest: list[T]) -> list[T]:
        """The items of ``rest`` that are needed beside ``base``; ``base`` was not asked about if it ``is_new``."""
        if is_new and ask(base):
            return []
        if len(rest) == 1:
            return rest
        half = len(rest) // 2
        left, right = rest[:half], rest[half:]
        of_right = search(base + left, True, right)
        of_left = search(base + of_right, bool(of_right), left)
        return of_left + of_right

    return sorted(search([], False, list(items)), key=place.__getitem__)


def smallest_range(length: int, fails: Callable[[int, int], bool]) -> tuple[int, int]:
    """Return the ``first`` and the ``end`` of a range of ``length`` places that fails, as the whole range does.

    First its end is searched, then its beginning: at most 2 log2 N questions.
    """
    passes, end = 0, length
    while end - passes > 1:
        middle = (passes + end) // 2
        passes, end = (passes, middle) if fails(0, middle) else (middle, end)
    first, passes = 0, end
    while passes - first > 1:
        middle = (first + passes) // 2
        first, passes = (middle, passes) if fails(middle, end) else (first, middle)
    return first, end
