"""Rules such as "a multiple of 8": the divisors that the answers leave, and the size that tells them apart."""

from __future__ import annotations

from collections.abc import Sequence


def divisors(fails: Sequence[int], passed: Sequence[int]) -> list[int]:
    """The numbers of which all of ``fails`` are multiples and none of ``passed``, or the other way round.

    Tried are 3 and the powers of two. Two sizes that pass are needed.
    """
    if len(passed) < 2:
        return []
    tried = sorted([3, *(2**n for n in range(1, max(*fails, *passed).bit_length()))])
    return [d for d in tried if _tells(d, fails, passed)]


def telling_size(size: int, fails: Sequence[int], passed: Sequence[int]) -> int | None:
    """A size above ``size`` that was not tried, and leaves fewer divisors. None where one or none is left."""
    left = divisors(fails, passed)
    if len(left) < 2:
        return None
    low, high = left[len(left) // 2 - 1 : len(left) // 2 + 1]
    known = {*fails, *passed}
    multiples = range(low * (size // low + 1), 4 * max(size, high) + low, low)
    return next((n for n in multiples if n % high and n not in known), None)


def _tells(divisor: int, fails: Sequence[int], passed: Sequence[int]) -> bool:
    multiples = {f % divisor == 0 for f in fails}
    return len(multiples) == 1 and {p % divisor == 0 for p in passed} == {not min(multiples)}
