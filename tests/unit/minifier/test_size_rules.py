"""Divisors that sizes leave, and the sizes that tell them apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fxminify.minifier.reporting.size_rules import divisors, telling_size


@pytest.mark.parametrize(
    ("fails", "passed", "left"),
    [
        ([8, 16], [7, 9, 33], [2, 4, 8]),
        ([8, 16], [7, 9, 12, 33], [8]),
        ([17, 33, 69], [16, 32, 18, 34], [2]),
        ([17, 18, 33], [16, 32], [4, 8, 16]),
        ([3, 6, 9], [4, 8], [3, 4]),
        ([8, 16], [7], []),
        ([8, 9], [7, 10], []),
    ],
)
def test_divisors_are_those_that_all_answers_agree_on(fails: list[int], passed: list[int], left: list[int]) -> None:
    assert divisors(fails, passed) == left


@pytest.mark.parametrize("divisor", [2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("fails", [lambda n, d: n % d == 0, lambda n, d: n % d != 0], ids=["multiple", "no multiple"])
def test_telling_sizes_end_at_the_divisor(divisor: int, fails: Callable[[int, int], bool]) -> None:
    size = divisor if fails(divisor, divisor) else divisor + 1
    tried = {size, size + 1, size - 1, 2 * size, 4 * size + 1, 4 * divisor}
    for _ in range(6):
        failing = sorted(n for n in tried if fails(n, divisor))
        passed = sorted(n for n in tried if not fails(n, divisor))
        if (other := telling_size(size, failing, passed)) is None:
            break
        assert other not in tried
        tried.add(other)
    assert divisors(failing, passed) == [divisor]
