"""What an answer means: strict, never a guess, and with votes where the failure comes and goes."""

import threading
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any

import pytest
from replies import Scripted, fails, failure_of, passes

from fxminify.minifier.oracle.observation import Observation, Seen
from fxminify.minifier.oracle.oracle import ONCE, Oracle, Votes, tally
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.sandbox.launcher import SandboxError
from fxminify.minifier.sandbox.pool import Ended, Reply
from fxminify.minifier.sandbox.stacks import StackSampling
from fxminify.store import codec
from fxminify.store.document.case import Case, Graph, Json, Node
from fxminify.store.failure import Failure, FailureKind, Frame, Phase, divergence
from fxminify.store.matching import FailureMatcher
from fxminify.store.signature import Match, Signature, signature

CASE = Case(Graph((Node("output", "output", "output", (None,)),)), ())


def error(
    message: str = "cannot lower relu",
    type: str = "RuntimeError",
    file: str = "be.py",
    causes: tuple[tuple[str, str], ...] = (),
) -> Failure:
    frames = (Frame(file, "lower", 3),)
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, type, message, causes, frames=frames)


PASSES = passes()
INVALID = Reply(Ended.DONE, "eager", codec.dump(Observation(Seen.INVALID, detail="eager: no")), seconds=1.0)
INFRA = Reply(Ended.INFRA, error="our mistake", seconds=1.0)
CRASH = Reply(Ended.CRASH, "compile", signal=11, seconds=1.0)
HANG = Reply(Ended.TIMEOUT, "compile", seconds=12.0)
MEMORY = Reply(Ended.MEMORY, "compile", error="2 GiB", seconds=1.0)


def verdict(
    *replies: Reply | Exception,
    captured: Failure | None = None,
    match: Match = Match.EXACT,
    error_regex: str | None = None,
    votes: Votes = ONCE,
    fresh: bool = False,
) -> Verdict:
    pool = Scripted(*replies)
    matcher = FailureMatcher((captured or error(),), match, error_regex, strict=True)
    answer = Oracle(pool, matcher, timeout=10, votes=votes).ask(CASE, fresh=fresh)
    assert pool.replies == []
    return answer


def test_outputs_without_any_gradient_count_where_the_failure_is_about_gradients() -> None:
    """A backend for inference makes them of every graph."""
    found = {"class": "gradient", "where": "output 0", "phase": "backward", "message": "output 0", "detached": True}
    detached = fails(divergence(found, []))
    gradient = divergence({"class": "gradient", "where": "input 1", "phase": "backward", "message": "None"}, [])
    assert verdict(detached, captured=gradient).outcome is Outcome.SAME
    for captured in (error(), divergence({"class": "value", "where": "", "phase": "forward", "message": "off"}, [])):
        assert verdict(detached, captured=captured).outcome is Outcome.INVALID


def test_the_captured_failure_is_same() -> None:
    answer = verdict(fails(error("cannot lower relu\n\nWhile executing %relu_7")))
    assert (answer.outcome, answer.signature, answer.seconds) == (Outcome.SAME, signature(error()), 1.0)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (PASSES, Outcome.PASS),
        (INVALID, Outcome.INVALID),
        (CRASH, Outcome.CRASH),
        (HANG, Outcome.TIMEOUT),
        (MEMORY, Outcome.OTHER),
        (fails(error("cannot lower sin")), Outcome.OTHER),
        (fails(error(type="ValueError")), Outcome.OTHER),
        (fails(error(file="elsewhere.py")), Outcome.OTHER),
        (fails(error(), stderr="error: and a diagnosis\n"), Outcome.OTHER),
    ],
)
def test_everything_else_is_not(reply: Reply, outcome: Outcome) -> None:
    answer = verdict(reply)
    assert answer.outcome is outcome
    assert (answer.failure is None) == (outcome in (Outcome.PASS, Outcome.INVALID))


def found(kind: str, where: str, phase: str = "forward") -> dict[str, str]:
    return {"class": kind, "where": where, "phase": phase, "message": f"{where}: 1 of 1 elements differ"}


OUTPUT, INPUT, GRADIENT = (
    found("value", "output 0"),
    found("mutation", "input 0"),
    found("value", "gradient of input 0", "backward"),
)


@pytest.mark.parametrize(("captured", "first", "others"), [
    (GRADIENT, OUTPUT, [INPUT, GRADIENT]), (INPUT, OUTPUT, [INPUT]), (GRADIENT, INPUT, [OUTPUT, GRADIENT]),
])  # fmt: skip
def test_a_divergence_that_a_script_can_show_alone_may_stand_among_others(
    captured: dict[str, str], first: dict[str, str], others: list[dict[str, str]]
) -> None:
    answer = verdict(fails(divergence(first, others)), captured=divergence(captured, []))
    assert answer.outcome is Outcome.SAME
    assert answer.failure is not None
    assert answer.failure.headline() == divergence(captured, []).headline()
    assert answer.failure.message.splitlines()[1].startswith(f"also: {first['where']} ({first['class']})")
    assert answer.signature == signature(divergence(captured, []))


