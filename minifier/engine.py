"""The reduction engine: runs the passes over a case, asks the oracle, keeps the best.

The engine is a deterministic function of the verdicts. Only SAME replaces the best case; every candidate has a key
and is asked about at most once; what a former run was told can be given as ``verdicts``, so that resuming is running
again. With several workers the engine asks ahead: it replays the running search with assumed answers to see which
candidates may be wanted next. That changes the time a reduction takes and never its result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Protocol

from ..store.case import Case
from .identity import Keys
from .options import PassFailed
from .order import Sizes
from .passes import PASSES, Pass, Proposal
from .question import Question
from .subject import Subject
from .trace import Trace
from .verdict import Outcome, Verdict

#: With this many nodes a coarse pass that has run has nothing more to do.
SMALL = 16


class Oracle(Protocol):
    """Says whether a candidate still fails in the same way."""

    def ask(self, case: Case) -> Verdict: ...


class AsyncOracle(Oracle, Protocol):
    """An oracle that can be asked ahead; needed for more than one job."""

    def submit(self, case: Case) -> Future[Verdict]: ...


class Log(Protocol):
    """A write-ahead record of what was asked and answered."""

    def asked(self, key: str, pass_name: str) -> None: ...

    def answered(self, key: str, verdict: Verdict) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a reduction stands. ``nodes`` are compute nodes, ``seconds`` wall time."""

    nodes: int
    start_nodes: int
    inputs: int
    queries: int
    pass_name: str
    seconds: float


@dataclass(slots=True)
class PassStats:
    """What one pass cost and brought. ``repeated`` questions needed no asking, those ``unchanged`` changed nothing, and
    ``invalid`` candidates did not run in eager. ``problems`` are errors of the pass itself: what it raised.
    """

    queries: int = 0
    repeated: int = 0
    accepted: int = 0
    nodes_removed: int = 0
    seconds: float = 0.0
    unchanged: int = 0
    invalid: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Result:
    """The smallest case found. ``complete`` is False where the budget ended the reduction; ``reason`` says why."""

    case: Case
    trace: Trace
    queries: int
    seconds: float
    complete: bool
    reason: str = ""
    stats: Mapping[str, PassStats] = field(default_factory=dict)


class BudgetSpent(Exception):
    """The reduction may not go on; what it found stands."""


