"""The numbers of a script's mismatch are those of its own run."""

from typing import Any

import pytest
import torch

from fxminify.backends.comparison.mismatch import measure, of_traceback

NAN, INF = float("nan"), float("inf")


def test_the_largest_difference_with_its_place_and_its_values() -> None:
    actual, expected = torch.zeros(2, 3), torch.zeros(2, 3)
    actual[1, 2], actual[0, 1], expected[0, 1] = 0.5, 3.0, 5.25
    assert measure(actual, expected) == [
        {"item": 0, "elements": 2, "of": 6, "error": "2.25", "at": [0, 1], "actual": "3", "expected": "5.25",
         "all_actual": "[0, 3, 0, 0, 0, 0.5]", "all_expected": "[0, 5.25, 0, 0, 0, 0]"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("actual", "expected", "error", "values"),
    [
        (torch.tensor(NAN), torch.tensor(1.5), "inf", ("nan", "1.5")),
        (torch.tensor([1.0, INF]), torch.tensor([2.0, INF]), "1.0", ("1", "2")),
        (torch.tensor([INF]), torch.tensor([-INF]), "inf", ("inf", "-inf")),
        (torch.tensor([True]), torch.tensor([False]), "1.0", ("True", "False")),
        (torch.tensor([200], dtype=torch.uint8), torch.tensor([255], dtype=torch.uint8), "55.0", ("200", "255")),
        (torch.tensor([3 + 4j]), torch.tensor([0j]), "5.0", ("3+4j", "0+0j")),
        (3, 4, "1.0", ("3", "4")),
        (torch.tensor([0.25], dtype=torch.bfloat16), torch.tensor([1.0], dtype=torch.bfloat16), "0.75", ("0.25", "1")),
    ],
)
def test_every_kind_of_number(actual: Any, expected: Any, error: str, values: tuple[str, str]) -> None:
    (row,) = measure(actual, expected)
    assert (row["error"], (row["actual"], row["expected"])) == (error, values)


def test_results_are_numbered_and_equal_ones_left_out() -> None:
    rows = measure([torch.ones(9), None, torch.ones(1)], [torch.ones(9), None, torch.zeros(1)])
    assert [(row["item"], row["of"]) for row in rows] == [(2, 1)]
    assert measure(torch.tensor([NAN]), torch.tensor([NAN]), equal_nan=True) == []
    assert len(measure(torch.tensor([NAN]), torch.tensor([NAN]))) == 1
    assert measure(torch.ones(2), torch.ones(3)) == []
    assert measure(torch.tensor([1.0]), torch.tensor([1.05]), rtol=0.1, atol=0.0) == []


def test_the_numbers_are_those_of_the_assertion_that_raised() -> None:
    with pytest.raises(AssertionError, match=r"Greatest absolute difference: 0\.5 at index \(1,\)") as raised:
        torch.testing.assert_close((torch.tensor([1.0, 1.5]),), (torch.ones(2),), rtol=0.1, atol=0.1)
    (row,) = of_traceback(raised.value.__traceback__)
    assert (row["error"], row["at"], row["elements"]) == ("0.5", [1], 1)
    assert of_traceback(None) == []
