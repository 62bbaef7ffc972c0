"""An attempt at a replayed case through one entry to the backend: reduce it, and verify and explain its script.

Queries of the search are logged before they are sent, so a second run repeats none of them; see
`fxminify.minifier.oracle.scheduler`. Replays and the checks that need the failure itself are not logged: whether a case
fails through another entry, the check of the final case, and the query about the remaining failures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...store.document.case import Case
from ...store.index import State
from ..candidate.hop_calls import with_distinct_names
from ..candidate.trace import Trace
from ..oracle import tasks
from ..oracle.hang_margin import MARGIN
from ..oracle.oracle import Oracle
from ..oracle.replay import LIMIT
from ..oracle.scheduler import Budget, BudgetSpent, QueryScheduler
from ..oracle.verdict import Verdict
from ..passes import installed
from ..reducer.hints import blamed, named
from ..reducer.history import EXPLAIN
from ..sandbox.launcher import SandboxError
from ..sandbox.pool import Ended, Pool
from . import explaining, needed_variables
from .reduction import SCRIPT, Reduction, Search
from .results import STOPPED
from .script_oracle import ScriptOracle
from .scripts import begin_early_script, query_limit, script_oracle, verify_script
from .services import Services, workers_at_a_time
from .stages import Reduced, Replayed, Verified
from .verdict_log import VerdictLog

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
    * ``next`` is what must be reduced next: after the reduced graph of a hang turned out to be only slow, or after
      the script of the reduced graph did not show the failure.
    """

    reduction: Reduction
    state: State
    reason: str
    nodes: int
    queries: int
    seconds: float
    complete: bool
    final: bool
    next: Replayed | None = None


def shows(replayed: Replayed, services: Services) -> bool:
    """Whether the whole case fails through its entry. For the entry that the replays chose this is known."""
    return replayed.entry == replayed.shown.entry or _oracle(replayed, services).ask(replayed.case).same


def attempt(replayed: Replayed, services: Services, *, before: int = 0) -> AttemptResult:
    """Reduce a replayed case, and write, verify and explain its script.

    ``before`` counts the queries of the attempts before this one.
    """
    reduced = reduce(replayed, services, before=before)
    if not reduced.reduction.margin.lasts(reduced.case):
        short = "what is left of the hang only takes long"
        unverified = Verified(reduced, reduced.case, State.UNVERIFIED, short)
        store_numbers(_result(unverified), finished=False)
        following = with_longer_limits(reduced)
        return replace(_result(unverified), next=following)  # with the queries that this asked
    verified = verify_script(reduced, services)
    if is_rare(verified) and not services.spent():
        verified = more_reliable(verified, services)
    if (earlier := after_the_last_shown(verified, services)) is not None:
        return earlier
    verified = with_needed_variables(verified, services)
    explaining.explain(verified, services)
    if verified.reduced.complete:
        return _result(verified)
    stopped = f"{STOPPED}; to go on: {services.again()}"
    return _result(replace(verified, reason="; ".join(filter(None, (verified.reason, stopped)))))


