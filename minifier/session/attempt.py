"""An attempt at a capture through one entry to the backend: reduce it, then render and verify its script.

Queries of the search are logged before they are sent, so a second run repeats none of them; see
`fxminify.minifier.oracle.scheduler`. Replays, the check of the final case and the query about the remaining
failures are not logged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from ...backends.provenance import libraries
from ...backends.provenance.spec import CannotLoad
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.inputs import NeedsData
from ...store.document.case import Blobs, Case
from ...store.failure import Failure, FailureKind
from ...store.index import State
from ...store.signature import signature
from ..candidate.hop_calls import with_distinct_names
from ..candidate.trace import Trace, lacks_shapes, with_shapes
from ..oracle import ablation, first_node, rest, tasks
from ..oracle.hang_margin import MARGIN, HangMargin
from ..oracle.observation import of_reply
from ..oracle.oracle import Oracle, Votes
from ..oracle.replay import LIMIT
from ..oracle.scheduler import Budget, QueryScheduler
from ..oracle.verdict import Outcome, Verdict
from ..passes import installed
from ..reducer.hints import blamed, named
from ..reducer.history import EXPLAIN
from ..reducer.shrinker import ReductionResult
from ..reducer.validity import KnownValidity
from ..reporting import explanation, illustrations
from ..reporting.emit import Draft, Emitter
from ..reporting.explain import Background, explain
from ..reporting.features import Feature
from ..reporting.luck import Luck, measuring
from ..sandbox.launcher import SandboxError
from ..sandbox.pool import Ended
from ..tracing.content_address import content_addressed
from . import layers, needed_variables
from .capture_session import CaptureSession, again
from .events import ScriptVerified
from .reduction import SCRIPT, Reduction
from .results import STOPPED
from .script_oracle import ScriptOracle
from .validation import Validation
from .verdict_log import VerdictLog

#: The search of a graph of this size ends before the first node that differs is known.
_SMALL_GRAPH_NODES = 4
#: How many times the limit of a query the comparison of all values may take.
_VALUES_TIMES = 3
#: A first script is written as soon as nothing more can be removed where a query takes so many seconds, else when it
#: has taken so many seconds to make the minimal case plainer.
SLOW = PATIENCE = 2.0
#: The most queries of one attempt, and how many more for each node at its start. It ends with the best case then.
MOST_QUERIES, PER_NODE = 400, 20
#: Seconds that a verification takes besides what the script takes, and the share of a budget that is kept for it.
_VERIFYING, _KEPT = 8.0, 0.25


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of an attempt.

    * ``queries`` includes the queries of earlier attempts.
    * ``complete``: the reduction came to its end; otherwise a later run can continue it.
    * ``final``: another entry would not help.
    * ``next`` is the attempt that must follow: after the reduced graph of a hang turned out to be only slow, or
      after the script of the reduced graph did not show the failure.
    """

    reduction: int
    state: State
    reason: str
    nodes: int
    queries: int
    seconds: float
    complete: bool
    final: bool
    next: EntryAttempt | None = None


@dataclass(frozen=True, slots=True)
class Printed:
    """The result of a reduction, and its script.

    ``case`` has all parts that the script needs. ``share`` is the share of the script's runs that showed the
    failure, ``shown_fresh`` whether the case failed in a fresh worker, and ``failure`` the failure there. If it is
    not ``printable``, no script can disagree with it: another entry would not help.
    """

    found: ReductionResult
    case: Case
    state: State
    reason: str
    share: float = 0.0
    shown_fresh: bool = False
    failure: Failure | None = None
    printable: bool = True


