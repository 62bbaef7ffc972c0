"""Minify one capture, from its replay to its verified script.

If a small part of the captured graph fails as captured, that part is replayed (`minifier.session.head_start`), else
the whole graph. A capture whose failure does not show in the replays is not minified. Otherwise the shrinker
reduces it, and its script is run as a file in fresh processes (`minifier.session.attempt`). If the script does not
show the failure that the oracle saw, the reduction is repeated through the entry that is closest to the script, and
at last with the script itself as the oracle. If that fails, too, the capture ends as unverified.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...backends.provenance import libraries
from ...backends.provenance.absent import is_absent
from ...backends.provenance.spec import BackendSpec, CannotLoad
from ...store.document.case import Case
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index, State
from ...store.matching import FailureMatcher
from ...store.signature import Match, signature
from ..consent import AgreedCase
from ..oracle.oracle import LongerLimit
from ..oracle.replay import healthy
from ..oracle.scheduler import Budget
from ..oracle.verdict import Outcome, Verdict
from ..reducer.guess import guess
from ..reporting.emit import Draft, Emitter
from ..sandbox.launcher import BackendImportError, SandboxError
from ..sandbox.pool import Pool, Workers
from ..tracing.content_address import content_addressed
from .attempt import AttemptResult, attempt, shows, store_numbers
from .early_script import EarlyScript
from .events import HeadStartBegan, Listener
from .head_start import is_worth, look
from .options import MinifyOptions
from .other_failures import OtherFailures
from .reduction import SCRIPT
from .replays import backends, earlier, is_refused, limit_of, replay_variants, replays, variants
from .resources import SharedResources
from .services import Services
from .stages import Captured, Replayed, Step

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
    begun: Step | None = None,
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
    budget = Budget(options.max_queries, options.budget)  # its seconds count from here: workers start in them
    early = EarlyScript(listener, resources.processes)
    if begun is None and index.repros.get(capture.id, "script") is None:
        early.begin(*_first_guess(index, capture, agreed, failure, options, resources))
    try:
        case, pool = _loaded(agreed, resources)
        pool.scratch.put(index.blobs.view(case.storages))
        services = Services(
            index, capture, agreed, options, listener, pool, resources.processes,
            budget, early, OtherFailures(index, capture.id, agreed, pool.scratch),
        )  # fmt: skip
        captured = Captured(case, failure, _matcher(failure, options), begun)
        return _from_head_start(captured, services) or _from_the_whole(captured, services)
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


def _from_head_start(captured: Captured, services: Services) -> CaptureOutcome | None:
    """Minify a small part of the case that fails as captured, without a replay of the whole.

    Return None if no small part fails, or if the whole turns out to fail in another way.
    """
    if captured.begun is not None:
        return None
    case = variants(captured.case, captured.failure)[0]
    if not is_worth(case, captured.failure):
        return None
    index, capture, pool = services.index, services.capture, services.pool
    services.listener(HeadStartBegan(capture.id))
    jobs = services.options.jobs or (max(1, pool.jobs - 1) if isinstance(pool, Pool) else 1)
    found = look(index, capture.id, pool, case, captured.matcher, jobs=jobs, budget=services.budget)
    if found.case is None:
        return None
    _begin_script(captured, found.case, services)
    nodes = found.case.graph.count
    shown = replays(replace(captured, case=found.case), services, part=nodes)
    if not shown.reproduced or shown.rate < 1.0:
        return None
    shown = replace(shown, longer=LongerLimit(nodes, limit_of(captured, services.options)))
    for other in found.others:
        services.others.add(*other)
    outcome = _attempts(Replayed(case, shown, shown.entry, found), services)
    if found.certain:
        return outcome
    verdict = None
    if outcome.state is State.VERIFIED and not services.spent():
        verdict = shown.oracle(pool).ask(case)
    if verdict is None or verdict.same:
        if verdict is not None:
            index.captures.diagnose(capture.id, shown.failures[0])
        return replace(outcome, children=tuple(services.others.store()))
    if found.failure is not None and verdict.signature is not None:
        services.others.add(found.case, Verdict(Outcome.OTHER, signature(found.failure), found.failure))
        services.others.forget(verdict.signature)
    services.others.store()
    index.repros.forget(capture.id)
    services.note("the captured graph fails in another way than the part of it that was minified: it is replayed")
    return None


def _from_the_whole(captured: Captured, services: Services) -> CaptureOutcome:
    """Replay the captured graph and minify it, in the first of its variants that shows the failure."""
    shown, replayed = replay_variants(captured, services)
    if replayed is not None:
        return _attempts(replayed, services)
    if shown.absent:
        return _no_bug(State.BLOCKED, shown.absent, services)
    if is_refused(services.capture.provenance, captured.failure, shown):
        why = f"eager refuses it, too: {shown.refused}\ncaptured: {captured.failure.headline()}"
        return _no_bug(State.EAGER_REFUSES, why, services)
    if _culprit_alone_shows(captured, services):
        return CaptureOutcome(State.VERIFIED, "the culprit alone shows it, the whole graph does not")
    return CaptureOutcome(State.NOT_REPRODUCED, shown.reason + earlier(services.capture))


def _no_bug(state: State, why: str, services: Services) -> CaptureOutcome:
    """The outcome for what is no failure of the backend: a script of a part of the graph is dropped."""
    services.early.finish()
    services.index.repros.forget(services.capture.id)
    return CaptureOutcome(state, why)


def _begin_script(captured: Captured, case: Case, services: Services) -> None:
    """Run a script of ``case`` beside its replays, unless another one has shown the failure."""
    if not services.early.is_wanted():
        return
    case = replace(case, imports=libraries.needed_by(case))
    case, blobs = content_addressed(case, services.pool.scratch)
    emitter = services.emitter(captured.matcher, _guess_limit(services.options))
    services.early.begin(emitter, lambda: emitter.early_draft(case, blobs, failure=captured.failure))


def _culprit_alone_shows(captured: Captured, services: Services) -> bool:
    """Whether a script of the culprit shows the failure, which the whole graph does not. Then it is stored."""
    if not services.early.finish() or (found := services.early.shown()) is None:
        return False
    emitter = services.emitter(captured.matcher, _guess_limit(services.options))
    state, _ = emitter.store(
        emitter.draft(
            found.case, found.blobs, failure=captured.failure, queries=0, runs=services.options.runs, embed=False
        )
    )
    return state is State.VERIFIED


def _guess_limit(options: MinifyOptions) -> float:
    return options.timeout or _GUESS_LIMIT


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
    matcher, case = _matcher(failure, options), agreed.case
    emitter = Emitter(index, capture, agreed, matcher, _guess_limit(options), resources.processes)

    def make() -> Draft | None:
        found = guess(case, failure)
        if found is None:
            if len(os.sched_getaffinity(0)) > 1:
                emitter.prepare(replace(healthy(case), compare=case.compare, imports=()), failure)
            return None
        return emitter.early_draft(found, {}, failure=failure)

    return emitter, make


def _attempts(replayed: Replayed, services: Services) -> CaptureOutcome:
    """Reduce through the entry that the replays chose, then through others until the script shows the failure.

    Other failures are stored, unless it is not certain yet which of them is the captured one.
    """
    index, capture, shown = services.index, services.capture, replayed.shown
    certain = replayed.head_start.certain
    if certain:
        index.captures.diagnose(capture.id, replayed.failure)
    others = [entry for entry, seen in shown.entries.items() if seen.matched and entry != shown.entry]
    results: list[AttemptResult] = []
    try:
        for entry in dict.fromkeys([shown.entry, *others, "compile", SCRIPT]):
            through = replace(replayed, entry=entry)
            if not shows(through, services):
                continue
            results.append(attempt(through, services, before=results[-1].queries if results else 0))
            while (following := results[-1].next) is not None:
                results.append(attempt(following, services, before=results[-1].queries))
            if results[-1].final or any(result.state is State.VERIFIED for result in results):
                break
    finally:  # also after Ctrl-C
        children = services.others.store() if certain else []
    if all(result.complete for result in results):  # a run that is killed before this line resumes them all
        for result in results:
            store_numbers(result, finished=True)
    state, reason = (results[-1].state, results[-1].reason) if results else (State.UNVERIFIED, "")
    if state is State.UNVERIFIED and (kept := index.repros.get(capture.id, "script")) and kept.verified:
        state, reason = State.VERIFIED, f"an earlier script shows it, the last one does not: {reason}"
    return CaptureOutcome(state, reason, tuple(children))
