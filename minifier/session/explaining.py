"""Explain a minimal case whose script is verified: what matters, at which layer it fails, what the rest of the graph
does.

Nothing here may cost the script. The queries are logged; a run that was interrupted repeats none of them. Only the
query about the rest of the graph is not logged, because its failure is needed.
"""

from __future__ import annotations

from dataclasses import replace

from ...store.document.case import Case
from ...store.index import State
from ..candidate.trace import Trace
from ..oracle import ablation, first_node, rest
from ..oracle.flakiness import VotingOracle
from ..oracle.oracle import Oracle, Votes
from ..oracle.verdict import Outcome, Verdict
from ..reducer.history import EXPLAIN
from ..reducer.validity import KnownValidity
from ..reporting import explanation, illustrations
from ..reporting.explain import Background
from ..reporting.explain import explain as what_matters
from ..reporting.luck import Luck, measuring
from ..sandbox.launcher import SandboxError
from . import layers
from .reduction import SCRIPT, Reduction
from .scripts import query_limit
from .services import Services
from .stages import Replayed, Verified
from .validation import Validation

#: The search of a graph of this size ends before the first node that differs is known.
_SMALL_GRAPH_NODES = 4
#: How many times the limit of a query the comparison of all values may take.
_VALUES_TIMES = 3


def explain(verified: Verified, services: Services) -> None:
    """Find out and store what is known about a minimal case besides its script, as far as the budget goes."""
    reduced = verified.reduced
    start = reduced.reduction.search.start
    if verified.state is State.VERIFIED and not services.spent():
        if not is_large(start):
            first_node_that_differs(reduced.replayed, services, reduced.reduction.search.trace)
        if services.options.explain and reduced.complete:
            luck = _find_what_matters(verified, services)
            _find_layer(verified, services, luck)
        if reduced.complete:
            _ask_about_the_rest(verified, services)
    if not services.spent():
        limit = query_limit(reduced.replayed, services)
        seen = illustrations.find(services.pool, verified.case, reduced.replayed.entry, limit)
        if seen:
            illustrations.keep(services.index, services.capture.id, seen)


def is_large(start: Case) -> bool:
    """Whether a search of ``start`` needs to know the first node that differs."""
    return len(start.graph.compute) > _SMALL_GRAPH_NODES


def first_node_that_differs(replayed: Replayed, services: Services, trace: Trace) -> str | None:
    """The first node whose value differs. This is asked once and, like the replays, not counted as a query."""
    known = first_node.stored(services.index, services.capture.id)
    if known is None and not replayed.head_start.looked_for_first and not services.spent():
        limit = _VALUES_TIMES * query_limit(replayed, services)
        known = first_node.find(services.pool, replayed.case, trace, replayed.failure, replayed.entry, limit)
        if known is not None:
            first_node.keep(services.index, services.capture.id, known)
    return None if known is None else str(known.get("node", ""))


def _find_what_matters(verified: Verified, services: Services) -> Luck | None:
    """Ask what of the result matters, and keep the answers: `fxminify.minifier.reporting.explain`.

    Return how often the result fails, None where it always does.
    """
    reduction, case = verified.reduced.reduction, verified.reduced.case
    scheduler, scratch, oracle = reduction.scheduler, services.pool.scratch, reduction.oracle
    if isinstance(oracle, Oracle):
        oracle = replace(oracle, timeout_factor=1.0)
        scheduler.switch_to(oracle)
    reduction.tell(case.graph.count, "finding out what matters")

    def again(case: Case, votes: Votes | None) -> Verdict:
        return oracle.ask(case, fresh=True, votes=votes)

    luck: Luck | None = None
    try:
        luck = _luck(verified, oracle)
        in_fresh_workers = isinstance(oracle, Oracle) or luck is not None
        background = Background(
            trace=reduction.study(case),
            steps=reduction.larger_cases(case),
            step_trace=verified.reduced.found.trace,
            again=again if in_fresh_workers else None,
            headline=verified.reduced.replayed.failure.headline(),
        )
        found = what_matters(
            case, scratch, scheduler, put=scratch.put, validity=_validity(reduction, services), background=background,
            luck=luck,
        )  # fmt: skip
    except Exception as error:  # the script is verified already: this must not cost it
        if services.options.strict:
            raise
        services.note(f"what matters could not be found out: {error!r}")
        return luck
    features = (*verified.variables, *found.features)
    found = replace(found, features=features, reduction=reduction.log.reduction)
    explanation.keep(services.index, services.capture.id, found)
    return luck