@pytest.mark.parametrize("others", [[found("dtype", "output 0"), OUTPUT], [OUTPUT, GRADIENT], "text", [3, {}]])
def test_a_divergence_that_a_script_shows_with_others_must_be_the_first(others: Any) -> None:
    first = divergence(found("shape", "output 0"), [])
    failure = replace(first, detail={**first.detail, "others": others})
    assert verdict(fails(failure), captured=divergence(OUTPUT, [])).outcome is Outcome.OTHER


def test_few_errors_that_a_shorter_type_would_explain_are_that_or_a_wrong_value() -> None:
    """Whatever is left of a wrong value could be what a backend that rounds shows in every graph."""
    few = {**OUTPUT, "dtype": "float32", "rounding": "bfloat16"}
    precision = {**found("precision", "output 0"), "dtype": "float32", "as": "bfloat16"}
    assert verdict(fails(divergence(few, [])), captured=divergence(OUTPUT, [])).outcome is Outcome.OTHER
    assert verdict(fails(divergence(few, [])), captured=divergence(few, [])).same
    assert verdict(fails(divergence(OUTPUT, [])), captured=divergence(few, [])).same
    answer = verdict(fails(divergence(few, [])), captured=divergence(precision, []))
    assert answer.same
    assert answer.failure is not None
    assert (answer.failure.detail["class"], answer.failure.detail["as"]) == ("precision", "bfloat16")
    assert answer.failure.message.startswith("computes float32 as bfloat16: output 0: ")


def test_numbers_that_eager_has_not_are_no_wrong_numbers() -> None:
    """0 / 0 is nearly everywhere as a graph shrinks, and not every backend makes NaN of it."""
    finite = {**found("nan", "output 0"), "undefined": False}
    undefined = {**finite, "undefined": True}
    for captured in (OUTPUT, finite):
        assert verdict(fails(divergence(undefined, [])), captured=divergence(captured, [])).outcome is Outcome.OTHER
    for captured in (undefined, found("nan", "output 0")):  # an older fxminify did not say which
        for seen in (undefined, finite, OUTPUT):
            assert verdict(fails(divergence(seen, [])), captured=divergence(captured, [])).same
    assert verdict(fails(divergence(finite, [])), captured=divergence(OUTPUT, [])).same


def test_what_goes_wrong_while_an_answer_is_judged_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureMatcher, "find", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        verdict(fails(error()))


def test_of_many_divergences_one_of_each_kind_is_kept() -> None:
    failure = divergence(OUTPUT, [*(found("value", f"output {i}") for i in range(1, 60)), GRADIENT])
    assert [o["where"] for o in failure.detail["others"]][:2] == ["output 1", "gradient of input 0"]
    assert failure.message.endswith("output 19 (value), 40 more")


def test_a_slip_to_another_bug_carries_its_signature() -> None:
    answer = verdict(fails(error("cannot lower sin")))
    assert answer.signature == signature(error("cannot lower sin"))
    assert answer.detail == "RuntimeError: cannot lower sin"


@pytest.mark.parametrize(
    ("match", "same"), [(Match.EXACT, [False, False]), (Match.ORIGIN, [True, False]), (Match.ANY, [True, True])]
)
def test_match_levels(match: Match, same: list[bool]) -> None:
    replies = [fails(error("cannot lower sin")), fails(error("cannot lower sin", file="elsewhere.py"))]
    assert [verdict(r, match=match).same for r in replies] == same


def test_a_regular_expression_overrides_the_signature() -> None:
    nested = error("failed", causes=(("DispatchError", "no function for aten.foo"),))
    assert verdict(fails(nested), error_regex=r"no function for aten\.foo").same
    assert verdict(fails(error("failed"), stderr="error: aten.foo\n"), error_regex="aten.foo").same
    assert verdict(fails(error()), error_regex="aten.foo").outcome is Outcome.OTHER
    assert nested.text() == "RuntimeError: failed\nDispatchError: no function for aten.foo"


def test_a_captured_crash_is_same_only_with_its_signal() -> None:
    crash = Failure(FailureKind.CRASH, Phase.COMPILE, signal=11)
    assert verdict(CRASH, captured=crash).same
    answer = verdict(Reply(Ended.CRASH, "compile", signal=8), captured=crash)
    assert (answer.outcome, answer.signature) == (Outcome.CRASH, Signature("crash", "compile", "signal 8"))
    assert verdict(Reply(Ended.CRASH, "forward", signal=11), captured=crash).outcome is Outcome.CRASH


def test_a_captured_hang_is_same_in_its_phase() -> None:
    hang = Failure(FailureKind.HANG, Phase.COMPILE)
    assert verdict(HANG, captured=hang).same
    assert verdict(Reply(Ended.TIMEOUT, "forward"), captured=hang).outcome is Outcome.TIMEOUT


def test_a_captured_lack_of_memory_is_same_however_it_shows() -> None:
    memory = Failure(FailureKind.OUT_OF_MEMORY, Phase.COMPILE, type="RuntimeError", message="not enough memory")
    assert verdict(MEMORY, captured=memory).same