class Engine:
    """One reduction. ``accepted(case, key)`` is called with every new best case, ``other(case, verdict)`` with every
    candidate that failed differently, ``progress`` after every question.

    ``hints`` are groups of nodes to try first, see `fxminify.minifier.guidance`.
    ``max_queries`` counts questions put to the oracle, ``seconds`` wall time of `run`. ``jobs > 1`` needs an oracle
    with ``submit``. An exception from the oracle or a callback ends `run`; `best` is valid at any time.

    ``study(case, key)`` records the values of a case anew, before late passes look at it; None where it cannot.
    ``confirm(case, key)`` is asked about the result: where it says no, the reduction is done again without the steps
    that it does not confirm.
    A pass that raises is noted in its statistics and left out from there on; ``strict`` raises `PassFailed`.
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        jobs: int = 1,
        max_queries: int | None = None,
        seconds: float | None = None,
        verdicts: Mapping[str, Verdict] | None = None,
        log: Log | None = None,
        progress: Callable[[Progress], None] | None = None,
        accepted: Callable[[Case, str], None] | None = None,
        other: Callable[[Case, Verdict], None] | None = None,
        passes: Sequence[Pass] = PASSES,
        study: Callable[[Case, str], Trace | None] | None = None,
        confirm: Callable[[Case, str], bool] | None = None,
        strict: bool = False,
        hints: tuple[tuple[str, ...], ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._oracle = oracle
        self._submit: Callable[[Case], Future[Verdict]] | None = getattr(oracle, "submit", None)
        self._jobs = jobs if self._submit is not None else 1
        self._max_queries = max_queries
        self._seconds = seconds
        self._known = {k: v for k, v in (verdicts or {}).items() if v.outcome is not Outcome.INFRA}
        self._log = log
        self._progress = progress
        self._accepted = accepted
        self._other = other
        self._passes = passes
        self._study = study
        self._confirm = confirm
        self._strict = strict
        self._hints = hints
        self._clock = clock
        self._keys = Keys()
        self._sizes = Sizes()
        self._studied = ""
        self._flying: dict[str, tuple[Case, Future[Verdict]]] = {}
        self._coarse: dict[str, int] = {}
        self._parked: set[str] = set()
        self._pass = ""
        self.queries = 0
        self.stats = {p.name: PassStats() for p in passes}

    @property
    def best(self) -> Case:
        """The smallest failing case so far."""
        return self._subject.case

    def run(self, case: Case, trace: Trace) -> Result:
        """Reduce ``case``, which is known to fail; ``trace`` was recorded on it."""
        self._started = self._clock()
        self._again(case, trace)
        self._start_nodes = self._best_size[0]
        reason = ""
        try:
            while True:
                while self._round():
                    pass
                if self._confirmed():
                    break
                self._again(case, trace)
        except BudgetSpent as exc:
            reason = str(exc)
        finally:
            self._recall()
        seconds = self._clock() - self._started
        return Result(self.best, self._trace, self.queries, seconds, not reason, reason, self.stats)

    def _again(self, case: Case, trace: Trace) -> None:
        """Begin with ``case``, knowing what is known."""
        self._trace, self._studied = trace, ""
        self._subject = Subject(case, trace, self._hints)
        self._best_key, self._best_size = self._keys.key(case), self._sizes.size(case)
        self._path: list[tuple[Case, str]] = []
        self._coarse.clear()
        self._parked.clear()

    def _round(self) -> bool:
        """Every pass once that is not parked, late ones only if no other did anything. True if there is more to do.

        A pass whose questions brought nothing is parked until nothing else makes the case smaller.
        """
        before, all_of_them = self._best_key, not self._parked
        for late in (False, True):
            passes = [p for p in self._passes if p.late is late and p.name not in self._parked]
            if late and passes and all_of_them:
                self._look()
            for p in passes:
                if all_of_them or not late:
                    self._run_pass(p)
            if self._best_key != before:
                return True
        self._parked.clear()
        return not all_of_them

    def _confirmed(self) -> bool:
        """Whether the best case is still said to fail. If not, the steps since one that is are taken for flaky."""
        if self._confirm is None or not self._path or self._confirm(*self._path[-1]):
            return True
        low, high = 0, len(self._path) - 1
        while low < high:
            middle = (low + high) // 2
            if self._confirm(*self._path[middle]):
                low = middle + 1
            else:
                high = middle
        for case, key in self._path[low:]:
            self._learn(key, case, Verdict(Outcome.FLAKY, detail="failed once, and not when asked again"))
        return False

    def _look(self) -> None:
        """Have the best case studied, once."""
        if self._study is None or self._studied == self._best_key:
            return
        trace = self._study(self.best, self._best_key)
        self._studied = self._best_key
        if trace is not None:
            self._trace = trace
            self._subject = Subject(self.best, trace, self._hints)

    def _run_pass(self, p: Pass) -> None:
        """All steps of a pass, once."""
        stats, started, nodes, step = self.stats[p.name], self._clock(), self._best_size[0], 0
        if p.coarse and p.name in self._coarse and (nodes <= SMALL or nodes * 4 > self._coarse[p.name] * 3):
            return
        self._pass = p.name
        asked, key = stats.queries, self._best_key
        try:
            while (proposal := self._proposal(p, step)) is not None:
                found = bool(proposal.patches) and self._search(proposal)
                step += not (found and proposal.again)
        finally:
            stats.seconds += self._clock() - started
            stats.nodes_removed += nodes - self._best_size[0]
        self._coarse[p.name] = self._best_size[0]
        if stats.queries > asked and self._best_key == key:
            self._parked.add(p.name)

    def _proposal(self, p: Pass, step: int) -> Proposal | None:
        if self.stats[p.name].problems:
            return None
        try:
            return p.propose(self._subject, step)
        except Exception as exc:  # noqa: BLE001  an error in one pass is no reason to lose what the others can do
            self._problem(exc)
            return None

    def _problem(self, exc: Exception) -> None:
        """Note that the running pass raised, or made a patch that cannot be applied."""
        text = f"{type(exc).__name__}: {exc}".strip()
        if self._strict:
            raise PassFailed(f"pass {self._pass}: {text}") from exc
        if text not in (problems := self.stats[self._pass].problems):
            problems.append(text)

    def _search(self, proposal: Proposal) -> bool:
        """Find which patches can be applied together, applying them as they are found. True if any was."""
        before = self._best_key
        question = Question(self._subject, proposal, self._problem)
        while question.kept is not None:
            case = question.candidate(question.kept)
            same = self._check(case, question)
            if same and case is not None and (not question.grows or self._sizes.size(case) < self._best_size):
                self._accept(case)
            question.answer(same)
        return self._best_key != before

    def _check(self, case: Case | None, question: Question) -> bool:
        """Whether ``case`` shows the failure."""
        known = self._recalled(case, question)
        if case is None or known is not None:
            self.stats[self._pass].repeated += case is not None
            self.stats[self._pass].unchanged += case is not None and self._keys.key(case) == self._best_key
            return bool(known)
        key = self._keys.key(case)
        if self._jobs == 1:
            self._begin(key)
            self._learn(key, case, self._oracle.ask(case))
        else:
            while key not in self._known:
                self._ahead(question)
                self._collect()
        self._report()
        return self._known[key].same

    def _recalled(self, case: Case | None, question: Question) -> bool | None:
        """The answer where there is no need to ask: no candidate, the best case itself, not smaller, asked before."""
        if case is None:
            return False
        key = self._keys.key(case)
        if key == self._best_key:
            return True
        if not question.grows and self._sizes.size(case) >= self._best_size:
            return False
        return self._known[key].same if key in self._known else None

    def _begin(self, key: str) -> None:
        """Count a question and write it down before it is asked."""
        if self._max_queries is not None and self.queries >= self._max_queries:
            raise BudgetSpent(f"{self._max_queries} queries")
        if self._seconds is not None and self._clock() - self._started >= self._seconds:
            raise BudgetSpent(f"{self._seconds:g} seconds")
        self.queries += 1
        self.stats[self._pass].queries += 1
        if self._log is not None:
            self._log.asked(key, self._pass)

    def _learn(self, key: str, case: Case, verdict: Verdict) -> None:
        self._known[key] = verdict
        self.stats[self._pass].invalid += verdict.outcome is Outcome.INVALID
        if self._log is not None:
            self._log.answered(key, verdict)
        if verdict.outcome is Outcome.OTHER and self._other is not None:
            self._other(case, verdict)

    def _accept(self, case: Case) -> None:
        key = self._keys.key(case)
        if key == self._best_key:
            return
        if len(case.graph.compute) > len(self._subject.compute):
            self._coarse.clear()  # a body has become part of the graph: there is something to take big steps in again
        self._subject = Subject(case, self._trace, self._hints)
        self._best_key, self._best_size = key, self._sizes.size(case)
        self.stats[self._pass].accepted += 1
        self._path.append((case, key))
        if self._accepted is not None:
            self._accepted(case, key)

    def _report(self) -> None:
        if self._progress is not None:
            nodes, inputs = self._best_size[0], self._best_size[3]
            seconds = self._clock() - self._started
            self._progress(Progress(nodes, self._start_nodes, inputs, self.queries, self._pass, seconds))

    # Asking ahead

    def _ahead(self, question: Question) -> None:
        """Have the question that waits answered, and use idle workers for those that may follow it."""
        assert self._submit is not None
        queue: deque[tuple[bool, ...]] = deque([()])
        looked = 0
        while queue and looked < 8 * self._jobs:
            assumed = queue.popleft()
            looked += 1
            kept = question.after(assumed)
            if kept is None:
                continue
            case = question.candidate(kept)
            known = self._recalled(case, question)
            if case is None or known is not None:
                queue.appendleft((*assumed, bool(known)))
                continue
            key = self._keys.key(case)
            if key not in self._flying:
                # The question that waits is asked in any case, the others only where a worker is free.
                if assumed and len(self._flying) >= self._jobs:
                    return
                self._begin(key)
                self._flying[key] = (case, self._submit(case))
            queue.extend(((*assumed, False), (*assumed, True)))

    def _collect(self) -> None:
        """Wait for at least one answer, and note all that are there."""
        done, _ = wait([future for _, future in self._flying.values()], return_when=FIRST_COMPLETED)
        for key, (case, future) in list(self._flying.items()):
            if future in done:
                del self._flying[key]
                self._learn(key, case, future.result())

    def _recall(self) -> None:
        """Nobody waits for these any more."""
        for _, future in self._flying.values():
            future.cancel()
        self._flying.clear()
