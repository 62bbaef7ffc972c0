"""Words about a minimal case say what was asked, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.reporting.explanation import MOST, Aspect, Explanation, Feature, PassingVariant, ProbeAnswer
from fxminify.store.errors import StoreError


def sized(now: int, fails: tuple[int, ...], passes: tuple[int, ...] = (), **others: tuple[int, ...]) -> Feature:
    answers = [ProbeAnswer(str(n), Outcome.SAME) for n in fails] + [ProbeAnswer(str(n), Outcome.PASS) for n in passes]
    answers += [ProbeAnswer(str(n), Outcome(outcome)) for outcome, sizes in others.items() for n in sizes]
    return Feature(Aspect.SIZE, "x.shape[1]", str(now), tuple(answers))


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        (sized(17, (18, 34, 69), (16,)), "x.shape[1] >= 17"),
        (sized(17, (18,), (8, 1)), "x.shape[1] > 8"),
        (sized(4, (3, 1), (5, 8)), "x.shape[1] <= 4"),
        (sized(4, (3,), (8,)), "x.shape[1] < 8"),
        (sized(4, (), (3, 5)), "x.shape[1] = 4 only"),
        (sized(17, (33, 69), (16, 32, 18, 34)), "x.shape[1] not a multiple of 2"),
        (sized(17, (18, 33, 69), (16, 32)), "x.shape[1] not a multiple of 4"),
        (sized(8, (16, 32), (7, 9, 33)), "x.shape[1] a multiple of 2"),
        (sized(2, (3,), (1, 4)), ""),
        (sized(17, (), (16,)), ""),
        (sized(17, (18,), other=(16,)), ""),
        (sized(1, (2, 3)), ""),
        (sized(1, (), invalid=(2,)), ""),
    ],
)
def test_sizes_have_patterns_only_where_the_answers_have(feature: Feature, words: str) -> None:
    assert feature.needed() == words


def test_a_sentence_lists_what_was_asked() -> None:
    assert sized(17, (18, 34), (16,), invalid=(69,)).sentence() == (
        "x.shape[1]: fails with 17, 18, 34; passes with 16; eager refuses 69"
    )
    assert sized(2, (3,), other=(1,)).sentence() == "x.shape[1]: fails with 2, 3; fails in another way with 1"
    answers = (
        ProbeAnswer("float64", Outcome.PASS),
        ProbeAnswer("float16", Outcome.OTHER),
        ProbeAnswer("bfloat16", Outcome.INFRA),
    )
    dtype = Feature(Aspect.DTYPE, "dtype of x", "float32", answers)
    assert dtype.needed() == "dtype of x = float32"
    assert dtype.sentence() == (
        "dtype of x: fails with float32; passes with float64; fails in another way with float16; no answer for bfloat16"
    )


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


def test_a_summary_says_what_it_needs_and_the_sentences_have_the_evidence() -> None:
    assert EXPLAINED.summary() == (
        "Needs x.shape[1] >= 17; grad = False only. Also matters: layout of x. Does not matter (as tested): values."
    )
    assert [sentence.partition(":")[0] for sentence in EXPLAINED.sentences()] == [
        "x.shape[1]", "grad", "layout of x", "dtype of x", "operator torch.sum",
    ]  # fmt: skip
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