@pytest.mark.parametrize("ended", [Ended.CRASH, Ended.TIMEOUT, Ended.MEMORY])
@pytest.mark.parametrize("phase", ["eager", "trace"])
def test_dying_before_the_backend_was_asked_is_invalid(ended: Ended, phase: str) -> None:
    captured = Failure(FailureKind.CRASH, Phase.COMPILE, signal=11)
    assert verdict(Reply(ended, phase, signal=11), captured=captured).outcome is Outcome.INVALID


def test_dying_while_results_are_compared_is_our_own_trouble() -> None:
    assert verdict(Reply(Ended.CRASH, "compare", signal=11), PASSES).outcome is Outcome.PASS


def test_our_own_trouble_is_retried_once_in_a_fresh_worker() -> None:
    pool = Scripted(INFRA, fails(error()))
    assert Oracle(pool, FailureMatcher((error(),)), timeout=10).ask(CASE).same
    assert pool.fresh == [False, True]
    answer = verdict(INFRA, INFRA)
    assert (answer.outcome, answer.detail, answer.seconds) == (Outcome.INFRA, "our mistake", 2.0)


def test_an_answer_that_is_no_observation_is_our_own_trouble() -> None:
    broken = Reply(Ended.DONE, "compile", {"seen": "maybe"})
    assert verdict(broken, broken).outcome is Outcome.INFRA


def test_fresh_runs_in_a_fresh_worker() -> None:
    pool = Scripted(PASSES)
    Oracle(pool, FailureMatcher(()), timeout=10).ask(CASE, fresh=True)
    assert pool.fresh == [True]


def test_trouble_of_the_pool_is_raised() -> None:
    with pytest.raises(SandboxError, match="closed"):
        verdict(SandboxError("the pool is closed"))


def test_votes_stop_as_soon_as_they_are_decided() -> None:
    votes = Votes(2, 4)
    same, other = fails(error()), fails(error("cannot lower sin"))
    assert verdict(same, same, votes=votes).outcome is Outcome.SAME
    assert verdict(PASSES, same, PASSES, same, votes=votes).detail == "2 of 4 runs"
    assert verdict(PASSES, PASSES, PASSES, votes=votes).outcome is Outcome.PASS
    assert verdict(PASSES, other, PASSES, votes=votes).outcome is Outcome.OTHER
    flaky = verdict(PASSES, same, PASSES, PASSES, votes=votes)
    assert (flaky.outcome, flaky.detail, flaky.signature) == (Outcome.FLAKY, "1 of 4 runs", signature(error()))
    assert verdict(INVALID, votes=votes).outcome is Outcome.INVALID


def test_votes_follow_from_the_rate() -> None:
    assert Votes.for_rate(1.0) == Votes(1, 1)
    assert Votes.for_rate(0.9) == Votes(1, 2)
    assert Votes.for_rate(0.5) == Votes(1, 7)
    assert Votes.for_rate(0.25) == Votes(2, 17)
    assert Votes.for_rate(0.01) == Votes(1, 20)


def test_a_least_rate_is_what_votes_ask_for() -> None:
    assert Votes.for_rate(1.0, 0.8) == Votes(4, 5)
    assert Votes.for_rate(0.5, 0.5) == Votes(4, 7)
    assert Votes.for_rate(0.25, 0.2) == Votes(4, 17)


def test_a_tally_waits_while_it_can_still_change() -> None:
    same, other = Verdict(Outcome.SAME), Verdict(Outcome.PASS)
    assert tally([other], Votes(1, 2)) is None
    assert tally([other, same], Votes(1, 2)) == Verdict(Outcome.SAME, detail="1 of 2 runs")


def test_a_cancelled_question_withdraws_what_waits() -> None:
    waiting: Future[Reply] = Future()

    class Waits(Scripted):
        def submit(
            self,
            task: str,
            argument: Json,
            *,
            timeout: float,
            fresh: bool = False,
            sampling: StackSampling | None = None,
        ) -> Future[Reply]:
            return waiting

    future = Oracle(Waits(), FailureMatcher(()), timeout=10).submit(CASE)
    assert future.cancel()
    assert waiting.cancelled()
    with pytest.raises(CancelledError):
        future.result()


def test_questions_may_come_from_several_threads() -> None:
    pool = Scripted(*[PASSES] * 64)
    oracle = Oracle(pool, FailureMatcher(()), timeout=10)
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda: outcomes.extend(oracle.ask(CASE).outcome for _ in range(8))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome.PASS] * 64


def test_diagnostics_come_from_the_worker_and_hold_no_fault_dump() -> None:
    stack = 'Current thread 0x0001 (most recent call first):\n  File "a.py", line 1 in f\n'
    dump = f"error: bad\nFatal Python error: Aborted\n\n{stack}"
    failure = failure_of(fails(error(), stderr=dump))
    assert failure.diagnostics == "error: bad\n"
    crash = failure_of(Reply(Ended.CRASH, "forward", signal=6, stderr=dump))
    assert (crash.diagnostics, crash.frames) == ("error: bad\n", (Frame("a.py", "f", 1),))
