"""A capture is replayed before anything is reduced: through both entries, as often as it takes, with its own times."""

from dataclasses import replace

import pytest
from replies import Scripted, fails, passes, refused

from fxminify.minifier.oracle.oracle import Oracle, Votes
from fxminify.minifier.oracle.replay import Shown, fastest, replay
from fxminify.minifier.sandbox.pool import Ended, Reply
from fxminify.minifier.sandbox.stacks import ENOUGH, StackSampling
from fxminify.minifier.session.replays import variants
from fxminify.store.document.case import Case, Graph, Json, Node
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.matching import FailureMatcher
from fxminify.store.signature import Match, signature

CASE = Case(Graph((Node("output", "output", "output", (None,)),)), (), context={"threads": 1})
ERROR = Failure(
    FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "cannot lower relu", frames=(Frame("be.py", "f"),)
)
SOUGHT = FailureMatcher((ERROR,))
HANG = Failure(FailureKind.HANG, Phase.COMPILE, message="no answer within 60 s")


class ByEntry(Scripted):
    """Gives replies by entry and number of threads; a list is given out in turn, its last one for ever."""

    def __init__(self, **replies: Reply | list[Reply]) -> None:
        super().__init__()
        self.of = {key: list(value) if isinstance(value, list) else [value] for key, value in replies.items()}
        self.asked: list[str] = []

    def reply(self, argument: Json) -> Reply:
        self.asked.append(argument["entry"] + ("_one" if argument["threads"] == 1 else ""))
        replies = self.of.get(self.asked[-1], self.of[argument["entry"]])
        return replies.pop(0) if len(replies) > 1 else replies[0]


def test_both_entries_are_tried_and_the_faster_is_kept() -> None:
    pool = ByEntry(direct=fails(ERROR, seconds=0.5), compile=fails(ERROR, seconds=2.0))
    found = replay(pool, CASE, SOUGHT, runs=3)
    assert pool.asked == ["direct", "compile", "direct", "direct"]  # twice: the first run of a worker is cold
    assert (found.reproduced, found.entry, found.rate, found.timeout) == (True, "direct", 1.0, 10.0)
    assert found.entries == {"direct": Shown(3, 3, 0.5), "compile": Shown(1, 1, 2.0)}
    assert found.matcher == FailureMatcher((ERROR,), strict=True)


def test_a_failure_that_shows_through_compile_only() -> None:
    pool = ByEntry(direct=passes(), compile=fails(ERROR, seconds=4.0))
    found = replay(pool, CASE, SOUGHT, runs=2)
    assert (found.entry, found.timeout) == ("compile", 20.0)
    assert pool.asked == ["direct", "compile", "compile"]


def test_the_timeout_is_capped() -> None:
    assert replay(ByEntry(direct=fails(ERROR, seconds=30.0), compile=passes()), CASE, SOUGHT, limit=60).timeout == 60


def test_a_capture_that_passes_is_not_reproduced_and_says_so() -> None:
    found = replay(ByEntry(direct=passes(), compile=passes()), CASE, SOUGHT, runs=3)
    assert not found.reproduced
    assert found.entries == {"direct": Shown(3, 0, 1.0), "compile": Shown(3, 0, 1.0)}
    assert found.reason == (
        "captured: RuntimeError: cannot lower relu\ndirect, 3 times: passes\ncompile, 3 times: passes"
    )


def test_a_capture_that_fails_differently_is_not_reproduced_and_says_how() -> None:
    other = replace(ERROR, message="cannot lower sin")
    found = replay(ByEntry(direct=fails(other), compile=fails(other)), CASE, SOUGHT, runs=1)
    assert not found.reproduced
    assert found.reason == (
        "captured: RuntimeError: cannot lower relu\n"
        'direct, once: RuntimeError: cannot lower sin (another message: "sin" in the place of "relu")\n'
        'compile, once: RuntimeError: cannot lower sin (another message: "sin" in the place of "relu")\n'
        "type and raising frame agree; to take that for the same failure: minify run --again --match origin"
    )
    assert replay(
        ByEntry(direct=fails(other), compile=fails(other)), CASE, FailureMatcher((ERROR,), Match.ORIGIN)
    ).reproduced
    assert replay(
        ByEntry(direct=fails(other), compile=passes()), CASE, FailureMatcher((ERROR,), error_regex="lower sin")
    ).reproduced


def test_what_eager_refuses_is_told_and_not_run_again() -> None:
    pool = ByEntry(direct=refused("index 9 is out of range"), compile=refused("index 9 is out of range"))
    found = replay(pool, CASE, SOUGHT, runs=3)
    assert (found.reproduced, found.passes, found.refused) == (False, False, "index 9 is out of range")
    assert pool.asked == ["direct", "compile"]
    assert "direct, once: invalid: eager: index 9 is out of range" in found.reason


@pytest.mark.parametrize(
    "other", [refused("index 8 is out of range"), passes(), Reply(Ended.TIMEOUT, "eager", seconds=9)]
)
def test_eager_refuses_only_what_it_refuses_in_every_run_alike(other: Reply) -> None:
    pool = ByEntry(direct=refused("index 9 is out of range"), compile=other)
    found = replay(pool, CASE, SOUGHT, runs=3)
    assert (found.reproduced, found.refused) == (False, "")
    assert pool.asked.count("direct") == pool.asked.count("compile") == 3


def test_a_failure_that_comes_and_goes_has_a_rate_and_votes() -> None:
    pool = ByEntry(
        direct=[passes(), passes(), fails(ERROR), passes(), fails(ERROR), passes(), passes(), fails(ERROR)],
        compile=passes(),
    )
    found = replay(pool, CASE, SOUGHT, runs=3)
    assert found.reproduced
    assert found.entry == "direct"
    assert found.rate == pytest.approx(4 / 9)
    assert found.oracle(pool).votes == Votes.for_rate(4 / 9)


