"""One reduction: runs the shrinker, and goes back where steps turn out to be flaky.

The shrinker is a function of the verdicts (note 3). So when steps turn out to be flaky (`minifier.oracle.flakiness`),
their verdicts are corrected and the case is reduced again. Verdicts up to the last good step are known, so the first
new query is the one after it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.document.case import Case
from ...store.failure import FailureKind
from ..candidate.trace import Trace
from ..oracle import tasks
from ..oracle.flakiness import Flakiness
from ..oracle.oracle import Oracle, Votes
from ..oracle.scheduler import QueryScheduler
from ..oracle.verdict import Outcome, Verdict
from ..passes import Pass
from ..reducer.shrinker import Progress, ReductionResult, Shrinker
from ..sandbox.pool import Ended
from .capture_session import CaptureSession
from .script_oracle import ScriptOracle
from .steps import StepLog
from .validation import Validation
from .verdict_log import VerdictLog

#: How often the reduction may go back. After that the last case that is not flaky is good enough.
ROUNDS = 5
#: How often a script must show the failure to be taken for one that always does.
SCRIPTS = Votes(4, 4)
#: The name of a step back.
BACK = "more reliable"
#: Tells how a reduction goes: compute nodes, and what is being done.
Tell = Callable[[int, str], None]


class Reduction:
    """The reduction of ``start``, whose values are in ``trace``. ``timeout`` is that of one query, in seconds.

    ``small`` is told the case of which nothing more can be removed, and each plainer one after it.
    """

    def __init__(
        self,
        session: CaptureSession,
        oracle: Oracle | ScriptOracle,
        scheduler: QueryScheduler,
        log: VerdictLog,
        start: Case,
        trace: Trace,
        hints: tuple[tuple[str, ...], ...],
        blamed: frozenset[str],
        timeout: float,
        tell: Tell,
        passes: tuple[Pass, ...],
        small: Callable[[Case], None],
    ) -> None:
        self.session = session
        self.oracle = oracle
        self.scheduler = scheduler
        self.log = log
        self.start = start
        self.trace = trace
        self.hints, self.blamed = hints, blamed
        self.timeout = timeout
        self.tell = tell
        self.passes = passes
        self.small = small
        self.steps = StepLog(session.index, log.reduction, start, session.pool.scratch, session.stepped)
        #: The steps of this round, and the keys of those that the round before has told of.
        self.path: list[tuple[Case, str]] = []
        self._told: list[str] = []
        self._rounds = 0
        self._is_small = False
        by_script = isinstance(oracle, ScriptOracle)
        # A script is run several times anyway, before it is shown, and a hang takes its time.
        once = by_script or any(failure.kind is FailureKind.HANG for failure in session.shown.failures)
        self.flakiness = Flakiness(
            oracle, scheduler, rate=session.shown.rate, replays=1 if once else session.options.replays,
            least=session.options.min_rate, confirm=SCRIPTS if by_script else None,
        )  # fmt: skip

    def run(self) -> ReductionResult:
        """Reduce the case, without the steps that turn out to be flaky."""
        result = self._shrink()
        while self._undo_flaky():
            result = self._shrink()
        since = self.flakiness.first_flaky(self.start, self.path)
        return result if since is None else ReductionResult(self._back(since), result.complete)

    def doubted(self) -> ReductionResult | None:
        """The result without the steps that confirmation votes call flaky; None if there are none."""
        return self.run() if self._undo_flaky(doubted=True) else None

    def more_reliable(self, script: ScriptOracle) -> ReductionResult | None:
        """The last case whose script fails in each of several runs, None where it is the one that was found."""
        by_script = Flakiness(script, self.scheduler, confirm=SCRIPTS, name="script")
        if not self.path or by_script.confirms(*self.path[-1]):
            return None
        since = by_script.bisect(self.path)
        return ReductionResult(self._back(since)) if since else None

    def keep(self, case: Case) -> None:
        """Make ``case``, an earlier best case, the best one again."""
        self.steps.add(case, self.scheduler.key(case), BACK, self.log.total)

    def study(self, case: Case) -> Trace | None:
        """The values and decompositions of the nodes of a smaller case; None if the worker fails."""
        prefix = f"{self.scheduler.key(case)[:12]}:"
        reply = self.session.pool.submit("study", tasks.study_argument(case, prefix), timeout=self.timeout).result()
        return Trace.from_json(reply.result) if reply.ended is Ended.DONE else None

    def larger_cases(self, case: Case) -> list[tuple[int, Case]]:
        """The cases before ``case``, with the numbers of their steps, the last one first."""
        numbered = [(self.steps.numbers.get(key, 0), step) for step, key in self.path]
        return [(number, step) for number, step in reversed(numbered) if number and step is not case]

    def _shrink(self) -> ReductionResult:
        """One run of the shrinker. Again where the failure comes and goes, and lucky answers misled it."""
        undone = False

        def proceed() -> bool:
            # A wrong SAME in the search would make every canonicalization pass vote in vain.
            nonlocal undone
            undone = self.oracle.votes.runs > 1 and self._undo_flaky()
            if not undone:
                self._is_small = True
                self.small(self.path[-1][0] if self.path else self.start)
            return not undone

        self.path, self._is_small = [], False
        shrinker = Shrinker(
            self.scheduler,
            self.session.pool.scratch,
            passes=self.passes,
            study=self.study,
            validator=Validation(self.session.pool, self.timeout),
            strict=self.session.options.strict,
            hints=self.hints,
            blamed=self.blamed,
            progress=self._progress,
            accepted=self._accepted,
            other=self.session.add_other_failure,
            proceed=proceed,
        )
        result = shrinker.run(self.start, self.trace)
        for name, problems in result.problems.items():
            for problem in problems:
                if self.log.problem(name, problem):
                    self.session.note(f"the pass {name} failed, and the reduction went on: {problem}")
        return self._shrink() if undone else result

    def _undo_flaky(self, *, doubted: bool = False) -> bool:
        """Mark the verdicts of flaky steps as flaky and go back before them. True if there were any."""
        if self._rounds >= ROUNDS:
            return False
        since = self.flakiness.first_flaky(self.start, self.path, doubted=doubted)
        if since is None:
            return False
        self._rounds += 1
        name = self.log.passes.get(self.path[since][1], "a step")
        self.session.note(f"since {name} it fails less often: the reduction continues without that step")
        for _, key in self.path[since:]:
            self.scheduler.correct(key, Verdict(Outcome.FLAKY, detail="shows less often than the case before"))
        self._back(since)
        self.flakiness.use_stricter_votes()
        return True

    def _back(self, since: int) -> Case:
        """The case before the step ``since``, which is the best again."""
        case = self.path[since - 1][0] if since else self.start
        self.keep(case)
        self._told = [key for _, key in self.path[:since]]
        return case

    def _accepted(self, case: Case, key: str) -> None:
        told = len(self.path) < len(self._told) and self._told[len(self.path)] == key
        self.path.append((case, key))
        if not told:
            self._told = []
            self.steps.add(case, key, self.log.passes.get(key, ""), self.log.total)
        if self._is_small:
            self.small(case)

    def _progress(self, progress: Progress) -> None:
        self.tell(progress.nodes, progress.pass_name)
