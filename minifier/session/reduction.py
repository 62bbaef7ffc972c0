"""A reduction: run the shrinker, and go back when steps turn out to be flaky or false.

A worker that has answered many queries may answer differently than a new one does, because a backend keeps state.
So the first stage and each later pass that changed the case are *confirmed* by an unused worker before the search
goes beyond the next step. If the two disagree, the step is undone and all workers are replaced.

The shrinker is a function of the verdicts (note 3). So when steps turn out to be flaky
(`minifier.oracle.flakiness`) or are not confirmed, their verdicts are corrected and the case is reduced again.
Verdicts up to the last good step are known, so the first new query is the one after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ...store.document.case import Case
from ...store.failure import Failure, FailureKind
from ..candidate.trace import Trace
from ..oracle import tasks
from ..oracle.flakiness import Flakiness, VotingOracle
from ..oracle.hang_margin import HangMargin
from ..oracle.oracle import Votes
from ..oracle.replay import LIMIT
from ..oracle.scheduler import FRESH, BudgetSpent, QueryScheduler
from ..oracle.verdict import Outcome, Verdict
from ..passes import PASSES, Pass, Stage
from ..reducer.history import UNCONFIRMED
from ..reducer.shrinker import Progress, ReductionResult, Shrinker
from ..sandbox.pool import Ended
from .script_oracle import ScriptOracle
from .services import Services
from .steps import StepLog
from .validation import Validation
from .verdict_log import VerdictLog

#: How often the reduction may go back. After that the last case that is not flaky is good enough.
ROUNDS = 5
#: How often a script must show the failure to be taken for one that always does.
SCRIPTS = Votes(4, 4)
#: The name of a step back.
BACK = "more reliable"
#: The name of queries that a script answers.
SCRIPT = "script"
#: The name of queries that an unused worker answers, and the vote of two more where it does not show the failure.
CONFIRM = "confirm"
OTHERS = Votes(1, 2)


@dataclass(frozen=True, slots=True)
class Search:
    """The start of a reduction and what is known about it.

    * ``start`` fails with ``failures`` in a share of ``rate`` of its runs. ``trace`` has its values.
    * ``timeout`` is the limit of one query, in seconds. ``timeout_factor`` is the one of `stages.Replayed`.
    * ``began`` is the time, in seconds of `time.monotonic`, at which the work on it began.
    * ``hints`` are groups of nodes to try first. ``blamed`` are nodes that certainly cause the failure.
    """

    start: Case
    trace: Trace
    failures: tuple[Failure, ...] = ()
    rate: float = 1.0
    timeout: float = LIMIT
    timeout_factor: float | None = None
    began: float = 0.0
    hints: tuple[tuple[str, ...], ...] = ()
    blamed: frozenset[str] = frozenset()
    passes: tuple[Pass, ...] = PASSES

    @property
    def hangs(self) -> bool:
        return any(failure.kind is FailureKind.HANG for failure in self.failures)


class _NotConfirmed(Exception):
    """An unused worker does not show the failure after the first ``steps`` steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


