"""Words about a minimal case say what was asked, and no more."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from fxminify.minifier.commands.terminal import detail
from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.reporting.explanation import Explanation, PassingVariant
from fxminify.minifier.reporting.features import MOST, Aspect, Feature, ProbeAnswer
from fxminify.minifier.reporting.gathering import needs
from fxminify.store.errors import StoreError


def sized(now: int, fails: tuple[int, ...], passes: tuple[int, ...] = (), **others: tuple[int, ...]) -> Feature:
    answers = [ProbeAnswer(str(n), Outcome.SAME) for n in fails] + [ProbeAnswer(str(n), Outcome.PASS) for n in passes]
    answers += [ProbeAnswer(str(n), Outcome(outcome)) for outcome, sizes in others.items() for n in sizes]
    return Feature(Aspect.SIZE, "x.shape[1]", str(now), tuple(answers))


def summary(*features: Feature) -> str:
    return Explanation(features).summary()


def feature(aspect: Aspect, name: str, now: str, **answers: str) -> Feature:
    """``same="1, 2", passes="3"``: the values that were tried, by outcome."""
    outcomes = {"same": Outcome.SAME, "passes": Outcome.PASS, "other": Outcome.OTHER, "invalid": Outcome.INVALID,
                "close": Outcome.CLOSE}  # fmt: skip
    found = [ProbeAnswer(value, outcomes[key]) for key, text in answers.items() for value in text.split(", ")]
    return Feature(aspect, name, now, tuple(found))


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (sized(17, (18, 34, 69), (16,)), "Needs size 17 or more in x.shape[1] (16 passes; 18, 34 and 69 fail)."),
        (sized(17, (18,), (8, 1)), "Needs a size over 8 in x.shape[1] (1 and 8 pass, 18 fails)."),
        (sized(4, (3, 1), (5, 8)), "Needs size 4 or less in x.shape[1] (5 and 8 pass, 1 and 3 fail)."),
        (sized(4, (3,), (8,)), "Needs a size under 8 in x.shape[1] (8 passes, 3 fails)."),
        (sized(4, (), (3, 5)), "Needs size 4 in x.shape[1] (3 and 5 pass)."),
        (sized(17, (), (16,)), "Needs size 17 in x.shape[1] (16 passes)."),
        (
            sized(17, (33, 69), (16, 32, 18, 34)),
            "Needs a size that is no multiple of 2 in x.shape[1] (17, 33 and 69 fail; 16, 18, 32 and 34 pass).",
        ),
        (
            sized(17, (18, 33, 69), (16, 32)),
            "Passes with size 16 or 32 in x.shape[1] (17, 18, 33 and 69 fail).",
        ),
        (
            sized(17, (18, 33, 69), (16, 20, 32)),
            "Needs a size that is no multiple of 4 in x.shape[1] (17, 18, 33 and 69 fail; 16, 20 and 32 pass).",
        ),
        (
            sized(8, (16, 32), (7, 9, 33)),
            "Passes with size 7, 9 or 33 in x.shape[1] (8, 16 and 32 fail).",
        ),
        (
            sized(8, (16, 32), (7, 9, 12, 33)),
            "Needs a size that is a multiple of 8 in x.shape[1] (8, 16 and 32 fail; 7, 9, 12 and 33 pass).",
        ),
        (sized(2, (3,), (1, 4)), "Passes with size 1 or 4 in x.shape[1] (2 and 3 fail)."),
        (
            sized(2, (3,), (1,), other=(4,)),
            "Needs size 2 or more in x.shape[1] (1 passes, 3 fails, 4 fails in another way).",
        ),
        (sized(17, (18,), other=(16,)), ""),
        (sized(1, (2, 3)), "Does not matter (as tested): sizes in x.shape[1] (2, 3)."),
        (sized(1, (2,), invalid=(3,)), "Also fails with size 2 in x.shape[1]."),
        (sized(1, (), invalid=(2,)), ""),
    ],
)
def test_sizes_have_patterns_only_where_the_answers_have(answers: Feature, words: str) -> None:
    assert summary(answers) == words


SIZE, DTYPE, VALUES, LAYOUT = Aspect.SIZE, Aspect.DTYPE, Aspect.VALUES, Aspect.LAYOUT
ARGUMENT, SETTING, OPERATOR = Aspect.ARGUMENT, Aspect.SETTING, Aspect.OPERATOR


def test_a_dtype_that_passes_does_so_with_the_values_of_the_case() -> None:
    values = feature(VALUES, "values", "all 1e+19", same="all 1e+20", passes="all 1e+18")
    dtype = feature(DTYPE, "dtype", "float32", passes="float64, bfloat16")
    assert "float32 (with the same values float64 and bfloat16 pass)" in summary(values, dtype)
    assert summary(dtype) == "Needs float32 (float64 and bfloat16 pass)."


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (feature(SETTING, "backward pass", "yes", passes="no"), "Needs the backward pass."),
        (feature(SETTING, "calls", "2", passes="1"), "Needs 2 calls."),
        (feature(SETTING, "requires_grad", "False", passes="True"), "Needs inputs without requires_grad."),
        (feature(SETTING, "grad", "False", passes="the default"), "Needs grad = False."),
        (
            feature(DTYPE, "dtype of x, y", "float32", same="float64", passes="float16", other="bfloat16"),
            "Needs float32 or float64 (float16 passes, bfloat16 fails in another way).",
        ),
        (feature(VALUES, "values", "zeros", passes="ones, random numbers"),
         "Needs zeros as values (ones and random numbers pass)."),
        (feature(VALUES, "values", "randn", passes="zeros"), "Needs random numbers as values (zeros pass)."),
        (feature(VALUES, "values", "what they are", passes="zeros"), "Needs the present values (zeros pass)."),
        (feature(VALUES, "values", "recorded values", same="ones", passes="zeros"),
         "Passes with zeros as values (the recorded values and ones fail)."),
        (
            feature(VALUES, "values", "all 1e+30", same="all 1e+19", passes="zeros, ones, all 1e+15, all 1e+18"),
            "Needs numbers of 1e+19 or more as values (1e+18 passes).",
        ),
        (
            feature(VALUES, "values", "all -1e+30", same="all -1e+19", passes="zeros, all -1e+18"),
            "Needs numbers of -1e+19 or less as values (-1e+18 passes).",
        ),
        (
            feature(VALUES, "values", "all nan", same="all inf", passes="all True, all 1"),
            "Passes with all True or all 1 as values (all nan and all inf fail).",
        ),
        (feature(VALUES, "values", "all -0.0", passes="zeros"), "Needs all -0.0 as values (zeros pass)."),
        (feature(VALUES, "values", "ones", passes="zeros", other="random numbers"),
         "Passes with zeros as values (ones fail, random numbers fail in another way)."),
        (feature(VALUES, "values", "ones", same="all 2", passes="zeros, random zeros and ones"),
         "Passes with zeros or random zeros and ones as values (ones and all 2 fail)."),
        (feature(Aspect.DTYPE, "dtype of x", "float32", same="float64", passes="bfloat16", close="float16"),
         "Passes with bfloat16 (float32 and float64 fail, with float16 it differs by less than counts as a failure)."),
        (Feature(Aspect.SIZE, "x.shape[1]", "17", (ProbeAnswer("16", Outcome.PASS), ProbeAnswer("8", Outcome.CLOSE))),
         "Needs size 17 in x.shape[1] (16 passes, with 8 it differs by less than counts as a failure)."),
        (feature(LAYOUT, "layout of x", "contiguous", passes="transposed"),
         "Needs contiguous layout (transposed passes)."),
        (Feature(LAYOUT, "layout of x", "strides (1, 4), offset 0", (ProbeAnswer("contiguous", Outcome.PASS),)),
         "Needs strides (1, 4) (contiguous passes)."),
        (feature(ARGUMENT, "argument training of f", "True", passes="left out, False"),
         "Needs training=True of f (False and leaving it out pass)."),
        (feature(ARGUMENT, "argument dim of f", "1", same="0", passes="left out, 2"),
         "Passes with dim=2 of f or without it (1 and 0 fail)."),
        (feature(ARGUMENT, "argument dim of f", "1", same="0", passes="left out"),
         "Passes with dim of f left out (1 and 0 fail)."),
        (feature(LAYOUT, "layout of x", "contiguous", same="transposed"), "Also fails with transposed layout."),
        (feature(SETTING, "requires_grad", "False", same="True"), "Does not matter (as tested): requires_grad."),
        (feature(SETTING, "mode", "'lite'", same="the default"), "Also fails with the default of mode."),
        (feature(ARGUMENT, "argument dim of f", "1", same="0"), "Also fails with dim=0 of f."),
        (feature(ARGUMENT, "argument keepdim of f", "True", same="False"),
         "Does not matter (as tested): keepdim of f (False)."),
        (feature(ARGUMENT, "argument dim of f", "1", same="0, 2"), "Does not matter (as tested): dim of f (0, 2)."),
        (feature(ARGUMENT, "argument dim of f", "1", same="0, 2", invalid="3"),
         "Does not matter (as tested): dim of f (0, 2)."),
        (feature(Aspect.DEFAULT, "argument dim of f", "1", same="0, 2"), ""),
        (feature(Aspect.DEFAULT, "argument dim of f", "1", passes="2"), "Passes with dim=2 of f."),
        (Feature(ARGUMENT, "argument ceil_mode of f", "True",
                 (ProbeAnswer("left out", Outcome.INVALID, runs=0),
                  ProbeAnswer("left out", Outcome.PASS, on="with x.shape[2] = 17"))),
         "Needs ceil_mode=True of f (with x.shape[2] = 17 leaving it out passes and True fails)."),
        (Feature(Aspect.DEFAULT, "argument stride of f", "[]",
                 (ProbeAnswer("[1, 1]", Outcome.PASS, on="with x.shape[2] = 17"),)),
         "Passes with stride=[1, 1] of f with x.shape[2] = 17, where the default fails."),
        (Feature(ARGUMENT, "argument dim of f", "1",
                 (ProbeAnswer("0", Outcome.SAME), ProbeAnswer("2", Outcome.SAME, on="with x.shape[2] = 17"))),
         "Does not matter (as tested): dim of f (0, 2)."),
    ],
)  # fmt: skip
def test_one_tensor_needs_no_name(answers: Feature, words: str) -> None:
    assert summary(answers) == words
    assert Explanation((answers,)).sentences() == []


TENSORS = ("w", "v", "x")
LSTM = (
    feature(SETTING, "backward pass", "yes", passes="no"),
    feature(DTYPE, "dtype of w, v, x", "float32", same="float64", passes="float16, bfloat16"),
    feature(VALUES, "values", "what they are", same="ones, random numbers", passes="zeros"),
    feature(VALUES, "values of w", "zeros", same="ones"),
    feature(VALUES, "values of v", "zeros", same="ones"),
    feature(VALUES, "values of x", "ones", same="random numbers", passes="zeros"),
    feature(SIZE, "w.shape[0] = v.shape[0]", "4", passes="2, 8", invalid="17"),
    feature(SIZE, "w.shape[1] = x.shape[2]", "1", same="2, 3"),
    *(feature(ARGUMENT, f"argument {n} of torch.lstm", "False", same="True") for n in ("train", "batch_first")),
    feature(ARGUMENT, "argument 1 of operator.getitem", "0", same="1"),
)  # fmt: skip


def test_of_several_tensors_those_are_named_that_differ_and_each_answer_is_told_once() -> None:
    assert Explanation(LSTM, tensors=TENSORS).summary() == (
        "Needs the backward pass; float32 or float64 (float16 and bfloat16 pass); "
        "size 4 in w.shape[0] and v.shape[0] (2 and 8 pass). Passes with zeros in x (ones and random numbers fail). "
        "Does not matter (as tested): sizes in w.shape[1] and x.shape[2] (2, 3), train of torch.lstm (True), "
        "batch_first of torch.lstm (True). "
        "Also fails with ones in w and v; 1 as argument 1 of operator.getitem."
    )
    assert Explanation(LSTM, tensors=TENSORS).sentences() == []


def test_tensors_with_the_same_answers_are_told_together() -> None:
    both = [feature(VALUES, f"values of {name}", "zeros", passes="ones") for name in ("x", "y")]
    layouts = [feature(LAYOUT, f"layout of {name}", "contiguous", passes="transposed") for name in ("x", "y")]
    third = feature(DTYPE, "dtype of x, y, z", "float32", same="float64, float16")
    assert summary(*both, *layouts) == "Needs zeros as values (ones pass); contiguous layout (transposed passes)."
    assert Explanation((third, *both), tensors=("x", "y", "z")).summary() == (
        "Needs zeros in x and y (ones pass). Does not matter (as tested): dtype (float64, float16)."
    )
    assert Explanation((third,), tensors=("x", "y", "z", "n")).summary() == (
        "Does not matter (as tested): dtype of x, y and z (float64, float16)."
    )
    many = feature(SIZE, " = ".join(f"x.shape[{n}]" for n in range(8)), "2", passes="1")
    assert summary(many).startswith(
        "Needs size 2 in x.shape[0], x.shape[1], x.shape[2], x.shape[3], x.shape[4] and 3 more"
    )
    assert Explanation((feature(VALUES, "values", "zeros", passes="ones"),), tensors=("x", "y")).summary() == (
        "Needs zeros in all tensors (ones pass)."
    )


@pytest.mark.parametrize("said", ["RuntimeError: it ends.", "RuntimeError: a long ..."])
def test_a_failure_that_ends_with_a_full_stop_or_is_cut_has_no_other_one(said: str) -> None:
    found = Feature(DTYPE, "dtype of x", "float32", (ProbeAnswer("float64", Outcome.OTHER, said=said),))
    assert Explanation((found,)).sentences() == [f"Fails in another way with float64: {said}"]


def test_another_failure_and_another_operator_have_a_sentence() -> None:
    said = "RuntimeError: no such kernel"
    answers = [ProbeAnswer(value, Outcome.OTHER, said=said) for value in ("float64", "float16")]
    found = (
        Feature(DTYPE, "dtype of x", "float32", (*answers, ProbeAnswer("bfloat16", Outcome.CRASH, said="signal 11"))),
        feature(OPERATOR, "operator torch.minimum", "torch.minimum", same="torch.maximum", passes="torch.pow"),
        feature(OPERATOR, "operator torch.mul (call 1)", "torch.mul", passes="torch.div", other="torch.sub"),
        feature(OPERATOR, "operator torch.sin", "torch.sin", invalid="torch.cos"),
    )
    assert Explanation(found).sentences() == [
        f"Fails in another way with float64 or float16: {said}.",
        "Fails in another way with bfloat16: signal 11.",
        "In place of torch.minimum: torch.maximum fails, too; torch.pow passes.",
        "In place of torch.mul (call 1): torch.div passes; torch.sub fails in another way.",
    ]
    assert summary(*found) == ""
    console = Console(file=io.StringIO(), width=100)
    detail.explanation(needs(Explanation(found[:2], asked=5)), console=console)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        f"   matters  Fails in another way with float64 or float16: {said}.",
        "            Fails in another way with bfloat16: signal 11.",
        "            In place of torch.minimum: torch.maximum fails, too; torch.pow passes.",
        "            (5 variants tested)",
    ]


@pytest.mark.parametrize(
    ("answers", "change", "words"),
    [
        (LSTM[0], "no instead of yes as backward pass", "no backward pass"),
        (LSTM[6], "8 instead of 4 as w.shape[0] = v.shape[0]", "size 8 in w.shape[0] and v.shape[0]"),
        (LSTM[2], "zeros instead of what they are", "zeros as values"),
        (feature(ARGUMENT, "argument 1 of f", "2", passes="left out, 3"), "3 instead of 2 as argument 1 of f",
         "3 as argument 1 of f"),
        (feature(ARGUMENT, "argument 1 of f", "2", passes="left out"), "argument 1 of f left out",
         "argument 1 of f left out"),
        (feature(OPERATOR, "operator f", "f", passes="g"), "g instead of f", "g in place of f"),
        (LSTM[0], "what an older version told", "what an older version told"),
    ],
)  # fmt: skip
def test_the_passing_variant_in_words(answers: Feature, change: str, words: str) -> None:
    found = Explanation((answers,), PassingVariant(change, "- f\n+ g"))
    assert found.passes_with() == words
    assert found.sentences() == []  # the difference says that of an operator


EXPLAINED = Explanation(
    (
        Feature(Aspect.VALUES, "values", "zeros", (ProbeAnswer("ones", Outcome.SAME),)),
        sized(17, (18, 34), (16,)),
        Feature(Aspect.SETTING, "grad", "False", (ProbeAnswer("the default", Outcome.PASS),)),
        Feature(Aspect.ARGUMENT, "argument 1 of torch.sum", "0", (ProbeAnswer("1", Outcome.INVALID),)),
        Feature(Aspect.LAYOUT, "layout of x", "contiguous", (ProbeAnswer("transposed", Outcome.PASS),)),
        Feature(Aspect.DTYPE, "dtype of x", "float32", (ProbeAnswer("float64", Outcome.OTHER),)),
        Feature(Aspect.OPERATOR, "operator torch.sum", "torch.sum", (ProbeAnswer("torch.mean", Outcome.PASS),)),
    ),
    PassingVariant("x.shape[1]: 16 instead of 17", "- x: float32[1, 17], zeros\n+ x: float32[1, 16], zeros"),
    asked=7,
    seconds=1.5,
    reduction=3,
)


def test_the_document_has_the_answers_and_the_words_for_them() -> None:
    doc = EXPLAINED.to_json()
    assert doc["summary"] == (
        "Needs size 17 or more in x.shape[1] (16 passes, 18 and 34 fail); grad = False; "
        "contiguous layout (transposed passes). Also fails with ones as values."
    )
    assert doc["sentences"] == [
        "Fails in another way with float64.",
        "In place of torch.sum: torch.mean passes.",
        "Not tested, because eager refuses it: 1 as argument 1 of torch.sum.",
    ]
    answer = {"value": "the default", "outcome": "pass", "shown": 0, "runs": 1, "on": "", "said": ""}
    assert json.loads(json.dumps(doc))["features"][2] == {
        "aspect": "setting", "name": "grad", "now": "False", "answers": [answer], "claim": "matters",
    }  # fmt: skip
    assert Explanation(()).summary() == ""


def test_an_explanation_is_read_back() -> None:
    assert Explanation.from_json(json.loads(json.dumps(EXPLAINED.to_json()))) == EXPLAINED


@pytest.mark.parametrize(
    "edit",
    [
        {"features": None},
        {"features": [{}]},
        {"features": [{"aspect": "size", "name": "x", "now": "seventeen", "answers": []}]},
        {"features": [{"aspect": "size", "name": "x", "now": "9" * 30, "answers": []}]},
        {"features": [{"aspect": "mood", "name": "x", "now": "1", "answers": []}]},
        {"features": [{"aspect": "values", "name": ["x"], "now": "1", "answers": []}]},
        {"features": [{"aspect": "values", "name": "x", "now": "1", "answers": [{"value": "1", "outcome": "odd"}]}]},
        {"features": [{"aspect": "values", "name": "x" * 30_000, "now": "1", "answers": []}]},
        {"features": [{"aspect": "values", "name": "x", "now": "1", "answers": []}] * (MOST + 1)},
        {"passing_variant": {"what": 1, "difference": ""}},
        {"asked": "many"},
    ],
)
def test_what_we_never_wrote_is_refused(edit: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="an explanation in the file cannot be read"):
        Explanation.from_json(json.loads(json.dumps({**EXPLAINED.to_json(), **edit})))
    refused: tuple[Any, ...] = ("", [], 1)
    for doc in refused:
        with pytest.raises(StoreError, match="cannot be read"):
            Explanation.from_json(doc)
