"""The way from a failing case to its plain minimum: the engine, the simplifications, and back where it went astray.

Both are functions of the verdicts (note 3). So when steps turn out to be flaky (`.steadiness`), their verdicts are
corrected and the reduction is done again: what was asked is known, and the first question that is new is the one behind
the last good step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...store.document.case import Case
from ...store.failure import FailureKind
from ..oracle import tasks
from ..oracle.flakiness import Steadiness
from ..oracle.oracle import Oracle, Votes
from ..oracle.script_oracle import ScriptOracle
from ..oracle.verdict import Outcome, Verdict
from ..passes import PASSES, REPLACEMENTS
from ..sandbox.pool import Ended
from ..session.job import CaptureSession
from ..session.options import PassFailed
from ..session.steps import StepLog
from ..session.verdict_log import VerdictLog
from ..tracing.trace import Trace
from .account import BudgetSpent, Progress
from .asking import Asking
from .engine import Engine
from .keys import Keys
from .simplify import Simplifying

#: How often the way may go back. Then the last case that is steady is good enough.
ROUNDS = 5
#: So often must a script show the failure that is taken for steady.
SCRIPTS = Votes(4, 4)
#: The name of a step back.
BACK = "steadier"
#: Tells how a reduction goes: compute nodes, and what is being done.
Tell = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """Where the way ended. ``complete`` is False where the budget ended it."""

    case: Case
    complete: bool


class Descent:
    """The reduction of ``start``, whose values are in ``trace``. ``timeout`` is that of one question, in seconds."""

    def __init__(
        self,
        job: CaptureSession,
        oracle: Oracle | ScriptOracle,
        log: VerdictLog,
        start: Case,
        trace: Trace,
        hints: tuple[tuple[str, ...], ...],
        blamed: frozenset[str],
        timeout: float,
        tell: Tell,
    ) -> None:
        self.of = job
        self.oracle = oracle
        self.log = log
        self.start = start
        self.trace = trace
        self.hints, self.blamed = hints, blamed
        self.timeout = timeout
        self.tell = tell
        self.keys = Keys()
        self.steps = StepLog(job.index, log.reduction, start, job.pool.scratch, job.stepped)
        #: The steps of this round, and the keys of those that the round before has told of.
        self.path: list[tuple[Case, str]] = []
        self._told: list[str] = []
        self._rounds = 0
        by_script = isinstance(oracle, ScriptOracle)
        # A script is run several times anyway, before it is shown, and a hang takes its time.
        once = by_script or any(failure.kind is FailureKind.HANG for failure in job.shown.failures)
        self.steadiness = Steadiness(
            oracle, log, rate=job.shown.rate, replays=1 if once else job.options.replays, least=job.options.min_rate,
            firmly=SCRIPTS if by_script else None, spent=job.spent,
        )  # fmt: skip

    def run(self) -> Found:
        """All the way down."""
        found = self._down()
        while self._undone():
            found = self._down()
        since = self.steadiness.since(self.start, self.path)
        return found if since is None else Found(self._back(since), found.complete)

    def doubted(self) -> Found | None:
        """What is found without the steps that firm votes call flaky; None where there are none."""
        return self.run() if self._undone(doubted=True) else None

    def steadier(self, script: ScriptOracle) -> Found | None:
        """The last case whose script fails in each of several runs, None where it is the one that was found."""
        by_script = Steadiness(script, self.log, firmly=SCRIPTS, name="script", spent=self.of.spent)
        if not self.path or by_script.holds(*self.path[-1]):
            return None
        since = by_script.first(self.path)
        return Found(self._back(since), True) if since else None

    def _down(self) -> Found:
        """Engine and simplifications, once."""
        self.path = []
        engine = Engine(
            self.oracle,
            jobs=self.of.options.jobs,
            max_queries=self.of.queries_left(),
            seconds=self.of.seconds_left(),
            verdicts=self.log.known,
            log=self.log,
            progress=self._progress,
            accepted=self._accepted,
            other=self._other,
            passes=(*PASSES, *REPLACEMENTS),
            study=self.study,
            strict=self.of.options.strict,
            hints=self.hints,
            blamed=self.blamed,
        )
        result = engine.run(self.start, self.trace)
        for name, stats in result.stats.items():
            for problem in stats.problems:
                self._note(name, problem)
        if not result.complete:
            return self._plain(result.case, stopped=True)
        # A failure that comes and goes: luck in the search would cost a vote for each simplification.
        if self.oracle.votes.runs > 1 and self._undone():
            return self._down()
        return self._plain(result.case, stopped=False)

    def _plain(self, case: Case, *, stopped: bool) -> Found:
        """The plainest form of ``case``, asked for with the log of this reduction."""
        asking = Asking(
            self.oracle, self.log, self.keys, jobs=self.of.options.jobs,
            may=lambda: not (stopped or self.of.spent()), told=self._answered,
        )  # fmt: skip
        going, best = Simplifying(case, self.of.pool.scratch, self._problem), case
        try:
            while going.asked is not None:
                candidate, name = going.asked
                same = asking.ask(candidate, name, lambda: going.later(asking.known)).same
                if same:
                    best = candidate
                    self._accepted(candidate, self.keys.key(candidate))
                going.answer(same)
            return Found(going.case, not stopped)
        except BudgetSpent:
            return Found(best, False)
        finally:
            asking.close()

    def _answered(self, case: Case, name: str, verdict: Verdict) -> None:
        self.tell(case.graph.count, name)

    def _problem(self, exc: Exception, name: str) -> None:
        """A simplification raised, or proposed what is no candidate."""
        text = f"{type(exc).__name__}: {exc}".strip()
        if self.of.options.strict:
            raise PassFailed(f"simplification {name}: {text}") from exc
        self._note(name, text)

    def _note(self, name: str, problem: str) -> None:
        """Say once, and write down, what was wrong with a pass or simplification."""
        if self.log.problem(name, problem):
            self.of.note(f"the pass {name} failed, and the reduction went on: {problem}")

    def _undone(self, *, doubted: bool = False) -> bool:
        """Whether there are flaky steps. If so, their verdicts say so from now on."""
        since = self.steadiness.since(self.start, self.path, doubted=doubted) if self._rounds < ROUNDS else None
        if since is None:
            return False
        self._rounds += 1
        name = self.log.passes.get(self.path[since][1], "a step")
        self.of.note(f"since {name} it fails less often: the reduction goes on without that")
        for _, key in self.path[since:]:
            self.log.answered(key, Verdict(Outcome.FLAKY, detail="shows less often than the case before"))
        self._back(since)
        self.steadiness.harden()
        return True

    def _back(self, since: int) -> Case:
        """The case before the step ``since``, which is the best again."""
        case = self.path[since - 1][0] if since else self.start
        self.keep(case)
        self._told = [key for _, key in self.path[:since]]
        return case

    def keep(self, case: Case) -> None:
        """Tell that ``case``, which was the best before, is so again."""
        self.steps.add(case, self.keys.key(case), BACK, self.of.queries + self.log.queries)

    def _accepted(self, case: Case, key: str) -> None:
        told = len(self.path) < len(self._told) and self._told[len(self.path)] == key
        self.path.append((case, key))
        if not told:
            self._told = []
            self.steps.add(case, key, self.log.passes.get(key, ""), self.of.queries + self.log.queries)

    def _other(self, case: Case, verdict: Verdict) -> None:
        if verdict.signature is None:
            return
        known = self.of.others.get(verdict.signature.digest)
        if known is None or case.graph.count < known[0].graph.count:
            self.of.others[verdict.signature.digest] = case, verdict

    def _progress(self, progress: Progress) -> None:
        self.tell(progress.nodes, progress.pass_name)

    def study(self, case: Case) -> Trace | None:
        """The values of a smaller case, and what its nodes consist of. A worker that fails at it is no great loss."""
        prefix = f"{self.keys.key(case)[:12]}:"
        reply = self.of.pool.submit("study", tasks.studying(case, prefix), timeout=self.timeout).result()
        return Trace.from_json(reply.result) if reply.ended is Ended.DONE else None
