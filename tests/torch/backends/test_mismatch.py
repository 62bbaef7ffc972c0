"""The numbers of a script's mismatch are those of its own run."""

from typing import Any

import pytest
import torch

from fxminify.backends.comparison.mismatch import MOST_VALUES, measure, of_traceback

NAN, INF = float("nan"), float("inf")


def test_the_largest_difference_with_its_place_and_its_values() -> None:
    actual, expected = torch.zeros(2, 3), torch.zeros(2, 3)
    actual[1, 2], actual[0, 1], expected[0, 1] = 0.5, 3.0, 5.25
    (row,) = measure(actual, expected)
    values = row.pop("values")
    assert row == {
        "item": 0, "elements": 2, "of": 6, "error": "2.25", "at": [0, 1], "actual": "3", "expected": "5.25",
        "dtype": "float32", "expected_dtype": "float32", "shape": [2, 3], "expected_shape": [2, 3],
    }  # fmt: skip
    assert [(value["at"], value["actual"], value["expected"]) for value in values] == [
        ([0, 0], "0.0", "0.0"), ([0, 1], "3.0", "5.25"), ([0, 2], "0.0", "0.0"), ([1, 0], "0.0", "0.0"),
        ([1, 1], "0.0", "0.0"), ([1, 2], "0.5", "0.0"),
    ]  # fmt: skip


def test_of_a_large_result_the_values_that_differ_most_are_given() -> None:
    expected = torch.zeros(1000)
    actual = expected.clone()
    actual[3::10] = torch.arange(100) / 16
    (row,) = measure(actual, expected)
    assert (row["elements"], len(row["values"])) == (99, MOST_VALUES)
    assert [value["at"] for value in row["values"]] == [[place] for place in range(923, 1000, 10)]
    assert row["values"][-1] == {"at": [993], "actual": "6.1875", "expected": "0.0"}
    (few,) = measure(torch.arange(9.0), torch.arange(9.0).where(torch.arange(9) < 8, 0.0))
    assert [value["at"] for value in few["values"]] == [[8]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor(0.1), "0.1"),
        (torch.tensor(1 / 3), "0.33333334"),
        (torch.tensor(1 / 3, dtype=torch.float64), "0.3333333333333333"),
        (torch.tensor(1e30), "1e+30"),
        (torch.tensor(0.1, dtype=torch.float16), "0.1"),
        (torch.tensor(0.1, dtype=torch.bfloat16), "0.100097656"),
        (torch.tensor(NAN), "nan"),
        (torch.tensor(0.1 + 2j), "(0.1+2j)"),
        (torch.tensor(7), "7"),
    ],
)
def test_a_value_has_the_digits_that_its_dtype_needs(value: torch.Tensor, text: str) -> None:
    (row,) = measure(value, torch.full_like(value, 5))
    assert [given["actual"] for given in row["values"]] == [text]


def test_results_of_another_dtype_or_shape_have_no_values() -> None:
    form = {"item": 0, "dtype": "float32", "expected_dtype": "float32", "shape": [2], "expected_shape": [3], "of": 2}
    assert measure(torch.ones(2), torch.ones(3)) == [form]
    half = torch.ones(2, dtype=torch.float16)
    assert measure(torch.ones(2), half) == []
    assert measure(torch.ones(2), half, check_dtype=True) == [
        {**form, "expected_dtype": "float16", "expected_shape": [2]}
    ]


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
    assert measure(torch.tensor([1.0]), torch.tensor([1.05]), rtol=0.1, atol=0.0) == []


def test_the_numbers_are_those_of_the_assertion_that_raised() -> None:
    with pytest.raises(AssertionError, match=r"Greatest absolute difference: 0\.5 at index \(1,\)") as raised:
        torch.testing.assert_close((torch.tensor([1.0, 1.5]),), (torch.ones(2),), rtol=0.1, atol=0.1)
    (row,) = of_traceback(raised.value.__traceback__)
    assert (row["error"], row["at"], row["elements"]) == ("0.5", [1], 1)
    assert of_traceback(None) == []
