"""The reduction engine: runs the passes over a case, asks the oracle, keeps the best.

The engine is a deterministic function of the verdicts. Only SAME replaces the best case; every candidate has a key
and is asked about at most once; what a former run was told can be given as ``verdicts``, so that resuming is running
again. With several workers the engine asks ahead: it replays the running search with assumed answers to see which
candidates may be wanted next. That changes the time a reduction takes and never its result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import count, islice
from typing import Protocol

from ...store.document.case import Case
from ..candidate.graph_view import GraphView
from ..candidate.lint import flaw
from ..candidate.order import SizeCache
from ..oracle.verdict import Outcome, Verdict
from ..passes import PASSES, Pass, Proposal
from ..session.options import PassFailed
from ..tracing.trace import Trace
from .account import BudgetSpent, PassStats, Progress, Result
from .keys import Keys
from .question import Question

#: With this many nodes a coarse pass that has run has nothing more to do.
SMALL = 16
#: The most steps of a pass, besides four for each node of the graph.
STEPS = 1000
#: What passes propose, by their names and steps, for a case that may be the best one next.
Proposed = dict[tuple[str, int], Proposal | None]
Imagined = tuple[GraphView, Proposed]
#: Who is told that a pass raised, or made a patch that cannot be applied or gives no graph: the error, and the pass.
Problem = Callable[[Exception, str], None]


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


class Engine:
    """One reduction. ``accepted(case, key)`` is called with every new best case, ``other(case, verdict)`` with every
    candidate that failed differently, ``progress`` after every question.

    ``hints`` are groups of nodes to try first, ``blamed`` nodes that are the culprits themselves, see
    `fxminify.minifier.reducer.hints`.
    ``max_queries`` counts questions put to the oracle, ``seconds`` wall time of `run`. ``jobs > 1`` needs an oracle
    with ``submit``. An exception from the oracle or a callback ends `run`; `best` is valid at any time.

    ``study(case)`` records the values of a case anew, before late passes look at it; None where it cannot.
    A pass that raises or does not come to an end is noted in its statistics and left out from there on, one that
    proposes what is no graph (see `fxminify.minifier.candidate.lint`) is noted; ``strict`` raises `PassFailed`
    instead. What changes nothing is counted and not asked about.
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
        study: Callable[[Case], Trace | None] | None = None,
        strict: bool = False,
        hints: tuple[tuple[str, ...], ...] = (),
        blamed: frozenset[str] = frozenset(),
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
        self._strict = strict
        self._hints, self._blamed = hints, blamed
        self._clock = clock
        self._keys = Keys()
        self._sizes = SizeCache()
        self._broken: set[str] = set()
        self._studied = ""
        self._flying: dict[str, tuple[Case, Future[Verdict]]] = {}
        self._coarse: dict[str, int] = {}
        self._parked: set[str] = set()
        self._proposed: Proposed = {}
        #: What may be the best case next, by its key.
        self._imagined: dict[str, Imagined] = {}
        self._pass = ""
        self.queries = 0
        self.stats = {p.name: PassStats() for p in passes}

    @property
    def best(self) -> Case:
        """The smallest failing case so far."""
        return self._view.case

    def run(self, case: Case, trace: Trace) -> Result:
        """Reduce ``case``, which is known to fail; ``trace`` was recorded on it."""
        self._started = self._clock()
        self._trace, self._studied = trace, ""
        self._view = GraphView(case, trace, self._hints, blamed=self._blamed)
        self._best_key = ""
        self._start_nodes = self._sizes.nodes(case)
        reason = ""
        try:
            while self._round():
                pass
        except BudgetSpent as exc:
            reason = str(exc)
        finally:
            self._recall()
        seconds = self._clock() - self._started
        return Result(self.best, self._trace, self.queries, seconds, not reason, reason, self.stats)

    def _round(self) -> bool:
        """Every pass once that is not parked, late ones only if no other did anything. True if there is more to do.

        A pass whose questions brought nothing is parked until nothing else makes the case smaller.
        """
        before, all_of_them = self.best, not self._parked
        for late in (False, True):
            passes = [p for p in self._passes if p.late is late and p.name not in self._parked]
            if late and not all_of_them:
                break
            if late and passes:
                self._look()
            for i, p in enumerate(passes):
                self._later = passes[i + 1 :]
                self._run_pass(p)
            if self.best is not before:
                return True
        self._parked.clear()
        return not all_of_them

    def _look(self) -> None:
        """Have the best case studied, once."""
        if self._study is None or self._studied == self._key_of_best():
            return
        trace = self._study(self.best)
        self._studied = self._key_of_best()
        if trace is not None:
            self._trace = trace
            self._view = GraphView(self.best, trace, self._hints, blamed=self._blamed)
            self._proposed.clear()

    def _run_pass(self, p: Pass) -> None:
        """All steps of a pass, once."""
        stats, started, nodes, step = self.stats[p.name], self._clock(), self._sizes.nodes(self.best), 0
        if self._has_run(p):
            return
        self._pass, self._tried, best = p.name, False, self.best
        try:
            while (proposal := self._proposal(p, step, self._problem)) is not None:
                self._running = p, step
                found = bool(proposal.patches) and self._search(p.name, proposal)
                step += not (found and proposal.again)
        finally:
            stats.seconds += self._clock() - started
            stats.nodes_removed += nodes - self._sizes.nodes(self.best)
        self._coarse[p.name] = self._sizes.nodes(self.best)
        if self._tried and self.best is best:
            self._parked.add(p.name)

    def _has_run(self, p: Pass) -> bool:
        """A coarse pass runs once, and again where a quarter of the nodes has gone since."""
        nodes = self._sizes.nodes(self.best)
        return p.coarse and p.name in self._coarse and (nodes <= SMALL or nodes * 4 > self._coarse[p.name] * 3)

    def _proposal(
        self, p: Pass, step: int, problem: Problem | None = None, imagined: Imagined | None = None
    ) -> Proposal | None:
        """What ``p`` proposes for the best case, or the ``imagined`` one; worked out once for each. Of errors
        ``problem`` is told, if given: who only asks ahead may ask what is never going to be asked.
        """
        view, proposed = imagined or (self._view, self._proposed)
        if p.name in self._broken:
            return None
        if (p.name, step) not in proposed:
            try:
                if step > STEPS + len(view.position) * 4:
                    raise RecursionError(f"after {step} steps it has not come to an end")
                proposed[p.name, step] = p.propose(view, step)
            except Exception as exc:  # noqa: BLE001  an error in one pass is no reason to lose what the others can do
                if problem is not None:
                    self._broken.add(p.name)
                    problem(exc, p.name)
                return None
        return proposed[p.name, step]

    def _problem(self, exc: Exception, name: str) -> None:
        """Note that the pass ``name`` raised, or made a patch that cannot be applied or gives no graph."""
        text = f"{type(exc).__name__}: {exc}".strip()
        if self._strict:
            raise PassFailed(f"pass {name}: {text}") from exc
        if text not in (problems := self.stats[name].problems):
            problems.append(text)

    def _search(self, name: str, proposal: Proposal) -> bool:
        """Find which patches can be applied together, applying them as they are found. True if any was."""
        before = self.best
        question = Question(self._view, name, proposal)
        while question.kept is not None:
            case = question.candidate(question.kept, self._problem)
            same = self._check(case, question)
            if same and case is not None and (not question.grows or self._sizes.is_smaller(case, self.best)):
                self._accept(case)
            question.answer(same)
        return self.best is not before

    def _check(self, case: Case | None, question: Question) -> bool:
        """Whether ``case`` shows the failure."""
        known = self._recalled(case, question, self._problem)
        self._tried = self._tried or (case is not None and self._is_worth(case, question))
        if case is None or known is not None:
            self.stats[self._pass].repeated += case is not None
            self.stats[self._pass].unchanged += case is not None and self._is_best(case)
            return bool(known)
        key = self._keys.key(case)
        if self._jobs == 1:
            self._begin(key, question.name)
            self._learn(key, case, self._oracle.ask(case))
        else:
            while key not in self._known:
                self._ahead(question)
                self._collect()
        self._report()
        return self._known[key].same

    def _recalled(self, case: Case | None, question: Question, problem: Problem | None = None) -> bool | None:
        """The answer where there is no need to ask: no candidate, the best case itself, not smaller, asked before."""
        if case is None:
            return False
        if self._is_best(case):
            return True
        if not self._is_worth(case, question):
            return False
        key = self._keys.key(case)
        if key in self._known:
            return self._known[key].same
        if (wrong := flaw(case)) is not None:
            if problem is not None:
                problem(ValueError(wrong), question.name)
            return False
        return None

    def _is_worth(self, case: Case, question: Question) -> bool:
        return question.grows or self._sizes.is_smaller(case, self.best)

    def _is_best(self, case: Case) -> bool:
        """Whether ``case`` is the best one. Keys of large cases take time, and sizes nearly always tell."""
        alike = self._sizes.nodes(case) == self._sizes.nodes(self.best)
        return alike and self._keys.key(case) == self._key_of_best()

    def _key_of_best(self) -> str:
        if not self._best_key:
            self._best_key = self._keys.key(self.best)
        return self._best_key

    def _begin(self, key: str, name: str) -> None:
        """Count a question and write it down before it is asked."""
        if self._max_queries is not None and self.queries >= self._max_queries:
            raise BudgetSpent(f"{self._max_queries} queries")
        if self._seconds is not None and self._clock() - self._started >= self._seconds:
            raise BudgetSpent(f"{self._seconds:g} seconds")
        self.queries += 1
        self.stats[name].queries += 1
        if self._log is not None:
            self._log.asked(key, name)

    def _learn(self, key: str, case: Case, verdict: Verdict) -> None:
        self._known[key] = verdict
        self.stats[self._pass].invalid += verdict.outcome is Outcome.INVALID
        if self._log is not None:
            self._log.answered(key, verdict)
        if verdict.outcome is Outcome.OTHER and self._other is not None:
            self._other(case, verdict)

    def _accept(self, case: Case) -> None:
        if self._is_best(case):
            return
        key = self._keys.key(case)
        if len(case.graph.compute) > len(self._view.compute):
            self._coarse.clear()  # a subgraph has become part of the graph: big steps may pay again
        self._view = self._view.after(case)
        self._proposed.clear()
        self._imagined.clear()
        self._best_key = key
        self.stats[self._pass].accepted += 1
        if self._accepted is not None:
            self._accepted(case, key)

    def _report(self) -> None:
        if self._progress is not None:
            nodes, inputs = self._sizes.nodes(self.best), len(self.best.graph.placeholders)
            seconds = self._clock() - self._started
            self._progress(Progress(nodes, self._start_nodes, inputs, self.queries, self._pass, seconds))

    # Asking ahead

    def _ahead(self, waiting: Question) -> None:
        """Have the question that waits answered, and use idle workers for those that may follow it."""
        assert self._submit is not None
        queue: deque[tuple[Question, tuple[bool, ...]]] = deque([(waiting, ())])
        following = self._following()
        looked = 0
        while queue and looked < 8 * self._jobs:
            question, assumed = queue.popleft()
            looked += 1
            kept = question.after(assumed)
            if kept is None:
                if question.view is self._view:  # of what is imagined nothing further is
                    then = self._after_success(question, assumed) if any(assumed) else following
                    queue.extendleft((later, ()) for later in islice(then, 1))
                continue
            case = question.candidate(kept)
            known = self._recalled(case, question)
            if case is None or known is not None:
                queue.appendleft((question, (*assumed, bool(known))))
                continue
            key = self._keys.key(case)
            if key not in self._flying:
                # The question that waits is asked in any case, the others only where a worker is free.
                if (assumed or question is not waiting) and len(self._flying) >= self._jobs:
                    return
                self._begin(key, question.name)
                self._flying[key] = (case, self._submit(case))
            likely = question.likely(assumed)
            queue.extend((question, (*assumed, same)) for same in (likely, not likely))

    def _following(self, imagined: Imagined | None = None, *, again: bool = False) -> Iterator[Question]:
        """The questions that come after the running one where that finds nothing; or where it ends with the
        ``imagined`` best case, and its step is done ``again``."""
        running, step = self._running
        for p in (running, *self._later):
            if p is not running and self._has_run(p):
                continue
            for number in count(step + (not again) if p is running else 0):
                proposal = self._proposal(p, number, imagined=imagined)
                if proposal is None:
                    break
                if proposal.patches:
                    yield Question(self._view if imagined is None else imagined[0], p.name, proposal)

    def _after_success(self, question: Question, assumed: tuple[bool, ...]) -> Iterator[Question]:
        """The questions that come after ``question``, the running one, where the answers to what it still asks are
        ``assumed`` and so end it with another best case."""
        last = max(i for i, same in enumerate(assumed) if same)
        case = question.candidate(question.after(assumed[:last]) or ())
        if case is None or question.grows:
            return iter(())
        imagined = self._imagined.setdefault(self._keys.key(case), (self._view.after(case), {}))
        return self._following(imagined, again=question.again)

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
