"""Each simplification proposes the plainest form first and keeps only what the oracle accepts."""

import json
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import asdict, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from made import Fails, Held, Parallel, Slow, canonicalize, shrinker

from fxminify.minifier.candidate.trace import Trace
from fxminify.minifier.oracle import scheduler
from fxminify.minifier.oracle.scheduler import MemoryLog
from fxminify.minifier.oracle.verdict import Verdict
from fxminify.minifier.passes import CANONICALIZATIONS, Stage, canonical, in_stage, name_of
from fxminify.minifier.passes.candidates import Candidates, Canonicalize
from fxminify.minifier.reducer.shrinker import ReductionResult
from fxminify.minifier.tracing.content_address import content_addressed
from fxminify.store.document.case import Case, Graph, Node, TensorSpec

DATA = np.linspace(-1, 2, 40, dtype=np.float32).tobytes()
CASE = Case(
    graph=Graph(
        (
            Node("x", "placeholder", "L_x_"),
            Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "x"},)),
            Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
        )
    ),
    inputs=({"tensor": 0},),
    tensors=(TensorSpec("float32", (5, 8), (1, 5), storage="s", requires_grad=True, parameter=True),),
    context={"grad": False, "threads": 1},
    backend={"name": "inductor", "mode": "default", "options": {"dict": [["a", 1], ["b", 2]]}},
    backward=True,
)
BLOBS = Held(s=DATA)


def test_everything_goes_when_nothing_matters() -> None:
    plain = canonicalize(CASE, BLOBS, lambda case: True)
    assert plain.context == {}
    assert plain.backend == {"name": "inductor"}
    assert not plain.backward
    assert plain.tensors == (TensorSpec("float32", (1,), (1,), init={"fn": "full", "value": 0.0}),)


def test_nothing_changes_when_everything_matters() -> None:
    assert canonicalize(CASE, BLOBS, lambda case: False) == CASE


def test_what_matters_stays() -> None:
    def same(case: Case) -> bool:
        return case.context.get("grad") is False and ["b", 2] in case.backend.get("options", {}).get("dict", [])

    plain = canonicalize(CASE, BLOBS, same)
    assert plain.context == {"grad": False}
    assert plain.backend == {"name": "inductor", "options": {"dict": [["b", 2]]}}


def test_a_value_that_matters_is_kept_by_the_first_recipe_that_has_it() -> None:
    def same(case: Case) -> bool:
        spec = case.tensors[0]
        return spec.storage == "s" or (spec.init or {}).get("value", 0.0) == 2.0

    assert canonicalize(CASE, BLOBS, same).tensors[0].init == {"fn": "full", "value": 2.0}


def test_every_simplification_is_documented_and_listed() -> None:
    rows = in_stage(Stage.CANONICALIZE)
    *first, ranks, inputs = map(name_of, CANONICALIZATIONS)
    assert [row.name for row in rows] == [
        "arguments-with-sizes",
        "everything",
        "all-but-ranks",
        "all-but-sizes",
        "surroundings",
        *first,
        "sizes-with-sizes",
        ranks,
        inputs,
        "ranks",
        "defaults",
        "calls-of-programs",
    ]
    assert all(row.summary.endswith(".") for row in rows)


def test_storages_are_named_by_their_content() -> None:
    twin = replace(CASE, tensors=(*CASE.tensors, replace(CASE.tensors[0], storage="relu@0")))
    case, blobs = content_addressed(twin, {**BLOBS, "relu@0": DATA, "unused": b""})
    assert sorted(blobs.values()) == [DATA, DATA + bytes(64)]
    assert {t.storage for t in case.tensors} == set(blobs)
    assert content_addressed(case, blobs) == (case, blobs)


# More than one worker


def plainest(case: Case, oracle: Any, jobs: int, **more: Any) -> tuple[ReductionResult, MemoryLog]:
    log, rows = MemoryLog(), in_stage(Stage.CANONICALIZE)
    made = shrinker(oracle, jobs=jobs, log=log, storages=Held(BLOBS), passes=rows, **more)
    return made.run(case, Trace({}, (), {})), log


