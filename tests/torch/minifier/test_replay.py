"""A capture is replayed before anything is reduced: through both entries, as often as it takes, with its own times."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from captured import capture, spec
from replies import Scripted, fails, passes

from fxminify.minifier.oracle.oracle import FailureTarget, Oracle, Votes
from fxminify.minifier.oracle.replay import Likeness, Shown, fastest, healthy, replay
from fxminify.minifier.oracle.verdict import Outcome
from fxminify.minifier.sandbox.pool import Ended, Pool, Reply
from fxminify.store.document.case import Case, Graph, Json, Node
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.signature import Match, Signature, signature

CASE = Case(Graph((Node("output", "output", "output", (None,)),)), (), context={"threads": 1})
ERROR = Failure(
    FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "cannot lower relu", frames=(Frame("be.py", "f"),)
)
HANG = Failure(FailureKind.HANG, Phase.COMPILE, message="no answer within 60 s")


class ByEntry(Scripted):
    """Gives replies by entry and number of threads; a list is given out in turn, its last one for ever."""

    def __init__(self, **replies: Reply | list[Reply]) -> None:
        super().__init__()
        self.of = {key: list(value) if isinstance(value, list) else [value] for key, value in replies.items()}
        self.asked: list[str] = []

    def reply(self, argument: Json) -> Reply:
        many = argument["threads"] != 1
        self.asked.append(argument["entry"] + ("_many" if many else ""))
        replies = self.of.get(self.asked[-1], self.of[argument["entry"]])
        return replies.pop(0) if len(replies) > 1 else replies[0]


def test_both_entries_are_tried_and_the_faster_is_kept() -> None:
    pool = ByEntry(direct=fails(ERROR, seconds=0.5), compile=fails(ERROR, seconds=2.0))
    found = replay(pool, CASE, ERROR, runs=3)
    assert pool.asked == ["direct", "compile", "direct", "direct"]  # twice: the first run of a worker is cold
    assert (found.reproduced, found.entry, found.rate, found.timeout) == (True, "direct", 1.0, 10.0)
    assert found.entries == {"direct": Shown(3, 3, 0.5), "compile": Shown(1, 1, 2.0)}
    assert found.target.allowed == (signature(ERROR),)


def test_a_failure_that_shows_through_compile_only() -> None:
    pool = ByEntry(direct=passes(), compile=fails(ERROR, seconds=4.0))
    found = replay(pool, CASE, ERROR, runs=2)
    assert (found.entry, found.timeout) == ("compile", 20.0)
    assert pool.asked == ["direct", "compile", "compile"]


def test_the_timeout_is_capped() -> None:
    assert replay(ByEntry(direct=fails(ERROR, seconds=30.0), compile=passes()), CASE, ERROR, limit=60).timeout == 60


def test_a_capture_that_passes_is_not_reproduced_and_says_so() -> None:
    found = replay(ByEntry(direct=passes(), compile=passes()), CASE, ERROR, runs=3)
    assert not found.reproduced
    assert found.entries == {"direct": Shown(3, 0, 1.0), "compile": Shown(3, 0, 1.0)}
    assert found.reason == (
        "captured: RuntimeError: cannot lower relu\ndirect, 3 times: passes\ncompile, 3 times: passes"
    )


def test_a_capture_that_fails_differently_is_not_reproduced_and_says_how() -> None:
    other = replace(ERROR, message="cannot lower sin")
    found = replay(ByEntry(direct=fails(other), compile=fails(other)), CASE, ERROR, runs=1)
    assert not found.reproduced
    assert "direct, once: RuntimeError: cannot lower sin (another message)" in found.reason
    assert replay(ByEntry(direct=fails(other), compile=fails(other)), CASE, ERROR, match=Match.ORIGIN).reproduced
    assert replay(ByEntry(direct=fails(other), compile=passes()), CASE, ERROR, error_regex="lower sin").reproduced


def test_a_failure_that_comes_and_goes_has_a_rate_and_votes() -> None:
    pool = ByEntry(
        direct=[passes(), passes(), fails(ERROR), passes(), fails(ERROR), passes(), passes(), fails(ERROR)],
        compile=passes(),
    )
    found = replay(pool, CASE, ERROR, runs=3)
    assert found.reproduced
    assert found.entry == "direct"
    assert found.rate == pytest.approx(4 / 9)
    assert found.oracle(pool).votes == Votes.for_rate(4 / 9)


def test_more_threads_are_tried_where_one_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    pool = ByEntry(direct=passes(), compile=passes(), direct_many=fails(ERROR), compile_many=fails(ERROR, seconds=9))
    found = replay(pool, replace(CASE, context={}), ERROR, runs=2)
    assert (found.reproduced, found.threads, found.entry) == (True, 8, "direct")
    assert found.oracle(pool).threads == 8
    assert not replay(pool, CASE, ERROR, runs=2).reproduced


def test_the_allowed_signatures_are_all_that_count_as_the_capture() -> None:
    one, two = fails(ERROR, stderr="error: one\n"), fails(ERROR, stderr="error: two\n")
    found = replay(ByEntry(direct=[one, two, one], compile=two), CASE, ERROR)
    assert [s.diagnostics for s in found.target.allowed] == ["error: one", "error: two"]
    assert [f.diagnostics for f in found.failures] == ["error: one\n", "error: two\n"]


def test_our_own_trouble_is_retried() -> None:
    pool = ByEntry(direct=[Reply(Ended.INFRA, error="x"), fails(ERROR)], compile=passes())
    assert replay(pool, CASE, ERROR, runs=1).rate == 1.0


def test_a_hang_is_given_five_times_what_a_healthy_graph_takes() -> None:
    hang = Reply(Ended.TIMEOUT, "compile", seconds=30)
    pool = ByEntry(direct=[passes(seconds=6.0), hang], compile=hang)
    found = replay(pool, CASE, HANG, runs=2, limit=60)
    assert pool.timeouts == [60, 30, 30, 30]
    assert (found.reproduced, found.timeout, found.healthy) == (True, 30.0, 6.0)
    pool = ByEntry(direct=[passes(seconds=20.0), hang], compile=hang)
    assert replay(pool, CASE, HANG, runs=1, limit=60).timeout == 60
    pool = ByEntry(direct=[passes(seconds=0.1), hang], compile=hang)
    assert replay(pool, CASE, HANG, runs=1, limit=60).timeout == 10


def test_smaller_candidates_of_a_hang_get_less_time() -> None:
    node = Node("n", "call_function", {"fn": "torch.relu"})
    sizes = [replace(CASE, graph=Graph((node,) * n)) for n in (1, 25, 50, 1000)]
    oracle = Oracle(ByEntry(), FailureTarget(()), timeout=60, healthy=4.0)
    assert [oracle.timeout_of(case) for case in sizes] == [pytest.approx(20.8), 40.0, 60.0, 60]
    assert Oracle(ByEntry(), FailureTarget(()), timeout=60).timeout_of(sizes[0]) == 60


def test_what_a_capture_does_not_know_is_not_compared() -> None:
    seen = replace(ERROR, diagnostics="error: diagnosis")
    assert Likeness(ERROR).difference(seen) is None
    assert Likeness(seen).difference(ERROR) == "diagnostics"
    crash = Failure(FailureKind.CRASH, Phase.FORWARD, signal=8)
    placed = replace(crash, frames=(Frame("be.py", "run"),))
    assert Likeness(crash).difference(placed) is None
    assert Likeness(placed).difference(replace(crash, frames=(Frame("be.py", "other"),))) == "origin"
    assert Likeness(ERROR).difference(replace(ERROR, frames=())) == "origin"


def test_the_faster_entry() -> None:
    assert fastest({"direct": Shown(1, 1, 1.1), "compile": Shown(1, 1, 1.0)}) == "direct"
    assert fastest({"direct": Shown(1, 1, 2.0), "compile": Shown(1, 1, 1.0)}) == "compile"
    assert fastest({"direct": Shown(2, 1, 0.1), "compile": Shown(2, 2, 1.0)}) == "compile"
    assert fastest({"compile": Shown(1, 1, 1.0)}) == "compile"


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(spec("healthy").to_json(), memory=1536 << 20) as pool:
        yield pool


def captured(pool: Pool, backend: str, function: Callable[..., object] = relu) -> Case:
    case, blobs = capture(function, (torch.ones(4),), spec(backend))
    pool.scratch.put(blobs)
    return case


def test_a_healthy_graph_is_healthy(pool: Pool) -> None:
    found = replay(pool, healthy(captured(pool, "healthy")), ERROR, runs=1)
    assert (found.reproduced, found.rate) == (False, 0.0)


@pytest.mark.parametrize(
    ("backend", "failure"),
    [
        ("segfaults", Failure(FailureKind.CRASH, Phase.COMPILE, signal=11)),
        ("aborts_at_run", Failure(FailureKind.CRASH, Phase.FORWARD, signal=8)),
        ("generic", Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "compilation failed",
                            frames=(Frame("faulty_backends.py", "generic"),))),
        ("allocates", Failure(FailureKind.OUT_OF_MEMORY, Phase.COMPILE)),
    ],
)  # fmt: skip
def test_from_capture_to_verdicts(pool: Pool, backend: str, failure: Failure) -> None:
    case = captured(pool, backend)
    found = replay(pool, case, failure, runs=2)
    assert (found.reproduced, found.rate) == (True, 1.0)
    oracle = found.oracle(pool)
    assert oracle.ask(case).same
    assert oracle.ask(case, fresh=True).same
    assert oracle.ask(healthy(case)).same
    harmless = captured(pool, backend, lambda x: x * 2)
    assert oracle.ask(harmless).outcome is Outcome.PASS


def test_a_slip_is_another_bug(pool: Pool) -> None:
    failure = Failure(
        FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "compilation failed",
        frames=(Frame("faulty_backends.py", "generic"),),
    )  # fmt: skip
    oracle = replay(pool, captured(pool, "generic"), failure, runs=1).oracle(pool)
    verdict = oracle.ask(captured(pool, "generic", lambda x: torch.sin(x * 2)))
    assert verdict.outcome is Outcome.OTHER
    assert verdict.signature is not None
    assert verdict.signature.diagnostics.endswith("'torch.aten.sin'")


def test_a_real_hang_is_replayed_within_its_time(pool: Pool) -> None:
    case = captured(pool, "hangs")
    found = replay(pool, case, HANG, runs=1, limit=3.0)
    assert (found.reproduced, found.timeout) == (True, 3.0)
    assert found.oracle(pool).ask(captured(pool, "hangs", torch.cos)).outcome is Outcome.PASS
    assert signature(found.failures[0]) == Signature("hang", "compile")


def test_a_flaky_backend_is_voted_on(pool: Pool) -> None:
    failure = Failure(
        FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "now and then",
        frames=(Frame("faulty_backends.py", "every_other"),),
    )  # fmt: skip
    case = captured(pool, "every_other")
    found = replay(pool, case, failure, runs=3)
    assert found.reproduced
    assert 0 < found.rate < 1
    assert math.isclose(found.rate, 0.5, abs_tol=0.2)
    assert found.oracle(pool).ask(case).same
    assert found.oracle(pool).ask(captured(pool, "every_other", torch.cos)).outcome is Outcome.PASS
