"""A divergence is told by the numbers of the script that showed it."""

from dataclasses import replace
from typing import Any

import pytest
from indexes import chain

from fxminify.minifier.reporting.emit import of_the_script
from fxminify.repro_templates.report.figures import figures
from fxminify.repro_templates.report.phrases import headline, log, summary, title
from fxminify.store.document.case import TensorSpec
from fxminify.store.failure import Failure, FailureKind, Phase

CAPTURED = Failure(
    FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0 is off by 0.0438 (eager by 1e-08) in 96 of 96 elements",
    detail={"class": "value", "where": "output 0", "error": "0.0438", "eager_error": "1e-08", "elements": 96, "of": 96,
            "dtype": "float32", "others": [{"class": "value", "where": "output 1", "error": "1.0"}]},
)  # fmt: skip
ROW = {"item": 0, "elements": 1, "of": 4, "error": "0.16666666", "at": [3], "actual": "0.5", "expected": "0.333333",
       "values": [*({"at": [i], "actual": "1.0", "expected": "1.0"} for i in range(3)),
                  {"at": [3], "actual": "0.5", "expected": "0.33333334"}]}  # fmt: skip


def seen(
    *rows: dict[str, Any], text: str = "Tensor-likes are not close!\n\nGreatest absolute difference: 0.167"
) -> Failure:
    return Failure(
        FailureKind.DIVERGENCE, Phase.FORWARD, type="AssertionError", message=text,
        detail={"class": "value", "measured": list(rows)},
    )  # fmt: skip


def test_one_number_everywhere() -> None:
    case = chain(["sin"])
    shown = of_the_script(case, CAPTURED, seen(ROW), measured=False)
    words = "output 0 is off by 0.167 in 1 of 4 elements: 0.5 instead of 0.333333 at [3]"
    assert (shown.message, shown.headline()) == (words, words)
    for text in (headline(case, shown), title(case, shown), summary(case, shown, 60)):
        assert words in text
        assert "0.0438" not in text
    assert list(figures(shown)) == []  # those of the captured graph
    assert shown.detail["measured"] == [{**ROW, "where": "output 0"}]
    assert log(shown) == seen().message


def test_the_evidence_against_float64_stays_where_it_is_that_of_the_case() -> None:
    shown = of_the_script(chain(["sin"]), CAPTURED, seen(ROW), measured=True)
    assert [(row.where, row.error, row.eager) for row in figures(shown)] == [("output 0", "0.0438", "1e-08")]
    assert shown.message.startswith("output 0 is off by 0.167 in 1 of 4 elements")


def test_a_result_of_another_dtype_has_no_numbers() -> None:
    form = {"item": 0, "of": 4, "dtype": "float16", "expected_dtype": "float32", "shape": [4], "expected_shape": [4]}
    shown = of_the_script(chain(["sin"]), CAPTURED, seen(form, text="The values for attribute 'dtype' do not match"),
                          measured=True)  # fmt: skip
    assert shown.message == CAPTURED.message
    assert shown.detail["measured"] == [{**form, "where": "output 0"}]


def test_the_place_that_a_worker_named_comes_first() -> None:
    case = chain(["sin"])
    other = {**ROW, "item": 1, "error": "2.0"}
    second = replace(CAPTURED, detail={**CAPTURED.detail, "where": "output 1"})
    assert of_the_script(case, second, seen(ROW, other), measured=True).message == (
        "output 1 is off by 2 in 1 of 4 elements: 0.5 instead of 0.333333 at [3]\nalso: output 0"
    )
    third = replace(CAPTURED, detail={**CAPTURED.detail, "where": "output 7"})
    assert of_the_script(case, third, seen(ROW), measured=True).detail["where"] == "output 0"


@pytest.mark.parametrize(
    ("error", "more", "words"),
    [
        ("nan", {"actual": "nan"}, "output 0 is nan instead of 0.333333 at [3]; 1 of 4 elements differ"),
        ("inf", {"actual": "inf", "of": 1, "at": []}, "output 0 is inf instead of 0.333333"),
        ("1.0", {"actual": "True", "expected": "False", "of": 1, "at": [0]},
         "output 0 is off by 1 in 1 of 1 element: True instead of False"),
    ],
)  # fmt: skip
def test_values_are_told_as_they_are(error: str, more: dict[str, Any], words: str) -> None:
    assert (
        of_the_script(chain(["sin"]), CAPTURED, seen({**ROW, "error": error, **more}), measured=True).message == words
    )


def test_gradients_and_inputs_have_their_own_places() -> None:
    case = chain(["sin"])
    plain = TensorSpec("float32", (4,), (1,), init={"fn": "randn"})
    case = replace(
        case, inputs=({"tensor": 0}, {"tensor": 1}), tensors=(plain, replace(plain, requires_grad=True))
    )  # fmt: skip
    backward = replace(CAPTURED, phase=Phase.BACKWARD, detail={"class": "value", "where": "gradient of input 1"})
    assert of_the_script(case, backward, seen(ROW), measured=True).detail["where"] == "gradient of input 1"
    mutated = replace(CAPTURED, detail={"class": "mutation", "where": "input 1"})
    assert of_the_script(case, mutated, seen({**ROW, "item": 1}), measured=True).detail["where"] == "input 1"


def test_a_precision_keeps_its_words() -> None:
    detail = {"class": "precision", "where": "output 0", "dtype": "float32", "as": "bfloat16"}
    shown = of_the_script(chain(["mm"]), replace(CAPTURED, detail=detail), seen(ROW), measured=True)
    assert shown.headline() == (
        "precision: computes float32 as bfloat16: output 0: off by 0.167 in 1 of 4 elements: "
        "0.5 instead of 0.333333 at [3]"
    )


def test_an_exception_has_the_message_of_the_script() -> None:
    known = Failure(FailureKind.RUNTIME_ERROR, Phase.FORWARD, type="ValueError", message="no 4096")
    own = replace(known, message="no 1", frames=())
    assert of_the_script(chain(["sin"]), known, own, measured=False).message == "no 1"
    assert of_the_script(chain(["sin"]), known, replace(own, type="KeyError"), measured=False) == known
