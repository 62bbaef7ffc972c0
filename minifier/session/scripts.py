"""Draw up, run and store the script of a reduced case, and early scripts beside a reduction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...backends.provenance import libraries
from ...backends.provenance.spec import CannotLoad
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.inputs import NeedsData
from ...store.document.case import Blobs, Case
from ...store.failure import Failure
from ...store.index import State
from ...store.signature import signature
from ..candidate.trace import lacks_shapes, with_shapes
from ..oracle import tasks
from ..oracle.observation import of_reply
from ..oracle.verdict import Outcome, Verdict
from ..reporting.emit import Draft, Emitter
from ..tracing.content_address import content_addressed
from .events import ScriptVerified
from .reduction import SCRIPT, Reduction
from .script_oracle import ScriptOracle
from .services import Services
from .stages import Drafted, Reduced, Replayed, Verified

#: A first script is written as soon as nothing more can be removed where a query takes so many seconds, else when it
#: has taken so many seconds to make the minimal case plainer.
SLOW = PATIENCE = 2.0


def script_oracle(replayed: Replayed, services: Services) -> ScriptOracle:
    """Return the oracle that runs the script of each candidate."""
    return ScriptOracle(
        services.capture,
        replayed.failure,
        replayed.script_matcher,
        query_limit(replayed, services),
        services.pool.scratch,
        services.processes,
    )


def query_limit(replayed: Replayed, services: Services) -> float:
    """Return the seconds that one query may take."""
    return services.options.timeout or replayed.shown.timeout


def begin_early_script(
    reduction: Reduction, replayed: Replayed, services: Services, case: Case, waited: float, *, waiting: bool = False
) -> None:
    """Run a script of ``case``, of which nothing more can be removed, beside what is left of the reduction.

    It is left out where the final script is there soon: where queries are quick, and ``waited`` seconds since nothing
    more can be removed are few. For a hang it is run while the attempt is ``waiting`` to see whether the hang lasts.
    """
    shown, options = replayed.shown, services.options
    slow = replayed.seconds >= SLOW or replayed.head_start.case is not None
    worth = slow or waiting or waited >= PATIENCE
    if not worth or replayed.hangs is not waiting or shown.rate < 1.0 or replayed.entry == SCRIPT:
        return
    if not services.early.is_wanted():
        return
    case, blobs = _self_contained(reduction, services, case)
    emitter, queries, failure = _emitter(reduction, replayed, services, case), reduction.log.total, replayed.failure

    def make() -> Draft:
        return emitter.early_draft(case, blobs, failure=failure, queries=queries, embed=options.embed_data)

    services.early.begin(emitter, make)


def draft(reduced: Reduced, services: Services) -> Drafted:
    """Store the reduced case as the best one, render its script and run it in fresh processes."""
    reduction, replayed = reduced.reduction, reduced.replayed
    case, blobs = _self_contained(reduction, services, reduced.case)
    reduction.steps.finish(case, blobs)
    reduction.store_numbers(case.graph.count, reduction.seconds, finished=False)
    reduction.tell(case.graph.count, "verifying the script")
    services.pool.scratch.put(blobs)
    hang = reduction.margin.failure(case)
    seen = (
        reduction.oracle.ask(case, fresh=True) if hang is None else Verdict(Outcome.SAME, signature(hang), hang)
    )  # fmt: skip
    failure = seen.failure if seen.same else None
    render = partial(
        _emitter(reduction, replayed, services, case).draft,
        case,
        blobs,
        failure=failure or replayed.failure,
        queries=reduction.log.total,
        runs=services.options.runs,
        embed=services.options.embed_data,
        replays=replayed.shown.seldom(),
        installed=services.installed(replayed.case, replayed.shown.failures),
        complete=reduced.complete,
        evidence=partial(_evidence, replayed, services, case, failure),
    )
    try:
        return Drafted(reduced, case, seen, services.early.tell_while(render))
    except NeedsData as error:
        return Drafted(reduced, case, seen, None, f"{error}: {services.again('--embed-data')}")
    except (Unprintable, CannotLoad) as error:
        return Drafted(reduced, case, seen, None, f"no script can be printed: {error}")


def store(drafted: Drafted, services: Services) -> Verified:
    """Store the script with the record of its verification."""
    reduced, case, seen = drafted.reduced, drafted.case, drafted.seen
    failure = seen.failure if seen.same else None
    if drafted.draft is None:
        return Verified(
            reduced, case, State.UNVERIFIED, drafted.reason, shown_fresh=seen.same, failure=failure, printable=False
        )
    state, reason = _emitter(reduced.reduction, reduced.replayed, services, case).store(drafted.draft)
    shown, runs = drafted.draft.done.shown, drafted.draft.done.runs
    services.listener(ScriptVerified(services.capture.id, shown, runs))
    if state is State.UNVERIFIED and not seen.same:
        reason += "; nor does a fresh process show it: it may need what came before it, such as other graphs"
    return Verified(reduced, case, state, reason, shown / runs, seen.same, failure)


def verify_script(reduced: Reduced, services: Services) -> Verified:
    """Draw up the script of a reduced case, run it and store it."""
    return store(draft(reduced, services), services)


def _self_contained(reduction: Reduction, services: Services, case: Case) -> tuple[Case, Blobs]:
    """``case`` with the libraries and the shapes that its script needs, and its storages."""
    case = replace(case, imports=libraries.needed_by(case))
    if lacks_shapes(case) and (trace := reduction.study(case)) is not None:
        case = with_shapes(case, trace)
    return content_addressed(case, services.pool.scratch)


def _emitter(reduction: Reduction, replayed: Replayed, services: Services, case: Case) -> Emitter:
    return services.emitter(replayed.script_matcher, reduction.margin.alarm(case))


def _evidence(replayed: Replayed, services: Services, case: Case, seen: Failure | None, summed: bool) -> Failure | None:
    """The failure of ``case`` with the figures of a comparison with float64: ``seen``, unless the script takes the
    gradients of the sum of the outputs. Then a further run does so, too."""
    if not summed or replayed.entry == SCRIPT:
        return None if summed else seen
    argument = tasks.observe_argument(case, replayed.entry, replayed.shown.threads, summed=True)
    limit = query_limit(replayed, services)
    failure = of_reply(services.pool.submit("observe", argument, timeout=limit).result()).failure
    return None if failure is None else replayed.shown.matcher.find(failure)