def _luck(verified: Verified, oracle: VotingOracle) -> Luck | None:
    """Measure how often the result fails. None where it always does."""
    shown, case = verified.reduced.replayed.shown, verified.reduced.case
    if verified.share >= 1.0 and shown.rate >= 1.0 and oracle.votes.runs == 1:
        return None
    votes = measuring(verified.reduced.replayed.seconds)
    scheduler = verified.reduced.reduction.scheduler
    key = f"{scheduler.key(case)}/{EXPLAIN}-rate"
    verdict = scheduler.ask_once(key, EXPLAIN, lambda: oracle.ask(case, votes=votes))
    return Luck(*verdict.counted)


def _find_layer(verified: Verified, services: Services, luck: Luck | None) -> None:
    """Ask at which layer the failure enters, and keep the answer, unless too many runs would be needed for it."""
    replayed, reduction, case = verified.reduced.replayed, verified.reduced.reduction, verified.case
    if replayed.entry == SCRIPT or (luck is not None and luck.refusal):
        return
    reduction.tell(case.graph.count, "looking for the layer")
    oracle = Oracle(
        services.pool, replayed.shown.matcher, query_limit(replayed, services), threads=replayed.shown.threads,
        votes=Votes() if luck is None else luck.votes,
    )  # fmt: skip
    try:
        found = layers.find(oracle, case, reduction.scheduler, reduction=reduction.log.reduction)
    except SandboxError as error:  # the script is verified already: this must not cost it
        services.note(f"the layer could not be looked for: {error}")
        return
    if found is not None:
        services.index.artifacts.save(services.capture.id, ablation.ARTIFACT, found.to_json())


def _ask_about_the_rest(verified: Verified, services: Services) -> None:
    """Find out what the replayed case does without the operations that the minimal case has.

    This is asked at the end of each complete attempt and, like the replays, not counted as a query.
    """
    replayed, reduction, minimal = verified.reduced.replayed, verified.reduced.reduction, verified.case
    search, oracle = reduction.search, reduction.oracle
    if replayed.hangs or replayed.entry == SCRIPT or services.spent():
        return
    try:
        found = rest.without(search.start, search.trace, minimal.graph)
        if found is None:
            return
        case, called = found
        if not all(_validity(reduction, services).obeys_rules(search.start, [case])):
            return
        reduction.tell(minimal.graph.count, "looking at the rest of the graph")
        verdict = oracle.ask(case)
        if verdict.outcome is Outcome.PASS:  # once may be luck
            verdict = oracle.ask(case, fresh=True)
        if verdict.same and verified.failure is not None and verdict.failure is not None:
            own = replace(replayed.shown.matcher, examples=(verified.failure,))
            if not own.shows(verdict.failure):  # of a list of operators it names others
                verdict = replace(verdict, outcome=Outcome.OTHER)
    except SandboxError as error:  # the script is verified already: this must not cost it
        services.note(f"the rest of the graph could not be asked about: {error}")
        return
    if verdict.outcome is Outcome.OTHER:
        services.others.add(case, verdict)
    said = verdict.failure.headline() if verdict.failure is not None else ""
    known = rest.Rest(called, case.graph.count, verdict.outcome, said)
    rest.keep(services.index, services.capture.id, known)


def _validity(reduction: Reduction, services: Services) -> KnownValidity:
    """The knowledge of workers about the validity of candidates."""
    return KnownValidity(Validation(services.pool, reduction.search.timeout), reduction.scheduler.key)
