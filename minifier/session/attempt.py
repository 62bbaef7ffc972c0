"""One attempt at a capture: search, make plain, render, verify, through one entry to the backend.

Every query is in the index before it is asked, so a second run repeats none; see `fxminify.minifier.reducer.scheduler`.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ...backends.provenance import libraries
from ...backends.provenance.spec import CannotLoad
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.inputs import NeedsData
from ...store.document.case import Case, operators
from ...store.index import State
from ...store.signature import signature
from ..oracle import first_node, tasks
from ..oracle.hang_margin import MARGIN, HangMargin
from ..oracle.oracle import Oracle
from ..oracle.replay import LIMIT
from ..oracle.script_oracle import ScriptOracle
from ..oracle.verdict import Outcome, Verdict
from ..passes import installed
from ..reducer.hints import blamed, named
from ..reducer.scheduler import QueryScheduler
from ..reducer.shrinker import ReductionResult
from ..reporting import explanation, illustrations
from ..reporting.emit import Emitter
from ..reporting.explain import explain
from ..sandbox.launcher import SandboxError
from ..sandbox.pool import Ended
from ..tracing.content_address import settle
from ..tracing.hop_calls import with_distinct_names
from ..tracing.trace import Trace, lacks_shapes, with_shapes
from .events import ScriptVerified
from .job import CaptureSession
from .reduction import Reduction
from .verdict_log import VerdictLog

#: With no more nodes than this the search is done before the first node that differs is known.
_FEW = 4
#: How many times the time limit of a question the one about all values may take.
_VALUES_TIMES = 3
#: The last resort among the entries: every candidate is a script in a fresh process.
SCRIPT = "script"


class EntryAttempt:
    """The reduction of ``job`` through one entry to the backend, or (``script``) with the script itself as oracle.

    ``timeout_factor`` is for a hang: how many times as long its candidates get. None where the result must still prove
    to last `hang_margin.MARGIN` times as long; ``brief`` says that it does not.
    """

    def __init__(self, job: CaptureSession, entry: str, *, timeout_factor: float | None = None) -> None:
        self.of = job
        self.entry = entry
        self.timeout_factor = timeout_factor
        self.brief = False
        self.timeout = job.options.timeout or job.shown.timeout
        self.oracle = self._oracle()
        #: Questions of the attempts before this one.
        self.before = job.queries
        self.started = time.monotonic()
        #: There is no script to disagree with: another entry would not help.
        self.unprintable = False
        #: The reduction came to its end; else a later run can go on with it.
        self.complete = False
        self.nodes = 0
        self.asked_first = False
        self.shown_fresh = False

    def _oracle(self) -> Oracle | ScriptOracle:
        if self.entry == SCRIPT:
            return self.script_oracle()
        oracle = self.of.shown.oracle(self.of.pool, self.of.options.min_rate)
        oracle.entry, oracle.timeout, oracle.timeout_factor = self.entry, self.timeout, self.timeout_factor or 1.0
        return oracle

    def script_oracle(self) -> ScriptOracle:
        return ScriptOracle(
            self.of.capture, self.of.shown.failures[0], self.of.is_shown, self.timeout, self.of.pool.scratch
        )

    def shows(self) -> bool:
        """Whether the whole case fails through this entry. The replay has answered that for the entry it chose."""
        return self.entry == self.of.shown.entry or self.oracle.ask(self.of.case).same

    def run(self) -> tuple[State, str]:
        config = {
            "entry": self.entry,
            "match": self.of.options.match,
            "error_regex": self.of.options.error_regex,
            **({} if self.of.options.min_rate is None else {"min_rate": self.of.options.min_rate}),
            "allowed": [s.digest for s in self.of.shown.target.allowed],
            **({"from": list(self.of.begun)} if self.of.begun is not None else {}),
            **({"timeout_factor": self.timeout_factor} if (self.timeout_factor or 1.0) != 1.0 else {}),
        }
        self.log = VerdictLog(self.of, self.of.index.reductions.begin(self.of.capture.id, config).id)
        start = with_distinct_names(self.of.case)
        trace = self.record(start)
        first = self.begins(trace) if len(start.graph.compute) > _FEW else None
        failures = [
            *self.of.shown.failures[:1],
            *filter(None, [self.of.index.captures.get(self.of.capture.id).failure]),
        ]
        hints, culprits = named(start, failures, first), blamed(start, failures, first)
        self.scheduler = QueryScheduler(
            self.oracle, jobs=self.of.options.jobs, log=self.log, budget=self.of.budget
        )  # fmt: skip
        self.margin = HangMargin(
            self.oracle, self.scheduler, self.of.shown.failures[0], timeout=self.timeout,
            timeout_factor=self.timeout_factor, tell=lambda case: self.listen(case.graph.count, "does it last?"),
        )  # fmt: skip
        table = installed()
        for problem in table.problems:
            self.of.note(f"passes that could not be loaded: {problem}")
        self.reduction = Reduction(
            self.of, self.oracle, self.scheduler, self.log, start, trace, hints, culprits, self.timeout, self.listen,
            table.passes,
        )  # fmt: skip
        found = self.reduction.run()
        if not self.margin.lasts(found.case):
            self.brief, self.nodes, self.complete = True, found.case.graph.count, found.complete
            self.close(finished=False)
            self.of.queries = self.queries()
            return State.UNVERIFIED, "what is left of the hang only takes long"
        state, reason = self.finish(found)
        if self.seldom() and not self.of.spent():
            found, state, reason = self.steadier(found, state, reason)
        if state is State.VERIFIED and not self.of.spent():
            self.begins(trace)
            if self.of.options.explain and self.complete:
                self.explain(found.case)
        if not self.of.spent() and (seen := illustrations.find(self.of.pool, self.settled, self.entry, self.timeout)):
            illustrations.keep(self.of.index, self.of.capture.id, seen)
        if not self.complete:
            command = f"minify run {self.of.index.name} {self.of.capture.id} --again"
            stopped = f"stopped by its budget; to go on: {command}"
            reason = "; ".join(filter(None, (reason, stopped)))
        self.of.queries = self.queries()
        return state, reason

    def with_longer_limits(self) -> EntryAttempt:
        """The attempt that follows one whose result does not last: from the last step that does, with longer time
        limits; where none does the same again, whose result is taken as it is."""
        number = self.margin.last_that_lasts([self.reduction.start, *(case for case, _ in self.reduction.path)])
        if number is None:
            return EntryAttempt(self.of, self.entry, timeout_factor=1.0)
        case = self.reduction.path[number - 1][0] if number else self.reduction.start
        begun = (self.log.reduction, number) if number else self.of.begun
        return EntryAttempt(replace(self.of, case=case, begun=begun), self.entry, timeout_factor=MARGIN)

    def finish(self, found: ReductionResult) -> tuple[State, str]:
        """Write down what was found, and make its script."""
        case = replace(found.case, imports=tuple(libraries.needed(found.case.imports, operators(found.case.graph))))
        if lacks_shapes(case) and (trace := self.reduction.study(case)) is not None:
            case = with_shapes(case, trace)
        self.settled, blobs = settle(case, self.of.pool.scratch)
        self.reduction.steps.finish(self.settled, blobs)
        self.nodes, self.complete = case.graph.count, found.complete
        self.close(finished=False)
        return self.emit(self.settled, blobs)

    def seldom(self) -> bool:
        """Whether the script shows the failure less often than the replays did. One that never does may be no fault of
        the case: that is for other entries to see, where a fresh worker does show it."""
        if self.unprintable or not self.complete:
            return False
        return self.share() < self.of.shown.rate if self.share() else not self.shown_fresh

    def share(self) -> float:
        """In which share of its runs the script that is kept now has shown the failure."""
        repro = self.of.index.repros.get(self.of.capture.id, "script")
        return 0.0 if repro is None or not repro.runs else repro.verified / repro.runs

    def steadier(self, found: ReductionResult, state: State, reason: str) -> tuple[ReductionResult, State, str]:
        """What shows the failure more often than ``found``, if there is such a case on the way to it."""
        share = self.share()
        other = self.reduction.doubted()
        if other is None and share and self.of.shown.rate >= 1.0:
            other = self.reduction.steadier(self.script_oracle())
        if other is None:
            return found, state, reason
        done = other, *self.finish(other)
        if self.unprintable or self.share() < share:
            self.unprintable = False
            self.reduction.keep(found.case)
            done = found, *self.finish(found)
        return done

    def begins(self, trace: Trace) -> str | None:
        """The first node whose value differs. One question, asked once; like the replays it counts as none."""
        known = first_node.stored(self.of.index, self.of.capture.id)
        if known is None and not self.asked_first and not self.of.spent():
            self.asked_first = True
            shown = self.of.shown.failures[0]
            limit = _VALUES_TIMES * self.timeout
            known = first_node.find(self.of.pool, self.of.case, trace, shown, self.entry, limit)
            if known is not None:
                first_node.keep(self.of.index, self.of.capture.id, known)
        return None if known is None else str(known.get("node", ""))

    def close(self, *, finished: bool = True) -> None:
        """Write down how the reduction ended. Only when ``finished`` will no later run resume it."""
        self.of.index.reductions.finish(
            self.log.reduction,
            queries=self.queries(),
            nodes_before=self.of.case.graph.count,
            nodes_after=self.nodes,
            seconds=time.monotonic() - self.started,
            finished=finished,
        )

    def record(self, case: Case) -> Trace:
        """The values of one eager run, made in a worker."""
        reply = self.of.pool.submit("record", tasks.recording(case), timeout=LIMIT).result()
        if reply.ended is not Ended.DONE:
            raise SandboxError(f"recording the values of the graph ended in {reply.ended}: {reply.error}")
        return Trace.from_json(reply.result)

    def explain(self, case: Case) -> None:
        """Ask what of ``case`` matters, and keep the answers: `fxminify.minifier.reporting.explain`."""
        if isinstance(self.oracle, Oracle):
            self.oracle.timeout_factor = 1.0
        self.listen(case.graph.count, "what matters")
        try:
            found = explain(case, self.of.pool.scratch, self.scheduler, put=self.of.pool.scratch.put)
        except Exception as error:  # the script is verified already: this must not cost it
            if self.of.options.strict:
                raise
            self.of.note(f"what matters could not be found out: {error!r}")
            return
        explanation.keep(self.of.index, self.of.capture.id, replace(found, reduction=self.log.reduction))

    def emit(self, case: Case, blobs: dict[str, bytes]) -> tuple[State, str]:
        """Render the script, run it, store it with the record of its verification."""
        emitter = Emitter(self.of.index, self.of.capture, self.of.is_shown, self.margin.alarm(case))
        self.listen(case.graph.count, "verifying the script")
        self.of.pool.scratch.put(blobs)
        hang = self.margin.failure(case)
        last = self.oracle.ask(case, fresh=True) if hang is None else Verdict(Outcome.SAME, signature(hang), hang)
        self.shown_fresh = last.same
        try:
            state, reason = emitter.emit(
                case,
                blobs,
                failure=(last.failure if last.same else None) or self.of.shown.failures[0],
                queries=self.queries(),
                runs=self.of.options.runs,
                embed=self.of.options.embed_data,
                replays=self.of.shown.seldom(),
                installed=self.of.installed(),
            )
            if (kept := self.of.index.repros.get(self.of.capture.id, "script")) is not None:
                self.of.listener(ScriptVerified(self.of.capture.id, kept.verified, kept.runs))
            if state is State.UNVERIFIED and not last.same:
                reason += "; nor does a fresh process show it: it may need what came before it, such as other graphs"
            return state, reason
        except NeedsData as error:
            self.unprintable = True
            command = f"minify run {self.of.index.name} {self.of.capture.id} --again --embed-data"
            return State.UNVERIFIED, f"{error}: {command}"
        except (Unprintable, CannotLoad) as error:
            self.unprintable = True
            return State.UNVERIFIED, f"no script can be printed: {error}"

    def queries(self) -> int:
        """Questions of this attempt and those before it."""
        return self.before + self.log.queries

    def listen(self, nodes: int, stage: str) -> None:
        self.of.answered(nodes, stage, self.queries())
