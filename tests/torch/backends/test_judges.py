"""The judges of PyTorch's triage about a result."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fxminify.backends.comparison.judges import JudgedResult, judged
from fxminify.backends.running.execution import Run, execute

X = torch.linspace(0.1, 1.0, 8)


def run(function: Callable[[torch.Tensor], object], x: torch.Tensor = X, *, backward: bool = False) -> Run:
    return execute(function, [x.clone().requires_grad_(backward)], backward)


def judge(wrong: Callable[[torch.Tensor], object]) -> list[JudgedResult]:
    return judged(run(torch.sin), run(wrong), run(torch.sin, X.double()))


def test_an_error_of_a_few_units_passes() -> None:
    (found,) = judge(lambda x: x.sin() * (1 + 2**-22))
    assert (found.where, found.assert_close, found.same) == ("output 0", True, True)
    assert found.units is not None
    assert found.eager_units is not None
    assert 2 < float(found.units) < 6
    assert float(found.eager_units) < 1


@pytest.mark.parametrize(
    ("wrong", "units"),
    [(lambda x: x.sin() * 2, None), (lambda x: x.sin() / 0, math.inf), (lambda x: x.sin() * math.nan, math.inf)],
)
def test_other_numbers_fail(wrong: Callable[[torch.Tensor], torch.Tensor], units: float | None) -> None:
    (found,) = judge(wrong)
    assert (found.assert_close, found.same) == (False, False)
    assert found.units is not None
    assert float(found.units) == units if units else float(found.units) > 1e6


def test_without_a_float64_run_only_assert_close_is_asked() -> None:
    assert judged(run(torch.sin), run(torch.cos), None) == [JudgedResult("output 0", assert_close=False)]


def test_gradients_are_judged_and_results_of_another_form_are_not() -> None:
    found = judged(
        run(lambda x: (x.sin(), x > 0), backward=True),
        run(lambda x: (x.sin(), x > 0), backward=True),
        run(lambda x: (x.sin(), x > 0), X.double(), backward=True),
    )
    assert [(one.where, one.same) for one in found] == [("output 0", True), ("gradient of input 0", True)]
    assert judged(run(torch.sin), run(lambda x: x.sin()[:2]), None) == []
    assert judged(run(torch.sin), run(lambda x: x.sin().half()), None) == []


def test_units_are_those_of_the_dtype_also_near_zero() -> None:
    x = torch.tensor([0.0, 1e-40, 1.0])
    (found,) = judged(
        run(torch.clone, x), run(lambda v: v + torch.tensor([2**-149, 0, 0]), x), run(torch.clone, x.double())
    )
    assert found.units == "1"
    assert found.eager_units == "0"