class Reduction:
    """A search for the smallest case, which may go back.

    ``oracle`` answers its queries through ``scheduler``, which writes them to ``log``. ``small`` is called with the
    case when no pass can remove more, and with plainer cases after it. Its second argument is the seconds since the
    first of these calls.
    """

    def __init__(
        self,
        search: Search,
        services: Services,
        oracle: VotingOracle,
        scheduler: QueryScheduler,
        log: VerdictLog,
        small: Callable[[Case, float], None],
    ) -> None:
        self.search = search
        self.services = services
        self.scheduler = scheduler
        self.log = log
        self.steps = StepLog(services.index, log.reduction, search.start, services.pool.scratch, services.stepped)
        #: The steps of this round, and the keys of the steps that the round before has reported.
        self.path: list[tuple[Case, str]] = []
        self._told: list[str] = []
        self._rounds = 0
        self._small = small
        #: The time when nothing more could be removed, 0 before that.
        self._small_since = 0.0
        self._is_small = False
        #: How many steps of this round are confirmed, and how many are when the next answer is there.
        self._confirmed = 0
        self._waiting: int | None = None
        #: Whether unused workers disagreed about a step.
        self._doubted = False
        by_script = isinstance(oracle, ScriptOracle)
        # A script is run several times anyway, before it is shown, and a hang takes its time.
        once = by_script or search.hangs
        self._confirms = not once and search.rate >= 1.0
        self._flakiness = Flakiness(
            oracle, scheduler, rate=search.rate, replays=1 if once else services.options.replays,
            least=services.options.min_rate, confirm=SCRIPTS if by_script else None,
        )  # fmt: skip
        scheduler.switch_to(self.oracle)

    @property
    def oracle(self) -> VotingOracle:
        """The oracle of the queries, as strict as the flakiness of the failure needs."""
        return self._flakiness.oracle

    @property
    def margin(self) -> HangMargin:
        """The time limits of the result."""
        return HangMargin(
            self.oracle, self.scheduler, self.search.failures[0], timeout=self.search.timeout,
            timeout_factor=self.search.timeout_factor, tell=lambda case: self.tell(case.graph.count, "does it last?"),
        )  # fmt: skip

    def tell(self, nodes: int, stage: str) -> None:
        """Send the listener the progress."""
        self.services.answered(nodes, self.search.start.graph.count, stage, self.log.total)

    @property
    def seconds(self) -> float:
        """Seconds since the work on this reduction began."""
        return time.monotonic() - self.search.began

    def store_numbers(self, nodes: int, seconds: float, *, finished: bool) -> None:
        """Store how it went, with ``nodes`` left. A later run resumes it unless it is ``finished``."""
        self.services.index.reductions.finish(
            self.log.reduction, queries=self.log.total, nodes_before=self.search.start.graph.count, nodes_after=nodes,
            seconds=seconds, finished=finished,
        )  # fmt: skip

    def run(self) -> ReductionResult:
        """Reduce the case, without the steps that turn out to be flaky."""
        result = self._shrink()
        while self._undo_flaky(doubted=self._doubted):
            self._doubted = False
            result = self._shrink()
        since = self._flakiness.first_flaky(self.search.start, self.path)
        return result if since is None else ReductionResult(self._back(since), result.complete)

    def doubted(self) -> ReductionResult | None:
        """Return the result without the steps that confirmation votes call flaky, or None without such steps."""
        return self.run() if self._undo_flaky(doubted=True) else None

    def more_reliable(self, script: ScriptOracle) -> ReductionResult | None:
        """The last case whose script fails in each of several runs, None where it is the one that was found."""
        by_script = Flakiness(script, self.scheduler, confirm=SCRIPTS, name="script")
        if not self.path or by_script.confirms(*self.path[-1]):
            return None
        since = by_script.bisect(self.path)
        return ReductionResult(self._back(since)) if since else None

    def last_shown(self, script: ScriptOracle) -> int | None:
        """Return the number of the last step whose script shows the failure. The script of the final step does not.

        0 stands for the case at the start, None says that not even its script shows the failure. Uses bisection.
        """

        def shows(step: int) -> bool:
            case, key = self.path[step - 1] if step else (self.search.start, "start")
            try:
                return self.scheduler.ask_once(f"{key}/one script", SCRIPT, lambda: script.ask(case)).same
            except BudgetSpent:
                return False

        low, high = 0, len(self.path)
        if not high or not shows(0):
            return None
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (middle, high) if shows(middle) else (low, middle)
        return low

    def back_to(self, step: int) -> ReductionResult:
        """Make the case after so many steps the best one again, and return it."""
        return ReductionResult(self._back(step))

    def keep(self, case: Case) -> None:
        """Make ``case``, an earlier best case, the best one again."""
        self.steps.add(case, self.scheduler.key(case), BACK, self.log.total)

    def study(self, case: Case) -> Trace | None:
        """The values and decompositions of the nodes of a smaller case; None if the worker fails."""
        prefix = f"{self.scheduler.key(case)[:12]}:"
        argument, limit = tasks.study_argument(case, prefix), self.search.timeout
        reply = self.services.pool.submit("study", argument, timeout=limit).result()
        return Trace.from_json(reply.result) if reply.ended is Ended.DONE else None

    def larger_cases(self, case: Case) -> list[tuple[int, Case]]:
        """The cases before ``case``, with the numbers of their steps, the last one first."""
        numbered = [(self.steps.numbers.get(key, 0), step) for step, key in self.path]
        return [(number, step) for number, step in reversed(numbered) if number and step is not case]

    def _shrink(self) -> ReductionResult:
        """Run the shrinker. Run it again where an unused worker did not confirm a step, or lucky answers misled it."""
        while True:
            try:
                result = self._shrink_once()
                self._await_confirmation()
            except _NotConfirmed as error:
                self.scheduler.withdraw()
                self._undo_false(error.steps)
                continue
            if result is not None:
                return result

    def _shrink_once(self) -> ReductionResult | None:
        """Run the shrinker once. Return None where lucky answers misled it."""
        undone = False

        def proceed() -> bool:
            # A wrong SAME in the search would make every canonicalization pass vote without success.
            nonlocal undone
            undone = self.oracle.votes.runs > 1 and self._undo_flaky()
            if not undone:
                self._small_now(self.path[-1][0] if self.path else self.search.start)
            return not undone

        self.path, self._is_small = [], False
        self._confirmed, self._waiting = 0, None
        shrinker = Shrinker(
            self.scheduler,
            self.services.pool.scratch,
            passes=self.search.passes,
            study=self.study,
            validator=Validation(self.services.pool, self.search.timeout),
            strict=self.services.options.strict,
            hints=self.search.hints,
            blamed=self.search.blamed,
            progress=self._progress,
            accepted=self._accepted,
            other=self.services.others.add,
            settled=self._settled,
            proceed=proceed,
        )
        result = shrinker.run(self.search.start, self.search.trace)
        for name, problems in result.problems.items():
            for problem in problems:
                if self.log.problem(name, problem):
                    self.services.note(f"the pass {name} failed, and the reduction went on: {problem}")
        return None if undone else result

    def _undo_flaky(self, *, doubted: bool = False) -> bool:
        """Mark the verdicts of flaky steps as flaky and go back before them. True if there were any."""
        if self._rounds >= ROUNDS:
            return False
        since = self._flakiness.first_flaky(self.search.start, self.path, doubted=doubted)
        if since is None:
            return False
        self._rounds += 1
        step = self._pass_of(since)
        self.services.note(f"since {step} it fails less often: the reduction continues without that step")
        self._undo(since, "shows less often than the case before")
        self._flakiness.use_stricter_votes()
        self.scheduler.switch_to(self.oracle)
        return True

    def _settled(self, stage: Stage) -> None:
        """Begin to confirm the best case."""
        if stage is Stage.REMOVE and self.path:
            self._small_now(self.path[-1][0])
        if self._confirms and self.path and self.oracle.votes.runs == 1:
            self._await_confirmation()
            self._waiting = len(self.path)
            self.scheduler.begin_to_confirm(self.path[-1][0], CONFIRM)

    def _await_confirmation(self) -> None:
        """Wait until an unused worker has answered, if one was asked. Raises `_NotConfirmed`."""
        steps, self._waiting = self._waiting, None
        if steps is None:
            return
        if not self._is_confirmed(steps):
            raise _NotConfirmed(steps)
        self._confirmed = steps

    def _is_confirmed(self, steps: int) -> bool:
        """Return whether unused workers show the failure after so many steps. True where the budget is spent.

        If the first one does not and another one does, the failure comes and goes, which is looked into at the end.
        """
        case, key = self.path[steps - 1]
        try:
            verdict = self.scheduler.confirm(case, CONFIRM)
            if verdict.same or verdict.outcome in (Outcome.INVALID, Outcome.INFRA):  # these say nothing of it
                return True
            again = self.scheduler.ask_once(
                f"{key}{FRESH}/again", CONFIRM, lambda: self.oracle.ask(case, fresh=True, votes=OTHERS)
            )
        except BudgetSpent:
            return True
        self._doubted |= again.same
        return again.same

    def _undo_false(self, steps: int) -> None:
        """Go back to the last step that an unused worker confirms, of ``steps`` of which the last is not confirmed."""
        low, high = self._confirmed, steps - 1
        while low < high:
            middle = (low + high) // 2
            if self._is_confirmed(middle + 1):
                low = middle + 1
            else:
                high = middle
        self.services.note(
            f"after {self._pass_of(low)} a worker that has answered other queries shows the failure and a new one does "
            "not: the workers are replaced, and the reduction continues without that step"
        )
        self.services.pool.replace_workers()
        self._undo(low, UNCONFIRMED)

    def _pass_of(self, step: int) -> str:
        return self.log.passes.get(self.path[step][1], "a step")

    def _undo(self, since: int, why: str) -> None:
        """Correct the verdicts of the step ``since`` and of all later ones, and go back before it."""
        for _, key in self.path[since:]:
            self.scheduler.correct(key, Verdict(Outcome.FLAKY, detail=why))
        self._back(since)

    def _back(self, since: int) -> Case:
        """The case before the step ``since``, which is the best again."""
        case = self.path[since - 1][0] if since else self.search.start
        self.keep(case)
        self._told = [key for _, key in self.path[:since]]
        return case

    def _accepted(self, case: Case, key: str) -> None:
        self._await_confirmation()
        told = len(self.path) < len(self._told) and self._told[len(self.path)] == key
        self.path.append((case, key))
        if not told:
            self._told = []
            self.steps.add(case, key, self.log.passes.get(key, ""), self.log.total)

    def _progress(self, progress: Progress) -> None:
        if self._is_small and self.path:
            self._small_now(self.path[max(self._confirmed, 1) - 1][0])
        self.tell(progress.nodes, progress.pass_name)

    def _small_now(self, case: Case) -> None:
        """Report ``case``, of which no pass can remove more."""
        self._is_small = True
        now = self.scheduler.clock()
        self._small_since = self._small_since or now
        self._small(case, now - self._small_since)
