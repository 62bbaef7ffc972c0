"""One attempt at a capture: search, make plain, render, verify, through one entry to the backend.

Every question is in the index before it is asked, so a second run repeats none; see `fxminify.minifier.search.engine`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from ...backends import libraries
from ...backends.installed import Installed
from ...backends.spec import BackendSpec, CannotLoad
from ...repro_templates.expressions import Unprintable
from ...repro_templates.inputs import NeedsData
from ...store.case import Case, operators
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index, State
from ...store.trust import is_ours, origin_tag
from ..editing.calls import with_distinct_names
from ..explaining import explanation
from ..explaining.explain import explain
from ..oracle import first_node, tasks
from ..oracle.backend import Oracle
from ..oracle.replay import LIMIT, Likeness, Replay
from ..oracle.verdict import Outcome, Verdict
from ..passes import PASSES, REPLACEMENTS
from ..recording.storages import settle
from ..recording.trace import Trace
from ..reporting import onnx_models
from ..reporting.emit import Emitter
from ..sandbox.launcher import SandboxError
from ..sandbox.pool import Ended, Workers
from ..search.account import BudgetSpent, Progress
from ..search.engine import Engine
from ..search.guidance import named
from ..search.identity import Keys
from ..search.inquiry import Inquiry
from .history import EXPLAIN
from .options import Listener, Options
from .script_oracle import ScriptOracle
from .simplify import simplify
from .steps import StepLog

#: With no more nodes than this the search is done before the first node that differs is known.
_FEW = 4
#: How many times the time limit of a question the one about all values may take.
_VALUES_TIMES = 3
#: The last resort among the entries: every candidate is a script in a fresh process.
SCRIPT = "script"


@dataclass(slots=True)
class Job:
    """A capture that was replayed, the workers that know its backend, and what its attempts have in common."""

    index: Index
    capture: CaptureInfo
    case: Case
    shown: Replay
    pool: Workers
    options: Options
    listener: Listener
    #: The reduction and the step of it that ``case`` is from, where it is not the captured one.
    begun: tuple[int, int] | None = None
    others: dict[str, tuple[Case, Verdict]] = field(default_factory=dict)
    #: Questions that the attempts stand on, and those of them that were asked now and not by a former run.
    queries: int = 0
    asked: int = 0
    started: float = field(default_factory=time.monotonic)

    def installed(self) -> Installed | None:
        """What a worker that has compiled with the backend finds installed; None where it does not say."""
        modules = BackendSpec.from_json(self.case.backend).modules()
        modules += [str(item["module"]) for item in self.case.imports if "module" in item]
        reply = self.pool.submit("describe", {"modules": modules}, timeout=60).result()
        return Installed.from_json(reply.result) if reply.ended is Ended.DONE else None

    def queries_left(self) -> int | None:
        most = self.options.max_queries
        return None if most is None else max(0, most - self.asked)

    def seconds_left(self) -> float | None:
        return None if self.options.budget is None else self.options.budget - (time.monotonic() - self.started)

    def spent(self) -> bool:
        seconds = self.seconds_left()
        return self.queries_left() == 0 or (seconds is not None and seconds <= 0)

    def is_shown(self, failure: Failure) -> bool:
        """Whether a failure seen in a fresh process is the captured one, or one of those that the replays showed."""
        target = self.shown.target
        likeness = Likeness(self.shown.failures[0], target.match, target.error_regex)
        return target.shows(failure) or likeness.holds(failure)

    def keep_others(self) -> list[int]:
        """Store the other failures that candidates showed, the smallest example of each, as captures of their own."""
        known = {c.signature for c in self.index.captures()}
        ids = []
        for digest, (case, verdict) in self.others.items():
            if digest in known or verdict.signature is None:
                continue
            settled, blobs = settle(case, self.pool.scratch)
            provenance = {"found": f"while minifying capture {self.capture.id}"}
            if is_ours(self.case, self.capture.provenance.get("origin")):
                provenance["origin"] = origin_tag(settled)
            ids.append(
                self.index.add(
                    case=settled,
                    blobs=blobs,
                    failure=verdict.failure,
                    signature=verdict.signature,
                    provenance=provenance,
                    parent=self.capture.id,
                )
            )
        return ids


class Attempt:
    """The reduction of ``job`` through one entry to the backend, or (``script``) with the script itself as oracle."""

    def __init__(self, job: Job, entry: str) -> None:
        self.of = job
        self.entry = entry
        self.timeout = job.options.timeout or job.shown.timeout
        self.oracle = self._oracle()
        self.keys = Keys()
        self.started = time.monotonic()
        #: There is no script to disagree with: another entry would not help.
        self.unprintable = False
        #: The reduction came to its end; else a later run can go on with it.
        self.complete = False
        self.nodes = 0
        self.asked_first = False

    def _oracle(self) -> Oracle | ScriptOracle:
        if self.entry == SCRIPT:
            return ScriptOracle(
                self.of.capture, self.of.shown.failures[0], self.of.is_shown, self.timeout, self.of.pool.scratch
            )
        oracle = self.of.shown.oracle(self.of.pool, self.of.options.min_rate)
        oracle.entry, oracle.timeout = self.entry, self.timeout
        return oracle

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
        }
        self.log = Log(self.of, self.of.index.begin_reduction(self.of.capture.id, config).id)
        start = with_distinct_names(self.of.case)
        trace = self.record(start)
        self.steps = StepLog(self.of.index, self.log.reduction, start, self.of.pool.scratch)
        first = self.begins(trace) if len(start.graph.compute) > _FEW else None
        hints = named(start, [*self.of.shown.failures[:1], *filter(None, [self.of.index.failure(self.of.capture.id)])])
        engine = Engine(
            self.oracle,
            jobs=self.of.options.jobs,
            max_queries=self.of.queries_left(),
            seconds=self.of.seconds_left(),
            verdicts=self.log.known,
            log=self.log,
            progress=self.progress,
            accepted=self.accepted,
            other=self.other,
            passes=(*PASSES, *REPLACEMENTS),
            study=self.study,
            confirm=self.confirm if isinstance(self.oracle, Oracle) and self.oracle.votes.runs > 1 else None,
            strict=self.of.options.strict,
            hints=hints if first is None else ((first,), *hints),
        )
        result = engine.run(start, trace)
        for name, stats in result.stats.items():
            for problem in stats.problems:
                self.of.listener.note(f"the pass {name} failed, and the reduction went on: {problem}")
        case, plain_reason = self.plain(result.case, stopped=not result.complete)
        minimal = case
        case = replace(case, imports=tuple(libraries.needed(case.imports, operators(case.graph))))
        settled, blobs = settle(case, self.of.pool.scratch)
        self.steps.finish(settled, blobs)
        self.of.queries += self.log.queries
        self.nodes = case.graph.count
        self.complete = result.complete and not plain_reason
        self.close(finished=False)
        state, reason = self.emit(settled, blobs)
        if state is State.VERIFIED and not self.of.spent():
            self.begins(trace)
            if self.of.options.explain and self.complete:
                self.explain(minimal)
        if not self.of.spent() and (models := onnx_models.find(self.of.pool, settled, self.entry, self.timeout)):
            onnx_models.keep(self.of.index, self.of.capture.id, models)
        if not self.complete:
            command = f"minify run {self.of.index.name} {self.of.capture.id} --again"
            stopped = f"stopped by its budget; to go on: {command}"
            reason = "; ".join(filter(None, (reason, stopped)))
        return state, reason

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
        self.of.index.finish_reduction(
            self.log.reduction,
            queries=self.of.queries,
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

    def study(self, case: Case, key: str) -> Trace | None:
        """The values of a smaller case, and what its nodes consist of. A worker that fails at it is no great loss."""
        reply = self.of.pool.submit("study", tasks.studying(case, f"{key[:12]}:"), timeout=self.timeout).result()
        return Trace.from_json(reply.result) if reply.ended is Ended.DONE else None

    def plain(self, case: Case, *, stopped: bool) -> tuple[Case, str]:
        """`simplify` with the log of this reduction; the reason why it ended early, if it did."""
        best = case

        def same(candidate: Case, name: str) -> bool:
            nonlocal best
            key = self.keys.key(candidate)
            if key not in self.log.known:
                if stopped or self.of.spent():
                    raise BudgetSpent("")
                self.log.asked(key, name)
                self.log.answered(key, self.oracle.ask(candidate))
                self.listen(candidate.graph.count, name)
            accepted = self.log.known[key].same
            if accepted and candidate is not best:
                best = candidate
                self.accepted(candidate, key)
            return accepted

        try:
            return simplify(case, self.of.pool.scratch, same), ""
        except BudgetSpent:
            return best, "" if stopped else "the budget was spent"

    def confirm(self, case: Case, key: str) -> bool:
        """Whether another vote on ``case`` ends like the one that it was kept for."""
        again = f"{key}/again"
        if again not in self.log.known:
            if self.of.spent():
                return True
            self.log.asked(again, "again")
            self.log.answered(again, self.oracle.ask(case))
        return self.log.known[again].same

    def explain(self, case: Case) -> None:
        """Ask what of ``case`` matters, and keep the answers: `fxminify.minifier.explaining.explain`."""
        inquiry = Inquiry(
            self.oracle, self.log, self.keys, self.of.pool.scratch.put, jobs=self.of.options.jobs, spent=self.of.spent,
            told=lambda candidate: self.listen(candidate.graph.count, "what matters"),
        )  # fmt: skip
        try:
            found = explain(case, self.of.pool.scratch, inquiry)
        except Exception as error:  # the script is verified already: this must not cost it
            if self.of.options.strict:
                raise
            self.of.listener.note(f"what matters could not be found out: {error!r}")
            return
        finally:
            inquiry.close()
        explanation.keep(self.of.index, self.of.capture.id, replace(found, reduction=self.log.reduction))

    def emit(self, case: Case, blobs: dict[str, bytes]) -> tuple[State, str]:
        """Render the script, run it, store it with the record of its verification."""
        emitter = Emitter(self.of.index, self.of.capture, self.of.is_shown, self.timeout)
        self.listen(case.graph.count, "verifying the script")
        self.of.pool.scratch.put(blobs)
        last = self.oracle.ask(case, fresh=True)
        try:
            state, reason = emitter.emit(
                case,
                blobs,
                failure=(last.failure if last.same else None) or self.of.shown.failures[0],
                queries=self.of.queries,
                runs=self.of.options.runs,
                embed=self.of.options.embed_data,
                replays=self.of.shown.seldom(),
                installed=self.of.installed(),
            )
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

    def accepted(self, case: Case, key: str) -> None:
        self.steps.add(case, key, self.log.passes.get(key, ""), self.of.queries + self.log.queries)

    def other(self, case: Case, verdict: Verdict) -> None:
        if verdict.signature is None:
            return
        known = self.of.others.get(verdict.signature.digest)
        if known is None or case.graph.count < known[0].graph.count:
            self.of.others[verdict.signature.digest] = case, verdict

    def progress(self, progress: Progress) -> None:
        self.listen(progress.nodes, progress.pass_name)

    def listen(self, nodes: int, stage: str) -> None:
        self.of.listener.step(
            nodes=nodes,
            start=self.of.case.graph.count,
            queries=self.of.queries + self.log.queries,
            stage=stage,
            budget=self.of.options.budget,
        )


class Log:
    """The verdict log of one reduction: what a former run was told, and every question before it is asked."""

    def __init__(self, job: Job, reduction: int) -> None:
        self.job = job
        self.index = index = job.index
        self.reduction = reduction
        earlier = {k: v for k, v in index.verdicts(reduction).items() if v.outcome != Outcome.INFRA}
        self.known: dict[str, Verdict] = {
            key: Verdict(Outcome(stored.outcome), seconds=stored.seconds, detail=stored.detail)
            for key, stored in earlier.items()
        }
        #: Which pass asked each question.
        self.passes = {key: stored.pass_name for key, stored in earlier.items()}
        self.explaining = sum(name == EXPLAIN for name in self.passes.values())

    @property
    def queries(self) -> int:
        """Questions of the reduction itself, without those of an explanation."""
        return len(self.known) - self.explaining

    def asked(self, key: str, pass_name: str) -> None:
        self.job.asked += 1
        self.explaining += pass_name == EXPLAIN
        self.passes[key] = pass_name
        self.index.asked(self.reduction, key, pass_name)

    def answered(self, key: str, verdict: Verdict) -> None:
        self.known[key] = verdict
        digest = verdict.signature.digest if verdict.signature is not None else None
        self.index.answered(self.reduction, key, verdict.outcome, digest, verdict.seconds, verdict.detail)
