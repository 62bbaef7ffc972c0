"""Minify one capture, from its replay to its verified script.

If a small part of the captured graph fails as captured, that part is replayed (`minifier.session.head_start`), else
the whole graph. A capture whose failure does not show in the replays is not minified. Otherwise the shrinker
reduces it, and its script is run as a file in fresh processes (`minifier.session.attempt`). If the script does not
show the failure that the oracle saw, the reduction is repeated through the entry that is closest to the script, and
at last with the script itself as the oracle. If that fails, too, the capture ends as unverified.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...backends.provenance import libraries
from ...backends.provenance.absent import is_absent
from ...backends.provenance.spec import BackendSpec, CannotLoad
from ...store.document.case import Case, tag
from ...store.failure import EAGER, METADATA, Failure, FailureKind
from ...store.index import CaptureInfo, Index, State
from ...store.masking import mask
from ...store.matching import FailureMatcher
from ...store.signature import Match, signature
from ..consent import AgreedCase
from ..oracle.oracle import LongerLimit
from ..oracle.replay import LIMIT, Replay, Shown, healthy, may_have_more_threads, replay
from ..oracle.scheduler import Budget
from ..oracle.verdict import Outcome, Verdict
from ..reducer.guess import guess
from ..reporting.emit import Draft, Emitter
from ..sandbox.launcher import BackendImportError, SandboxError
from ..sandbox.pool import Pool, Workers
from ..tracing.content_address import content_addressed
from .attempt import AttemptResult, EntryAttempt, keep
from .capture_session import CaptureSession, again
from .early_script import EarlyScript
from .events import HeadStartBegan, Listener, Replayed, ReplayFinished, ReplayStarted
from .head_start import HeadStart, is_worth, look
from .options import MinifyOptions
from .reduction import SCRIPT
from .resources import SharedResources

#: Seconds that one operator may take.
_GUESS_LIMIT = 120.0


@dataclass(frozen=True, slots=True)
class CaptureOutcome:
    """The final state of a capture, and the capture ids of other failures that were found."""

    state: State
    reason: str = ""
    children: tuple[int, ...] = ()


def reduce_capture(
    index: Index,
    capture: CaptureInfo,
    agreed: AgreedCase,
    options: MinifyOptions,
    listener: Listener,
    resources: SharedResources,
    begun: tuple[int, int] | None = None,
) -> CaptureOutcome:
    """Minify the agreed case of a capture and store its script. The caller stores the outcome.

    ``begun`` names the reduction and the step that the case comes from, None for the captured case.
    """
    case = agreed.case
    failure = index.captures.get(capture.id).failure
    if failure is None:
        return CaptureOutcome(State.UNSUPPORTED, "no failure was recorded with it")
    spec = BackendSpec.from_json(case.backend)
    if spec.problem:
        return CaptureOutcome(State.BLOCKED, spec.problem)
    if module := is_absent(failure):
        return CaptureOutcome(State.BLOCKED, failure.absent or f"the module {module} is not installed here")
    budget = Budget(options.max_queries, options.budget)
    early = EarlyScript(listener, resources.processes)
    if begun is None and index.repros.get(capture.id, "script") is None:
        early.begin(*_first_guess(index, capture, agreed, failure, options, resources))
    try:
        case, pool = _loaded(agreed, resources)
        ways = variants(case, failure) if begun is None else [case]
        pool.scratch.put(index.blobs.view(case.storages))
        work = _CaptureWork(index, capture, agreed, failure, options, listener, resources, pool, early, begun, budget)
        return work.from_head_start(ways[0]) or work.from_the_whole(ways)
    except BackendImportError as error:
        return CaptureOutcome(State.BLOCKED, str(error))
    except CannotLoad as error:
        return CaptureOutcome(State.BLOCKED, str(error))
    except SandboxError as error:
        resources.end_workers()
        return CaptureOutcome(State.BLOCKED, f"the workers cannot work: {error}")


def _loaded(agreed: AgreedCase, resources: SharedResources) -> tuple[Case, Workers]:
    """Workers that have loaded the backend of an agreed case, and the case; that with the copied source of the backend
    where its factory cannot be called. Raises `SandboxError`."""
    called, *copied = backends(agreed.case)
    try:
        return agreed.case, resources.workers(agreed, called)
    except BackendImportError:
        if not copied:
            raise
        return copied[0], resources.workers(agreed, copied[0])


@dataclass(frozen=True, slots=True)
class _CaptureWork:
    """The shared input of replays and attempts of one capture. ``begun`` is the step at which the work continues."""

    index: Index
    capture: CaptureInfo
    agreed: AgreedCase
    failure: Failure
    options: MinifyOptions
    listener: Listener
    resources: SharedResources
    pool: Workers
    early: EarlyScript
    begun: tuple[int, int] | None
    budget: Budget

    @property
    def matcher(self) -> FailureMatcher:
        return _matcher(self.failure, self.options)

    @property
    def limit(self) -> float:
        """Seconds that a run of the captured graph may take."""
        hang = self.failure.detail.get("seconds")
        return self.options.timeout or (float(hang) if isinstance(hang, int | float) else LIMIT)

    def from_head_start(self, case: Case) -> CaptureOutcome | None:
        """Minify ``case`` without a replay of the whole of it. None where that cannot be done."""
        if self.begun is not None or not is_worth(case, self.failure):
            return None
        self.listener(HeadStartBegan(self.capture.id))
        jobs = self.options.jobs or (max(1, self.pool.jobs - 1) if isinstance(self.pool, Pool) else 1)
        found = look(
            self.index, self.capture.id, self.pool, case, self.matcher, jobs=jobs, budget=self.budget
        )  # fmt: skip
        if found.case is None:
            return None
        self._begin_script(found.case)
        nodes = found.case.graph.count
        self.listener(ReplayStarted(self.capture.id, self.options.replays, nodes))
        shown = self.replay(found.case)
        self.listener(replay_event(self.capture.id, shown, nodes))
        if not shown.reproduced or shown.rate < 1.0:
            return None
        shown = replace(shown, longer=LongerLimit(nodes, self.limit))
        session = self.session(case, shown, found)
        for other in found.others:
            session.add_other_failure(*other)
        outcome = _attempts(session)
        if found.certain:
            return outcome
        verdict = None
        if outcome.state is State.VERIFIED and not session.spent():
            verdict = shown.oracle(self.pool).ask(case)
        if verdict is None or verdict.same:
            if verdict is not None:
                self.index.captures.diagnose(self.capture.id, shown.failures[0])
            return replace(outcome, children=tuple(session.store_other_failures()))
        if found.failure is not None and verdict.signature is not None:
            session.add_other_failure(found.case, Verdict(Outcome.OTHER, signature(found.failure), found.failure))
            session.forget_other_failure(verdict.signature)
        session.store_other_failures()
        self.index.repros.forget(self.capture.id)
        session.note("the captured graph fails in another way than the part of it that was minified: it is replayed")
        return None

    def from_the_whole(self, ways: list[Case]) -> CaptureOutcome:
        """Replay the captured graph and minify it, in the first of the ``ways`` to run it that shows the failure."""
        self.listener(ReplayStarted(self.capture.id, self.options.replays))
        for case in ways:
            shown = self.replay(case)
            if shown.reproduced:
                break
        self.listener(replay_event(self.capture.id, shown))
        if shown.reproduced:
            return _attempts(self.session(case, shown, HeadStart()))
        if shown.absent:
            return self._no_bug(State.BLOCKED, shown.absent)
        if is_refused(self.capture.provenance, self.failure, shown):
            why = f"eager refuses it, too: {shown.refused}\ncaptured: {self.failure.headline()}"
            return self._no_bug(State.EAGER_REFUSES, why)
        if self._culprit_alone_shows():
            return CaptureOutcome(State.VERIFIED, "the culprit alone shows it, the whole graph does not")
        return CaptureOutcome(State.NOT_REPRODUCED, shown.reason + earlier(self.capture))

    def _no_bug(self, state: State, why: str) -> CaptureOutcome:
        """The outcome for what is no failure of the backend: a script of a part of the graph is dropped."""
        self.early.finish()
        self.index.repros.forget(self.capture.id)
        return CaptureOutcome(state, why)

    def replay(self, case: Case) -> Replay:
        return replay(
            self.pool,
            case,
            self.matcher,
            runs=self.options.replays,
            prefer=entry_to_resume(self.index, self.capture.id, self.options, self.begun),
            limit=self.limit,
            again=again(self.index, self.capture.id),
            meanwhile=self.early.tell,
            ran=lambda number: self.listener(Replayed(self.capture.id, number)),
        )

    def session(self, case: Case, shown: Replay, head_start: HeadStart) -> CaptureSession:
        if head_start.certain:
            self.index.captures.diagnose(self.capture.id, shown.failures[0])
        return CaptureSession(
            self.index,
            self.capture,
            self.agreed,
            case,
            shown,
            self.pool,
            self.resources.processes,
            self.options,
            self.listener,
            self.early,
            self.begun,
            self.budget,
            head_start,
        )

    def _begin_script(self, case: Case) -> None:
        """Run a script of ``case`` beside its replays, unless another one has shown the failure."""
        if not self.early.is_wanted():
            return
        case = replace(case, imports=libraries.needed_by(case))
        case, blobs = content_addressed(case, self.pool.scratch)
        emitter = self._emitter()

        self.early.begin(emitter, lambda: emitter.early_draft(case, blobs, failure=self.failure))

    def _culprit_alone_shows(self) -> bool:
        """Whether a script of the culprit shows the failure, which the whole graph does not. Then it is stored."""
        if not self.early.finish() or (found := self.early.shown()) is None:
            return False
        emitter = self._emitter()
        state, _ = emitter.store(
            emitter.draft(found.case, found.blobs, failure=self.failure, queries=0, runs=self.options.runs, embed=False)
        )
        return state is State.VERIFIED

    def _emitter(self) -> Emitter:
        limit = self.options.timeout or _GUESS_LIMIT
        return Emitter(self.index, self.capture, self.agreed, self.matcher, limit, self.resources.processes)


def _matcher(failure: Failure, options: MinifyOptions) -> FailureMatcher:
    return FailureMatcher((failure,), Match(options.match), options.error_regex)


def _first_guess(
    index: Index,
    capture: CaptureInfo,
    agreed: AgreedCase,
    failure: Failure,
    options: MinifyOptions,
    resources: SharedResources,
) -> tuple[Emitter, Callable[[], Draft | None]]:
    """Return an emitter, and a function that drafts a script of the culprit that ``failure`` names.

    The function can run while the workers import. If the failure names no culprit, it only does the imports of the
    script, which are the same for any graph of one operator.
    """
    matcher, limit = _matcher(failure, options), options.timeout or _GUESS_LIMIT
    emitter, case = Emitter(index, capture, agreed, matcher, limit, resources.processes), agreed.case

    def make() -> Draft | None:
        found = guess(case, failure)
        if found is None:
            if len(os.sched_getaffinity(0)) > 1:
                emitter.prepare(replace(healthy(case), compare=case.compare, imports=()), failure)
            return None
        return emitter.early_draft(found, {}, failure=failure)

    return emitter, make


def entry_to_resume(index: Index, capture_id: int, options: MinifyOptions, begun: tuple[int, int] | None = None) -> str:
    """The entry of the interrupted reduction that a run with these options can resume, or an empty string.

    Without it the replay picks the faster entry, which may differ from run to run. A run that went through several
    entries left several reductions; the oldest one is what it began with.
    """
    wanted = {
        "match": options.match,
        "error_regex": options.error_regex,
        "min_rate": options.min_rate,
        "from": None if begun is None else list(begun),
    }
    for reduction in index.reductions.unfinished(capture_id):
        if all(reduction.config.get(name) == value for name, value in wanted.items()):
            return str(reduction.config.get("entry", ""))
    return ""


def replay_event(capture_id: int, shown: Replay, part: int = 0) -> ReplayFinished:
    """Return the event that reports the replays."""
    seen = shown.entries.get(shown.entry) or Shown()
    return ReplayFinished(capture_id, shown.reproduced, shown.entry, seen.matched, seen.runs, shown.reason, part)


def is_refused(provenance: Mapping[str, Any], failure: Failure, shown: Replay) -> bool:
    """Whether the program fails in eager mode as well.

    Not for a divergence: the program ran in eager. Where eager was not given the values of the program, only if it
    raises the captured error, and did not run when it was asked in the program.
    """
    if failure.kind is FailureKind.DIVERGENCE or not shown.refused:
        return False
    if provenance.get("data") != METADATA:
        return True
    return EAGER not in failure.detail and _head(shown.refused) == _head(f"{failure.type}: {failure.message}")


def _head(line: str) -> tuple[str, str]:
    """The type of an error and its first words, up to a colon, masked."""
    kind, _, said = line.partition(": ")
    return kind, mask(said.splitlines()[0].partition(":")[0] if said else "")


def variants(case: Case, failure: Failure) -> list[Case]:
    """Return the ways to replay a capture, the simplest first.

    A graph with symbolic sizes is first compiled with ``dynamic=True``, then as the program compiled it. The compiled
    graph is first called once, then as often as the program called it, and then with the inputs of earlier calls. All
    of that is done with a backend that a factory is called for, then with its copied source. At last the graph runs
    with one thread, which its script then sets.
    """
    ways = [way for with_backend in backends(case) for way in _variants(with_backend)]
    if failure.kind is FailureKind.CRASH or not may_have_more_threads(case):
        return ways
    return [*ways, replace(ways[0], context={**case.context, "threads": 1})]


def backends(case: Case) -> list[Case]:
    """``case`` with each way to have its backend back, the plainest first."""
    if "copied" not in case.backend:
        return [case]
    return [replace(case, backend=way.to_json()) for way in BackendSpec.from_json(case.backend).ways()]


def _variants(case: Case) -> list[Case]:
    symbolic = any(tag(value) == "sym" for value in case.inputs) and case.backend.get("dynamic") is None
    dynamic = replace(case, backend={**case.backend, "dynamic": True})
    ways = [dynamic, case] if symbolic else [case]
    same = [replace(way, calls=calls, earlier=()) for way in ways for calls in sorted({1, case.calls})]
    return same + [replace(way, calls=1) for way in ways if case.earlier]


def earlier(capture: CaptureInfo) -> str:
    """Describe the earlier actions of the process, which a replay may lack."""
    graphs, calls, shapes = (capture.provenance.get(key) for key in ("graph", "call", "shapes_before"))
    parts: list[str] = []
    if isinstance(graphs, int) and graphs > 1:
        parts.append(f"it was graph {graphs} that this process compiled")
    if isinstance(calls, int) and calls > 1:
        parts.append(f"it showed at call {calls}" + (f", after calls with shapes {shapes}" if shapes else ""))
    kept = capture.provenance.get("data") != METADATA
    lost = f"\nvalues that the failure may need were not kept ({_left_out(capture)}): capture it again with --data full"
    values = "" if kept else lost
    if role := capture.provenance.get("aot_graph"):
        refused = capture.provenance.get("refused")
        why = f"Dynamo's graph could not be stored ({refused})" if refused else "capture the whole with --level dynamo"
        values += f"\nit is the {role} graph of AOTAutograd alone: {why}"
    if not parts:
        return values
    happened = " and ".join(parts)
    return f"{values}\n{happened}: one graph and one call do not show a failure that depends on earlier ones"


def _left_out(capture: CaptureInfo) -> str:
    """The tensors without values, as the row names them."""
    named = capture.provenance.get("left_out")
    return named if isinstance(named, str) and named else "values of its tensors"


def _attempts(session: CaptureSession) -> CaptureOutcome:
    """Reduce through the entry that the replay chose, then through others until the script shows the failure.

    Other failures are stored, unless it is not certain yet which of them is the captured one.
    """
    shown = session.shown
    others = [entry for entry, seen in shown.entries.items() if seen.matched and entry != shown.entry]
    results: list[tuple[CaptureSession, AttemptResult]] = []
    try:
        for entry in dict.fromkeys([shown.entry, *others, "compile", SCRIPT]):
            attempt = EntryAttempt(session, entry, before=results[-1][1].queries if results else 0)
            if not attempt.shows():
                continue
            results.append((session, attempt.run()))
            while (follows := results[-1][1].next) is not None:
                results.append((follows.session, follows.run()))
            if results[-1][1].final or any(result.state is State.VERIFIED for _, result in results):
                break
    finally:  # also after Ctrl-C
        children = session.store_other_failures() if session.head_start.certain else []
    if all(result.complete for _, result in results):  # a run that is killed before this line resumes them all
        for of, result in results:
            keep(of, result, finished=True)
    last = results[-1][1] if results else None
    state, reason = (State.UNVERIFIED, "") if last is None else (last.state, last.reason)
    if state is State.UNVERIFIED and (kept := session.index.repros.get(session.capture.id, "script")) and kept.verified:
        state, reason = State.VERIFIED, f"an earlier script shows it, the last one does not: {reason}"
    return CaptureOutcome(state, reason, tuple(children))