@pytest.mark.parametrize("context", [{}, {"threads": 1}])
def test_a_replay_has_as_many_threads_as_a_script(context: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    pool = ByEntry(direct=fails(ERROR), compile=fails(ERROR), direct_one=passes(), compile_one=passes())
    found = replay(pool, replace(CASE, context=context), SOUGHT, runs=2)
    assert (found.reproduced, found.threads, found.oracle(pool).threads) == (True, 0, 0)


def test_a_crash_is_tried_with_one_thread_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    crash, case = Failure(FailureKind.CRASH, Phase.FORWARD, signal=8), replace(CASE, context={})
    both = ByEntry(direct=fails(crash), compile=fails(crash))
    assert (replay(both, case, FailureMatcher((crash,))).threads, both.asked[:2]) == (1, ["direct_one", "compile_one"])
    many = ByEntry(direct=fails(crash), compile=fails(crash), direct_one=passes(), compile_one=passes())
    found = replay(many, case, FailureMatcher((crash,)), runs=2)
    assert (found.reproduced, found.threads, found.oracle(many).threads) == (True, 0, 0)
    assert many.asked[:4] == ["direct_one", "compile_one", "direct", "compile"]
    assert not replay(both, CASE, SOUGHT, runs=2).reproduced


def test_one_thread_is_the_last_way_to_replay_and_stands_in_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    ways = variants(replace(CASE, context={"grad": False}, calls=3), ERROR)
    assert [(way.calls, way.context.get("threads")) for way in ways] == [(1, None), (3, None), (1, 1)]
    assert len(variants(CASE, ERROR)) == 1
    assert len(variants(replace(CASE, context={}), Failure(FailureKind.CRASH, Phase.FORWARD))) == 1


def test_the_allowed_signatures_are_all_that_count_as_the_capture() -> None:
    one, two = fails(ERROR, stderr="error: one\n"), fails(ERROR, stderr="error: two\n")
    found = replay(ByEntry(direct=[one, two, one], compile=two), CASE, SOUGHT)
    assert [signature(f).diagnostics for f in found.matcher.examples] == ["error: one", "error: two"]
    assert [f.diagnostics for f in found.failures] == ["error: one\n", "error: two\n"]


def test_our_own_trouble_is_retried() -> None:
    pool = ByEntry(direct=[Reply(Ended.INFRA, error="x"), fails(ERROR)], compile=passes())
    assert replay(pool, CASE, SOUGHT, runs=1).rate == 1.0


def test_a_hang_is_given_five_times_what_a_healthy_graph_takes() -> None:
    hang = Reply(Ended.TIMEOUT, "compile", seconds=30)
    pool = ByEntry(direct=[passes(seconds=6.0), hang], compile=hang)
    found = replay(pool, CASE, FailureMatcher((HANG,)), runs=2, limit=60)
    assert pool.timeouts == [60, 30, 30, 30]
    assert (found.reproduced, found.timeout, found.healthy) == (True, 30.0, 6.0)
    pool = ByEntry(direct=[passes(seconds=20.0), hang], compile=hang)
    assert replay(pool, CASE, FailureMatcher((HANG,)), runs=1, limit=60).timeout == 60
    pool = ByEntry(direct=[passes(seconds=0.1), hang], compile=hang)
    assert replay(pool, CASE, FailureMatcher((HANG,)), runs=1, limit=60).timeout == 5


def test_where_the_first_run_hangs_is_the_anchor_of_the_others() -> None:
    hang = Reply(Ended.TIMEOUT, "compile", seconds=30, stacks=(("main", "lower"),) * ENOUGH)
    pool = ByEntry(direct=[passes(seconds=6.0), hang], compile=hang)
    found = replay(pool, CASE, FailureMatcher((HANG,)), runs=2, limit=60)
    assert pool.samplings == [None, StackSampling(), StackSampling("lower"), StackSampling("lower")]
    assert found.anchor == found.oracle(pool).anchor == "lower"


def test_another_failure_of_a_sampled_run_is_looked_at_again_without_samples() -> None:
    other = replace(fails(ERROR), stacks=(("main", "wait"),))
    hang = Reply(Ended.TIMEOUT, "compile", seconds=30)
    pool = ByEntry(direct=[passes(seconds=6.0), other, hang], compile=hang)
    assert replay(pool, CASE, FailureMatcher((HANG,)), runs=1, limit=60).entries["direct"].matched == 1
    assert pool.samplings == [None, StackSampling(), None, StackSampling()]


def test_smaller_candidates_of_a_hang_get_less_time() -> None:
    node = Node("n", "call_function", {"fn": "torch.relu"})
    sizes = [replace(CASE, graph=Graph((node,) * n)) for n in (1, 25, 50, 1000)]
    oracle = Oracle(ByEntry(), FailureMatcher(()), timeout=60, healthy=4.0)
    assert [oracle.timeout_of(case) for case in sizes] == [pytest.approx(20.8), 40.0, 60.0, 60]
    assert Oracle(ByEntry(), FailureMatcher(()), timeout=60).timeout_of(sizes[0]) == 60


def test_the_faster_entry() -> None:
    assert fastest({"direct": Shown(1, 1, 1.1), "compile": Shown(1, 1, 1.0)}) == "direct"
    assert fastest({"direct": Shown(1, 1, 2.0), "compile": Shown(1, 1, 1.0)}) == "compile"
    assert fastest({"direct": Shown(2, 1, 0.1), "compile": Shown(2, 2, 1.0)}) == "compile"
    assert fastest({"compile": Shown(1, 1, 1.0)}) == "compile"