def reduce(replayed: Replayed, services: Services, *, before: int = 0) -> Reduced:
    """Search for the smallest case that fails through the entry of ``replayed``.

    ``before`` counts the queries of the attempts before this one. Raises `SandboxError` if the workers cannot work.
    """
    began = time.monotonic()
    config = {
        "entry": replayed.entry,
        "match": services.options.match,
        "error_regex": services.options.error_regex,
        **({} if services.options.min_rate is None else {"min_rate": services.options.min_rate}),
        **({"from": list(replayed.begun)} if replayed.begun is not None else {}),
        **({"timeout_factor": replayed.timeout_factor} if (replayed.timeout_factor or 1.0) != 1.0 else {}),
    }
    id = services.index.reductions.begin(services.capture.id, config, ours=services.agreed.ours).id
    log = VerdictLog(services.index, id, before=before)
    _use_head_start(replayed, log)
    start = with_distinct_names(replayed.case)
    trace = _record(start, services)
    first = explaining.first_node_that_differs(replayed, services, trace) if explaining.is_large(start) else None
    captured = services.index.captures.get(services.capture.id).failure
    failures = [replayed.failure, *filter(None, [captured])]
    hints = named(start, failures, first)
    table = installed()
    for problem in table.problems:
        services.note(f"passes that could not be loaded: {problem}")
    search = Search(
        start,
        trace,
        replayed.shown.failures,
        replayed.shown.rate,
        query_limit(replayed, services),
        replayed.timeout_factor,
        began,
        (replayed.head_start.nodes, *hints) if replayed.head_start.nodes else hints,
        blamed(start, failures, first),
        table.passes,
    )
    oracle = _oracle(replayed, services)
    scheduler = QueryScheduler(oracle, jobs=_jobs(replayed, services), log=log, budget=services.budget)

    def small(case: Case, waited: float) -> None:
        begin_early_script(reduction, replayed, services, case, waited)

    reduction = Reduction(search, services, oracle, scheduler, log, small)
    most = Budget(MOST_QUERIES + PER_NODE * len(start.graph.compute))
    with _time_for_the_script(reduction, replayed, services), scheduler.limited(most):
        found = reduction.run()
    begin_early_script(reduction, replayed, services, found.case, 0.0, waiting=True)
    return Reduced(replayed, reduction, found)


def with_longer_limits(reduced: Reduced) -> Replayed:
    """Return what to reduce after a hang whose result ends by itself: the last step that does not, with longer limits.

    If there is no such step, the same case again, whose result is accepted.
    """
    replayed, reduction = reduced.replayed, reduced.reduction
    cases = [reduction.search.start, *(case for case, _ in reduction.path)]
    number = reduction.margin.last_that_lasts(cases)
    if number is None:
        return replace(replayed, timeout_factor=1.0)
    return replace(_from_step(reduced, number), case=cases[number], timeout_factor=MARGIN)


def is_rare(verified: Verified) -> bool:
    """Whether the script shows the failure less often than the replays did.

    If it never does but a fresh worker does, other entries must be tried instead.
    """
    if not verified.printable or not verified.reduced.complete:
        return False
    if not verified.share:
        return not verified.shown_fresh
    return verified.share < verified.reduced.replayed.shown.rate


def more_reliable(verified: Verified, services: Services) -> Verified:
    """An earlier case of the reduction whose script shows the failure more often, if there is one."""
    reduced = verified.reduced
    replayed, reduction = reduced.replayed, reduced.reduction
    other = reduction.doubted()
    if other is None and verified.share and replayed.shown.rate >= 1.0:
        other = reduction.more_reliable(script_oracle(replayed, services))
    if other is None:
        return verified
    better = verify_script(replace(reduced, found=other), services)
    if better.printable and better.share >= verified.share:
        return better
    reduction.keep(reduced.case)
    return verify_script(reduced, services)


def after_the_last_shown(verified: Verified, services: Services) -> AttemptResult | None:
    """Emit the last step whose script shows the failure, where the minimal case shows it in workers only.

    The next attempt begins there, through the entry that tells this step from the next one. Return None where no step
    needs to be undone, or where not even the script of the start shows the failure.
    """
    reduced = verified.reduced
    replayed, reduction = reduced.replayed, reduced.reduction
    wanted = verified.printable and not verified.share and replayed.shown.rate >= 1.0
    if not wanted or replayed.hangs or replayed.entry == SCRIPT or services.spent():
        return None
    reduction.tell(verified.case.graph.count, "looking for the last script that shows it")
    number = reduction.last_shown(script_oracle(replayed, services))
    if number is None:
        return None
    misleading = reduction.path[number][0]
    found = reduction.back_to(number)
    services.note(
        f"workers show the failure in what is left, its script does not: the reduction continues with step {number}"
    )
    result = _result(verify_script(replace(reduced, found=found), services))
    store_numbers(result, finished=False)
    entry = SCRIPT
    if replayed.entry != "compile":
        compile = _oracle(replace(replayed, entry="compile", timeout_factor=None), services)
        if not compile.ask(misleading).same and compile.ask(found.case).same:
            entry = "compile"
    return replace(result, next=replace(_from_step(reduced, number), case=found.case, entry=entry, timeout_factor=None))