def needs(rng: Random) -> Callable[[Case], bool]:
    """A failure that needs some of what a case consists of, and one of two things."""

    def facts(case: Case) -> list[bool]:
        spec, options = case.tensors[0], case.backend.get("options", {}).get("dict", [])
        shape, stride = ((1,) * (2 - len(spec.shape)) + sizes for sizes in (spec.shape, spec.stride))
        return [
            case.backward, spec.requires_grad, spec.parameter, case.context.get("grad") is False,
            "threads" in case.context, "mode" in case.backend, ["a", 1] in options, ["b", 2] in options,
            shape[0] >= 3, shape[1] >= 5, stride[0] < stride[1], spec.storage is not None,
        ]  # fmt: skip

    wanted = rng.sample(range(12), rng.randrange(4))
    either = rng.sample(range(12), 2)
    return lambda case: all(facts(case)[i] for i in wanted) and any(facts(case)[i] for i in either)


def test_any_number_of_workers_comes_to_the_same_plain_case() -> None:
    for seed in range(25):
        oracle = Parallel(needs(Random(seed)), 4)
        one, log = plainest(CASE, oracle, 1)
        for jobs in (2, 4):
            several, ahead = plainest(CASE, oracle, jobs)
            assert json.dumps(asdict(several.case)) == json.dumps(asdict(one.case)), seed
            assert log.known.keys() <= ahead.known.keys()


def test_a_second_worker_saves_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {1: 0.0, 2: 0.0, 4: 0.0}
    for seed in range(25):
        fails = needs(Random(seed))
        for jobs in taken:
            oracle = Slow(fails, jobs)

            def wait(futures: Collection[Future[Verdict]], slow: Slow = oracle, **_: object) -> object:
                return slow.wait(futures)

            monkeypatch.setattr(scheduler, "wait", wait)
            plainest(CASE, oracle, jobs)
            taken[jobs] += oracle.now
    assert taken[1] / taken[2] >= 1.4
    assert taken[1] / taken[4] >= 1.8


def test_a_budget_ends_questions_and_those_ahead() -> None:
    result, log = plainest(CASE, Parallel(lambda case: False, 2), 2, max_queries=4)
    assert (result.complete, result.reason, result.queries) == (False, "4 queries", 4)
    assert len(log.known) <= 4


# Simplifications that are wrong themselves


def raises(case: Case, storages: object) -> Candidates:
    """Raises after its first candidate was accepted."""
    yield replace(case, backward=False)
    raise KeyError("lost")


def does_nothing(case: Case, storages: object) -> Candidates:
    """Proposes what is there."""
    yield replace(case)
    return case


def spoils(case: Case, storages: object) -> Candidates:
    """Proposes what is no graph."""
    spoilt = replace(case, inputs=())
    return spoilt if (yield spoilt) else case


def cheats(case: Case, storages: object) -> Candidates:
    """Ends with what nobody accepted."""
    yield replace(case, context={})
    return replace(case, tensors=())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (raises, "KeyError: 'lost'"),
        (does_nothing, "ValueError: it proposed no change"),
        (spoils, "ValueError: 0 inputs for 1 placeholders"),
        (cheats, "ValueError: what it ended with is not what was accepted last"),
    ],
)
def test_a_wrong_simplification_is_told_of_and_the_others_go_on(wrong: Canonicalize, said: str) -> None:
    plain = canonicalize(CASE, Held(BLOBS), lambda case: True)
    rows = (canonical(wrong), *in_stage(Stage.CANONICALIZE)[3:])
    result = shrinker(Fails(lambda case: True), storages=Held(BLOBS), passes=rows).run(CASE, Trace({}, (), {}))
    assert result.problems == {name_of(wrong): [said]}
    assert result.case == plain


def test_no_simplification_of_ours_is_wrong() -> None:
    for seed in range(25):
        canonicalize(CASE, Held(BLOBS), needs(Random(seed)))
