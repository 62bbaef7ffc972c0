"""The oracle: runs a candidate in a worker and decides whether it shows the failure under reduction.

* SAME means that the `FailureMatcher`, which the replays of the capture made, finds its failure in what the run showed.
* An error of our own (INFRA) is retried once in a fresh worker and never counts as a failure. A candidate that fails in
  eager is INVALID. One that gives no answer in time is TIMEOUT, unless the capture is a hang.
* A flaky failure is put to a vote: a candidate is run up to ``n`` times and must fail ``k`` times. The result of a
  reduction is voted on again (`minifier.oracle.flakiness`).

Nothing here imports torch. Thread-safe; `submit` takes no thread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace

from ...store.document.case import Blobs, Case, Json
from ...store.failure import DETACHED, FailureKind
from ...store.matching import FailureMatcher
from ...store.signature import signature
from ..sandbox.launcher import SandboxError
from ..sandbox.pool import Reply, Workers
from ..sandbox.stacks import StackSampling, is_doubtful
from . import tasks
from .observation import Observation, Seen, of_reply
from .verdict import UNEQUAL, Outcome, Verdict

#: The accepted chance to miss a failure that shows at its recorded rate, and the most runs of a vote.
MISS = 0.01
MOST_VOTES = 20
#: The fewest runs that tell one rate from another.
FEWEST_VOTES = 5
#: The shortest time limit of a run, in seconds, and of a run that is expected to hang: that takes all of it, often. The
#: time in which a run waits for a processor does not count.
SHORTEST = 10.0
SHORTEST_HANG = 5.0
#: A hang takes this many times as long as a healthy compilation of as many nodes: one of 25 takes twice as long as
#: one of one node (Inductor: 0.5 s for 3 nodes, 7.5 s for 317).
HEALTHY_TIMES = 5.0
NODES_TWICE = 25
#: The script of a hang waits `ALARM_TIMES` the time limit of its case, so that a healthy compilation ends in time on a
#: slower machine. The case must take `LASTS_TIMES` as long as that, so that it still hangs on a faster machine.
ALARM_TIMES = 1.5
LASTS_TIMES = 3.0


@dataclass(frozen=True, slots=True)
class Votes:
    """SAME needs ``needed`` sightings in at most ``runs`` runs. With ``whole`` all runs are made and counted."""

    needed: int = 1
    runs: int = 1
    whole: bool = False

    @classmethod
    def for_rate(cls, rate: float, least: float | None = None) -> Votes:
        """Enough runs that a failure showing at ``rate`` is missed once in a hundred candidates.

        A candidate may show it half as often, or at ``least`` at that rate if one is given.
        """
        if rate >= 1.0:
            runs = 1
        else:
            runs = min(MOST_VOTES, max(2, math.ceil(math.log(MISS) / math.log(1.0 - max(rate, 0.05)))))
        if least is None:
            return cls(max(1, int(rate * runs / 2)), runs)
        runs = max(runs, FEWEST_VOTES)
        return cls(max(1, math.ceil(least * runs)), runs)


#: One run decides.
ONCE = Votes()


@dataclass(frozen=True, slots=True)
class LongerLimit:
    """A time limit of ``seconds`` for cases of more than ``nodes`` compute nodes: how long they take was not
    measured."""

    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Oracle:
    """Gives a `Verdict` about each candidate. ``timeout`` is in seconds per run; see `minifier.oracle.replay`.

    * ``entry``, ``threads``: how a worker runs a candidate (`minifier.oracle.tasks`). ``votes``: how often.
    * ``healthy``: for a hang, the number of seconds that a graph of one node takes, else 0. Smaller candidates get
      less time. ``timeout_factor`` multiplies these limits.
    * ``anchor``: a candidate that hangs at the anchor of the captured hang is ended before its time
      (`sandbox.stacks`). If it is empty, every hang takes all of its time.
    * ``longer``: the time limit of cases that are larger than what was replayed.
    """

    pool: Workers
    matcher: FailureMatcher
    timeout: float
    entry: str = "direct"
    votes: Votes = ONCE
    threads: int = tasks.OWN_THREADS
    healthy: float = 0.0
    anchor: str = ""
    longer: LongerLimit | None = None
    timeout_factor: float = 1.0

    def with_votes(self, votes: Votes) -> Oracle:
        """Return this oracle with other votes."""
        return replace(self, votes=votes)

    def in_full_time(self, factor: float) -> Oracle:
        """Return this oracle with ``factor`` times the limits. No hang is ended before its time."""
        return replace(self, timeout_factor=factor, anchor="")

    def put(self, blobs: Blobs) -> None:
        """Make storages available to the workers. Call it for the storages of a candidate before its query."""
        self.pool.scratch.put(blobs)

    def ask(self, case: Case, *, fresh: bool = False, votes: Votes | None = None) -> Verdict:
        """The verdict on ``case``. ``fresh`` runs it in a new worker. ``votes`` replaces the usual votes."""
        future = self.submit(case, fresh=fresh, votes=votes)
        try:
            return future.result()
        except BaseException:  # Ctrl-C among them: do not leave the query running
            future.cancel()
            raise

    def submit(self, case: Case, *, fresh: bool = False, votes: Votes | None = None) -> Future[Verdict]:
        """`ask`, without waiting. Cancelling the future withdraws what has not started."""
        argument = tasks.observe_argument(case, self.entry, self.threads)
        query = _Query(self, argument, fresh, self.timeout_of(case), votes or self.votes)
        query.run(fresh)
        return query.future

    def timeout_of(self, case: Case) -> float:
        """Seconds that one run of ``case`` may take."""
        if self.longer is not None and case.graph.count > self.longer.nodes:
            return max(self.timeout, self.longer.seconds)
        if not self.healthy:
            return self.timeout
        return self.timeout_factor * min(self.timeout, hang_seconds(self.healthy, case.graph.count))

    def judge(self, observation: Observation) -> Verdict:
        """Turn an observation into a verdict."""
        if observation.seen is Seen.INFRA:
            return Verdict(Outcome.INFRA, detail=observation.detail)
        if observation.seen is Seen.INVALID:
            return Verdict(Outcome.INVALID, detail=observation.detail)
        failure = observation.failure
        if failure is None:
            return Verdict(Outcome.PASS, detail=observation.unequal and UNEQUAL + observation.unequal)
        if (same := self.matcher.find(failure)) is not None:
            return Verdict(Outcome.SAME, signature(same), same)
        if failure.detail.get(DETACHED):
            return Verdict(Outcome.INVALID, detail="cannot compare: the compiled outputs have no gradient")
        seen = signature(failure)
        outcome = {FailureKind.HANG: Outcome.TIMEOUT, FailureKind.CRASH: Outcome.CRASH}.get(failure.kind, Outcome.OTHER)
        return Verdict(outcome, seen, failure, detail=failure.headline())


class _Query:
    """Runs one candidate, retries and votes, driven by the callbacks of the pool's futures."""

    def __init__(self, oracle: Oracle, argument: Json, fresh: bool, timeout: float, votes: Votes) -> None:
        self.timeout = timeout
        self.votes = votes
        self.oracle = oracle
        self.argument = argument
        self.fresh = fresh
        self.future: Future[Verdict] = Future()
        self.verdicts: list[Verdict] = []
        self.seconds = 0.0
        self.retried = False
        self.sampling = StackSampling(oracle.anchor) if oracle.anchor else None

    def run(self, fresh: bool) -> None:
        try:
            inner = self.oracle.pool.submit(
                "observe", self.argument, timeout=self.timeout, fresh=fresh, sampling=self.sampling
            )
        except SandboxError as exc:
            self._fail(exc)
            return
        self.future.add_done_callback(lambda outer: inner.cancel() if outer.cancelled() else None)
        inner.add_done_callback(self._answered)

    def _answered(self, inner: Future[Reply]) -> None:
        if self.future.cancelled():
            return
        try:
            reply = inner.result()
            verdict = self.oracle.judge(of_reply(reply))
        except CancelledError:
            self.future.cancel()
            return
        except BaseException as exc:  # noqa: BLE001  passed on to the waiting thread
            self._fail(exc)
            return
        self.seconds += reply.seconds
        if is_doubtful(reply.stacks, hangs=verdict.same, passes=verdict.outcome is Outcome.PASS):
            self.sampling = None
            self.run(fresh=True)
            return
        if verdict.outcome is Outcome.INFRA and not self.retried:
            self.retried = True
            self.run(fresh=True)
            return
        self.verdicts.append(verdict)
        final = tally(self.verdicts, self.votes)
        if final is None:
            self.run(self.fresh)
        elif self.future.set_running_or_notify_cancel():
            self.future.set_result(replace(final, seconds=self.seconds))

    def _fail(self, exc: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(exc)


def hang_seconds(healthy: float, nodes: int) -> float:
    """Seconds after which a graph of ``nodes`` compute nodes counts as a hang, if one node takes ``healthy``."""
    return max(SHORTEST_HANG, HEALTHY_TIMES * healthy * (1 + nodes / NODES_TWICE))


def tally(verdicts: Sequence[Verdict], votes: Votes) -> Verdict | None:
    """The verdict of a vote. None while more runs are needed."""
    last = verdicts[-1]
    if last.outcome in (Outcome.INVALID, Outcome.INFRA):
        return last
    if votes.whole and len(verdicts) < votes.runs:
        return None
    same = [v for v in verdicts if v.same]
    counted = "" if votes.runs == 1 else f"{len(same)} of {len(verdicts)} runs"
    if len(same) >= votes.needed:
        return replace(same[0], detail=counted)
    if len(same) + votes.runs - len(verdicts) >= votes.needed:
        return None
    if same:
        return Verdict(Outcome.FLAKY, same[0].signature, same[0].failure, detail=counted)
    return next((v for v in verdicts if v.outcome is not Outcome.PASS), replace(last, detail=counted or last.detail))