def with_needed_variables(verified: Verified, services: Services) -> Verified:
    """``verified`` with a script that sets no environment variable that the failure does not need."""
    reduced = verified.reduced
    wanted = verified.state is State.VERIFIED and reduced.complete and bool(verified.case.backend.get("variables"))
    if not wanted or reduced.replayed.hangs or services.spent():
        return verified
    reduced.reduction.tell(verified.case.graph.count, "finding out which variables matter")
    script, scheduler = script_oracle(reduced.replayed, services), reduced.reduction.scheduler

    def ask(case: Case) -> Verdict:
        return scheduler.ask_once(f"{scheduler.key(case)}/variables", EXPLAIN, lambda: script.ask(case))

    try:
        found = needed_variables.find(ask, reduced.case)
    except BudgetSpent:
        return verified
    if found.case == reduced.case:
        return replace(verified, variables=found.features)
    fewer = verify_script(replace(reduced, found=replace(reduced.found, case=found.case)), services)
    if fewer.state is not State.VERIFIED:
        fewer = verify_script(reduced, services)
    return replace(fewer, variables=found.features)


def store_numbers(result: AttemptResult, *, finished: bool) -> None:
    """Store how a reduction ended. A later run resumes it unless it is ``finished``."""
    result.reduction.store_numbers(result.nodes, result.seconds, finished=finished)


def _result(verified: Verified) -> AttemptResult:
    reduction, complete = verified.reduced.reduction, verified.reduced.complete
    final = verified.state is State.VERIFIED or not verified.printable or not complete
    return AttemptResult(
        reduction, verified.state, verified.reason, verified.case.graph.count, reduction.log.total, reduction.seconds,
        complete, final,
    )  # fmt: skip


def _oracle(replayed: Replayed, services: Services) -> Oracle | ScriptOracle:
    """The oracle of the search through the entry of ``replayed``."""
    if replayed.entry == SCRIPT:
        return script_oracle(replayed, services)
    oracle = replace(
        replayed.shown.oracle(services.pool, services.options.min_rate),
        entry=replayed.entry,
        timeout=query_limit(replayed, services),
    )
    # With longer limits a slow candidate is where a hang would be, too: only time tells.
    return oracle if replayed.timeout_factor is None else oracle.in_full_time(replayed.timeout_factor)


def _jobs(replayed: Replayed, services: Services) -> int:
    """Return the number of workers that answer queries at a time."""
    pool = services.pool
    started, peak = (pool.jobs, pool.peak) if isinstance(pool, Pool) else (1, 0)
    return workers_at_a_time(services.options.jobs, started, replayed.seconds, peak)


def _use_head_start(replayed: Replayed, log: VerdictLog) -> None:
    """Log the answers of the head start, if it asked in the same way."""
    head_start = replayed.head_start
    if (replayed.entry, replayed.shown.threads) != (head_start.entry, head_start.threads):
        return
    for key, (name, verdict) in head_start.verdicts.items():
        if key not in log.known:
            log.asked(key, name)
            log.answered(key, verdict)
        if key in head_start.used:
            log.used(key, name)


def _record(case: Case, services: Services) -> Trace:
    """The values of one eager run, made in a worker."""
    reply = services.pool.submit("record", tasks.record_argument(case), timeout=LIMIT).result()
    if reply.ended is not Ended.DONE:
        raise SandboxError(f"recording the values of the graph ended in {reply.ended}: {reply.error}")
    return Trace.from_json(reply.result)


def _from_step(reduced: Reduced, number: int) -> Replayed:
    """``reduced.replayed`` as it continues from a step of its reduction; 0 stands for its start."""
    replayed = reduced.replayed
    return replace(replayed, begun=(reduced.reduction.log.reduction, number)) if number else replayed


@contextmanager
def _time_for_the_script(reduction: Reduction, replayed: Replayed, services: Services) -> Iterator[None]:
    """Inside this context the budget leaves the seconds that the verification of the script is going to take."""
    budget = services.budget
    takes = reduction.margin.alarm(replayed.case) if replayed.hangs else replayed.seconds
    budget.reserve = min(_KEPT * (budget.seconds or 0.0), _VERIFYING + takes)
    try:
        yield
    finally:
        budget.reserve = 0.0