class EntryAttempt:
    """The reduction of ``session`` through one entry to the backend, or (``script``) with the script itself as oracle.

    ``timeout_factor`` is for a hang: how many times as long its candidates get. None where the result must still prove
    to last `hang_margin.MARGIN` times as long. ``before`` counts the queries of the attempts before this one.
    """

    def __init__(
        self, session: CaptureSession, entry: str, *, before: int = 0, timeout_factor: float | None = None
    ) -> None:
        self.session = session
        self.entry = entry
        self.timeout_factor = timeout_factor
        self.timeout = session.options.timeout or session.shown.timeout
        self.oracle = self._oracle()
        self.before = before
        self.started = time.monotonic()
        self.asked_first = session.head_start.looked_for_first
        self.known_luck: Luck | None = None
        #: What was answered about environment variables.
        self.variables: tuple[Feature, ...] = ()
        #: When nothing more could be removed.
        self.small_since = 0.0

    def _oracle(self) -> Oracle | ScriptOracle:
        if self.entry == SCRIPT:
            return self.script_oracle()
        oracle = self.session.shown.oracle(self.session.pool, self.session.options.min_rate)
        oracle.entry, oracle.timeout, oracle.timeout_factor = self.entry, self.timeout, self.timeout_factor or 1.0
        if self.timeout_factor is not None:  # what takes long is where a hang would be, too: only time tells
            oracle.anchor = ""
        return oracle

    def script_oracle(self) -> ScriptOracle:
        return ScriptOracle(
            self.session.capture,
            self.session.shown.failures[0],
            self.session.script_matcher,
            self.timeout,
            self.session.pool.scratch,
            self.session.processes,
        )

    def shows(self) -> bool:
        """Whether the whole case fails through this entry. For the entry that the replay chose this is known."""
        return self.entry == self.session.shown.entry or self.oracle.ask(self.session.case).same

    def run(self) -> AttemptResult:
        """Reduce the capture, and write, verify and explain its script."""
        config = {
            "entry": self.entry,
            "match": self.session.options.match,
            "error_regex": self.session.options.error_regex,
            **({} if self.session.options.min_rate is None else {"min_rate": self.session.options.min_rate}),
            **({"from": list(self.session.begun)} if self.session.begun is not None else {}),
            **({"timeout_factor": self.timeout_factor} if (self.timeout_factor or 1.0) != 1.0 else {}),
        }
        self.log = VerdictLog(
            self.session,
            self.session.index.reductions.begin(self.session.capture.id, config, ours=self.session.agreed.ours).id,
            before=self.before,
        )
        head_start = self.session.head_start
        asked_alike = (self.entry, self.session.shown.threads) == (head_start.entry, head_start.threads)
        for key, (name, verdict) in head_start.verdicts.items() if asked_alike else ():
            if key not in self.log.known:
                self.log.asked(key, name)
                self.log.answered(key, verdict)
            if key in head_start.used:
                self.log.used(key, name)
        start = with_distinct_names(self.session.case)
        trace = self.record(start)
        first = self.begins(trace) if len(start.graph.compute) > _SMALL_GRAPH_NODES else None
        failures = [
            *self.session.shown.failures[:1],
            *filter(None, [self.session.index.captures.get(self.session.capture.id).failure]),
        ]
        hints, culprits = named(start, failures, first), blamed(start, failures, first)
        if head_start.nodes:
            hints = (head_start.nodes, *hints)
        self.scheduler = QueryScheduler(
            self.oracle, jobs=self.session.jobs, log=self.log, budget=self.session.budget
        )  # fmt: skip
        self.margin = HangMargin(
            self.oracle, self.scheduler, self.session.shown.failures[0], timeout=self.timeout,
            timeout_factor=self.timeout_factor, tell=lambda case: self.listen(case.graph.count, "does it last?"),
        )  # fmt: skip
        table = installed()
        for problem in table.problems:
            self.session.note(f"passes that could not be loaded: {problem}")
        self.reduction = Reduction(
            self.session, self.oracle, self.scheduler, self.log, start, trace, hints, culprits, self.timeout,
            self.listen, table.passes, self.begin_first_script,
        )  # fmt: skip
        most = Budget(MOST_QUERIES + PER_NODE * len(start.graph.compute))
        with self.time_for_the_script(), self.scheduler.limited(most):
            found = self.reduction.run()
        self.begin_first_script(found.case, waiting=True)
        if not self.margin.lasts(found.case):
            short = "what is left of the hang only takes long"
            result = self.result(Printed(found, found.case, State.UNVERIFIED, short))
            keep(self.session, result, finished=False)
            return replace(result, next=self.with_longer_limits())
        done = self.finish(found)
        if self.seldom(done) and not self.session.spent():
            done = self.more_reliable(done)
        if (following := self.after_the_last_shown(done)) is not None:
            return following
        done = self.with_needed_variables(done)
        complete = done.found.complete
        if done.state is State.VERIFIED and not self.session.spent():
            self.begins(trace)
            if self.session.options.explain and complete:
                self.explain(done)
                self.find_layer(done)
            if complete:
                self.ask_about_the_rest(start, trace, done)
        if not self.session.spent():
            seen = illustrations.find(self.session.pool, done.case, self.entry, self.timeout)
            if seen:
                illustrations.keep(self.session.index, self.session.capture.id, seen)
        if complete:
            return self.result(done)
        stopped = f"{STOPPED}; to go on: {again(self.session.index, self.session.capture.id)}"
        return self.result(replace(done, reason="; ".join(filter(None, (done.reason, stopped)))))

    @contextmanager
    def time_for_the_script(self) -> Iterator[None]:
        """Inside this context the budget leaves the seconds that the verification of the script is going to take."""
        budget, shown = self.session.budget, self.session.shown
        takes = self.margin.alarm(self.session.case) if self.hangs else shown.entries[shown.entry].seconds
        budget.reserve = min(_KEPT * (budget.seconds or 0.0), _VERIFYING + takes)
        try:
            yield
        finally:
            budget.reserve = 0.0

    @property
    def hangs(self) -> bool:
        return any(failure.kind is FailureKind.HANG for failure in self.session.shown.failures)

    def result(self, done: Printed) -> AttemptResult:
        """The result of the attempt."""
        complete = done.found.complete
        final = done.state is State.VERIFIED or not done.printable or not complete
        return AttemptResult(
            self.log.reduction, done.state, done.reason, done.case.graph.count, self.log.total,
            time.monotonic() - self.started, complete, final,
        )  # fmt: skip

    def with_longer_limits(self) -> EntryAttempt:
        """The next attempt after a hang whose result ends by itself: from the last step that does not, with longer time
        limits. If there is no such step, the same attempt again, whose result is accepted."""
        number = self.margin.last_that_lasts([self.reduction.start, *(case for case, _ in self.reduction.path)])
        if number is None:
            return EntryAttempt(self.session, self.entry, before=self.log.total, timeout_factor=1.0)
        case = self.reduction.path[number - 1][0] if number else self.reduction.start
        begun = (self.log.reduction, number) if number else self.session.begun
        session = replace(self.session, case=case, begun=begun)
        return EntryAttempt(session, self.entry, before=self.log.total, timeout_factor=MARGIN)

    def finish(self, found: ReductionResult) -> Printed:
        """Store the result of a reduction, and make its script."""
        case, blobs = self.self_contained(found.case)
        self.reduction.steps.finish(case, blobs)
        done = Printed(found, case, State.UNVERIFIED, "")
        keep(self.session, self.result(done), finished=False)
        return self.emit(done, blobs)

    def self_contained(self, case: Case) -> tuple[Case, Blobs]:
        """``case`` with the libraries and the shapes that its script needs, and its storages."""
        case = replace(case, imports=libraries.needed_by(case))
        if lacks_shapes(case) and (trace := self.reduction.study(case)) is not None:
            case = with_shapes(case, trace)
        return content_addressed(case, self.session.pool.scratch)

    def begin_first_script(self, case: Case, *, waiting: bool = False) -> None:
        """Run a script of ``case``, of which nothing more can be removed, beside what is left of the reduction.

        It is left out where the final script is there soon. For a hang it is run while the attempt is ``waiting`` to
        see whether the hang lasts.
        """
        shown, options = self.session.shown, self.session.options
        self.small_since = self.small_since or time.monotonic()
        slow = shown.entries[shown.entry].seconds >= SLOW or self.session.head_start.case is not None
        worth = slow or waiting or time.monotonic() - self.small_since >= PATIENCE
        if not worth or self.hangs is not waiting or shown.rate < 1.0 or self.entry == SCRIPT:
            return
        if not self.session.early.is_wanted():
            return
        case, blobs = self.self_contained(case)
        emitter, queries, failure = self.emitter(case), self.log.total, shown.failures[0]

        def make() -> Draft:
            return emitter.early_draft(case, blobs, failure=failure, queries=queries, embed=options.embed_data)

        self.session.early.begin(emitter, make)

    def emitter(self, case: Case) -> Emitter:
        return Emitter(
            self.session.index, self.session.capture, self.session.agreed, self.session.script_matcher,
            self.margin.alarm(case), self.session.processes,
        )  # fmt: skip

    def seldom(self, done: Printed) -> bool:
        """Whether the script shows the failure less often than the replays did. If it never does but a fresh worker
        does, other entries must be tried instead."""
        if not done.printable or not done.found.complete:
            return False
        return done.share < self.session.shown.rate if done.share else not done.shown_fresh

    def more_reliable(self, done: Printed) -> Printed:
        """An earlier case of the reduction whose script shows the failure more often than ``done``, if there is one."""
        other = self.reduction.doubted()
        if other is None and done.share and self.session.shown.rate >= 1.0:
            other = self.reduction.more_reliable(self.script_oracle())
        if other is None:
            return done
        better = self.finish(other)
        if better.printable and better.share >= done.share:
            return better
        self.reduction.keep(done.found.case)
        return self.finish(done.found)

    def after_the_last_shown(self, done: Printed) -> AttemptResult | None:
        """Emit the last step whose script shows the failure, where ``done`` shows it in workers only.

        The following attempt begins there, through the entry that tells this step from the next one. Return
        None where no step needs to be undone, or where not even the script of the start shows the failure.
        """
        wanted = done.printable and not done.share and self.session.shown.rate >= 1.0
        if not wanted or self.hangs or self.entry == SCRIPT or self.session.spent():
            return None
        self.listen(done.case.graph.count, "looking for the last script that shows it")
        number = self.reduction.last_shown(self.script_oracle())
        if number is None:
            return None
        misleading = self.reduction.path[number][0]
        found = self.reduction.back_to(number)
        self.session.note(
            f"workers show the failure in what is left, its script does not: the reduction continues with step {number}"
        )
        result = self.result(self.finish(found))
        keep(self.session, result, finished=False)
        entry = SCRIPT
        if self.entry != "compile":
            following = EntryAttempt(self.session, "compile")
            if not following.oracle.ask(misleading).same and following.oracle.ask(found.case).same:
                entry = "compile"
        session = replace(
            self.session, case=found.case, begun=(self.log.reduction, number) if number else self.session.begun
        )
        return replace(result, next=EntryAttempt(session, entry, before=self.log.total))

    def with_needed_variables(self, done: Printed) -> Printed:
        """``done`` with a script that sets no environment variable that the failure does not need."""
        wanted = done.state is State.VERIFIED and done.found.complete and bool(done.case.backend.get("variables"))
        if not wanted or self.hangs or self.session.spent():
            return done
        self.listen(done.case.graph.count, "finding out which variables matter")
        found = needed_variables.find(self.script_oracle(), done.found.case)
        self.variables = found.features
        if found.case == done.found.case:
            return done
        fewer = self.finish(replace(done.found, case=found.case))
        return fewer if fewer.state is State.VERIFIED else self.finish(done.found)

    def begins(self, trace: Trace) -> str | None:
        """The first node whose value differs. This is asked once and, like the replays, not counted as a query."""
        known = first_node.stored(self.session.index, self.session.capture.id)
        if known is None and not self.asked_first and not self.session.spent():
            self.asked_first = True
            shown = self.session.shown.failures[0]
            limit = _VALUES_TIMES * self.timeout
            known = first_node.find(self.session.pool, self.session.case, trace, shown, self.entry, limit)
            if known is not None:
                first_node.keep(self.session.index, self.session.capture.id, known)
        return None if known is None else str(known.get("node", ""))

    def record(self, case: Case) -> Trace:
        """The values of one eager run, made in a worker."""
        reply = self.session.pool.submit("record", tasks.record_argument(case), timeout=LIMIT).result()
        if reply.ended is not Ended.DONE:
            raise SandboxError(f"recording the values of the graph ended in {reply.ended}: {reply.error}")
        return Trace.from_json(reply.result)

    def explain(self, done: Printed) -> None:
        """Ask what of the result matters, and keep the answers: `fxminify.minifier.reporting.explain`."""
        if isinstance(self.oracle, Oracle):
            self.oracle.timeout_factor = 1.0
        case = done.found.case
        self.listen(case.graph.count, "finding out what matters")
        scratch, validity = self.session.pool.scratch, self.validity()
        try:
            luck = self.known_luck = self.luck(done)
            in_fresh_workers = isinstance(self.oracle, Oracle) or luck is not None
            background = Background(
                trace=self.reduction.study(case),
                steps=self.reduction.larger_cases(case),
                step_trace=done.found.trace,
                again=self.again if in_fresh_workers else None,
                headline=self.session.shown.failures[0].headline(),
            )
            found = explain(
                case, scratch, self.scheduler, put=scratch.put, validity=validity, background=background, luck=luck
            )  # fmt: skip
        except Exception as error:  # the script is verified already: this must not cost it
            if self.session.options.strict:
                raise
            self.session.note(f"what matters could not be found out: {error!r}")
            return
        features = (*self.variables, *found.features)
        found = replace(found, features=features, reduction=self.log.reduction)
        explanation.keep(self.session.index, self.session.capture.id, found)

    def again(self, case: Case, votes: Votes | None) -> Verdict:
        """The verdict on ``case`` in a fresh process."""
        return self.oracle.ask(case, fresh=True, votes=votes)

    def luck(self, done: Printed) -> Luck | None:
        """Measure how often the result fails. None where it always does."""
        oracle, shown = self.oracle, self.session.shown
        if done.share >= 1.0 and shown.rate >= 1.0 and oracle.votes.runs == 1:
            return None
        votes = measuring(shown.entries[shown.entry].seconds)
        key = f"{self.scheduler.key(done.found.case)}/{EXPLAIN}-rate"
        verdict = self.scheduler.ask_once(key, EXPLAIN, lambda: oracle.ask(done.found.case, votes=votes))
        return Luck(*verdict.counted)

    def validity(self) -> KnownValidity:
        """The knowledge of workers about the validity of candidates."""
        return KnownValidity(Validation(self.session.pool, self.timeout), self.scheduler.key)

    def find_layer(self, done: Printed) -> None:
        """Ask at which layer the failure enters, and keep the answer, unless too many runs would be needed for it."""
        if self.entry == SCRIPT or (self.known_luck is not None and self.known_luck.refusal):
            return
        self.listen(done.case.graph.count, "looking for the layer")
        votes = Votes() if self.known_luck is None else self.known_luck.votes
        try:
            found = layers.find(
                self.session, done.case, self.scheduler, reduction=self.log.reduction, timeout=self.timeout,
                votes=votes,
            )  # fmt: skip
        except SandboxError as error:  # the script is verified already: this must not cost it
            self.session.note(f"the layer could not be looked for: {error}")
            return
        if found is not None:
            self.session.index.artifacts.save(self.session.capture.id, ablation.ARTIFACT, found.to_json())

    def ask_about_the_rest(self, start: Case, trace: Trace, done: Printed) -> None:
        """Find out what ``start`` does without the operations that the minimal case has. This is asked at the end of
        each complete attempt and, like the replays, not counted as a query."""
        minimal = done.case
        if self.hangs or self.entry == SCRIPT or self.session.spent():
            return
        try:
            found = rest.without(start, trace, minimal.graph)
            if found is None:
                return
            case, called = found
            if not all(self.validity().obeys_rules(start, [case])):
                return
            self.listen(minimal.graph.count, "looking at the rest of the graph")
            verdict = self.oracle.ask(case)
            if verdict.outcome is Outcome.PASS:  # once may be luck
                verdict = self.oracle.ask(case, fresh=True)
            if verdict.same and done.failure is not None and verdict.failure is not None:
                own = replace(self.session.shown.matcher, examples=(done.failure,))
                if not own.shows(verdict.failure):  # of a list of operators it names others
                    verdict = replace(verdict, outcome=Outcome.OTHER)
        except SandboxError as error:  # the script is verified already: this must not cost it
            self.session.note(f"the rest of the graph could not be asked about: {error}")
            return
        if verdict.outcome is Outcome.OTHER:
            self.session.add_other_failure(case, verdict)
        said = verdict.failure.headline() if verdict.failure is not None else ""
        known = rest.Rest(called, case.graph.count, verdict.outcome, said)
        rest.keep(self.session.index, self.session.capture.id, known)

    def emit(self, done: Printed, blobs: Blobs) -> Printed:
        """Render the script, run it, store it with the record of its verification."""
        case = done.case
        emitter = self.emitter(case)
        self.listen(case.graph.count, "verifying the script")
        self.session.pool.scratch.put(blobs)
        hang = self.margin.failure(case)
        last = self.oracle.ask(case, fresh=True) if hang is None else Verdict(Outcome.SAME, signature(hang), hang)
        done = replace(done, shown_fresh=last.same, failure=last.failure if last.same else None)
        try:
            draft = partial(
                emitter.draft,
                case,
                blobs,
                failure=(last.failure if last.same else None) or self.session.shown.failures[0],
                queries=self.log.total,
                runs=self.session.options.runs,
                embed=self.session.options.embed_data,
                replays=self.session.shown.seldom(),
                installed=self.session.installed(),
                complete=done.found.complete,
                evidence=partial(self.evidence, case, last.failure if last.same else None),
            )
            drafted = self.session.early.tell_while(draft)
            state, reason = emitter.store(drafted)
            shown, runs = drafted.done.shown, drafted.done.runs
            self.session.listener(ScriptVerified(self.session.capture.id, shown, runs))
            if state is State.UNVERIFIED and not last.same:
                reason += "; nor does a fresh process show it: it may need what came before it, such as other graphs"
            return replace(done, state=state, reason=reason, share=shown / runs)
        except NeedsData as error:
            command = again(self.session.index, self.session.capture.id, "--embed-data")
            return replace(done, reason=f"{error}: {command}", printable=False)
        except (Unprintable, CannotLoad) as error:
            return replace(done, reason=f"no script can be printed: {error}", printable=False)

    def evidence(self, case: Case, seen: Failure | None, summed: bool) -> Failure | None:
        """The failure of ``case`` with the figures of a comparison with float64: ``seen``, unless the script takes the
        gradients of the sum of the outputs. Then a further run does so, too."""
        if not summed or self.entry == SCRIPT:
            return None if summed else seen
        argument = tasks.observe_argument(case, self.entry, self.session.shown.threads, summed=True)
        failure = of_reply(self.session.pool.submit("observe", argument, timeout=self.timeout).result()).failure
        return None if failure is None else self.session.shown.matcher.find(failure)

    def listen(self, nodes: int, stage: str) -> None:
        self.session.early.tell()
        self.session.answered(nodes, stage, self.log.total)


def keep(session: CaptureSession, result: AttemptResult, *, finished: bool) -> None:
    """Store how a reduction ended. A later run resumes it unless it is ``finished``."""
    session.index.reductions.finish(
        result.reduction, queries=result.queries, nodes_before=session.case.graph.count, nodes_after=result.nodes,
        seconds=result.seconds, finished=finished,
    )  # fmt: skip
