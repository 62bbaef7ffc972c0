"""The head start: a small part of the captured graph that fails as captured, found before the graph is replayed.

A run of the whole graph takes about as long as the program took to fail, and the replays are several. But mostly the
failure names its culprit, or any operator of the culprit's kind fails alone. So these are tried at once
(`minifier.passes.nodes.guesses`), with the captured failure in the place of what the replays would show. If one of them
fails in this way, it is replayed instead of the whole graph. It is also the first hint of the search, which then begins
as it always does. The answers are logged, so nothing is asked again.

Where none of them fails, the whole graph is replayed, and nothing is lost but these queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...store.document.case import Case
from ...store.failure import Failure, FailureKind, Phase
from ...store.index import Index
from ...store.matching import FailureMatcher
from ...store.signature import signature
from ..candidate.hop_calls import paths, with_distinct_names
from ..candidate.trace import Trace
from ..oracle import first_node, tasks
from ..oracle.oracle import Oracle
from ..oracle.replay import numbers_of_threads
from ..oracle.scheduler import Budget, MemoryLog, QueryScheduler
from ..oracle.verdict import Verdict
from ..passes import Pass, nodes
from ..reducer.hints import blamed, named
from ..reducer.shrinker import Shrinker
from ..sandbox.pool import Ended, Workers

#: Smaller graphs are replayed at once.
LEAST_NODES = 8
#: Seconds that one query may take. A part of the graph that takes longer is no help.
LIMIT = 120.0
#: Its answers count as answers of the pass `slices`.
_GUESSES = Pass("slices", "Keeps what the failure names, or one of each operator.", nodes.guesses, one_shot=True)


@dataclass(frozen=True, slots=True)
class HeadStart:
    """The result of the search for a small failing part.

    * ``case`` fails as captured, with ``failure``, through ``entry`` and with ``threads`` threads of torch. It is
      None if no part was found.
    * ``verdicts`` are the verdicts of the queries by key, with the name of the pass that asked. ``used`` has the
      keys of needed queries; the others were sent ahead.
    * ``others`` are the cases that failed in another way.
    * ``looked_for_first``: the first node that differs was queried.
    * ``certain`` is False if the captured failure lacks a part of its signature, such as the stack of a crash. Then
      another bug may look alike.
    """

    case: Case | None = None
    failure: Failure | None = None
    entry: str = ""
    threads: int = tasks.OWN_THREADS
    certain: bool = True
    verdicts: Mapping[str, tuple[str, Verdict]] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    others: tuple[tuple[Case, Verdict], ...] = ()
    looked_for_first: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the compute nodes that were found."""
        return () if self.case is None else tuple(node.name for node in self.case.graph.compute)


class _Log(MemoryLog):
    """Remembers which pass asked, and which answers were needed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, str] = {}
        self.needed: set[str] = set()

    def asked(self, key: str, name: str) -> None:
        self.names[key] = name

    def used(self, key: str, name: str) -> None:
        self.needed.add(key)


def is_worth(case: Case, captured: Failure) -> bool:
    """Whether a replay of the whole of ``case`` costs more than to `look` for a part. Of a hang, each query takes all
    of its time."""
    large = len(case.graph.compute) >= LEAST_NODES
    return large and captured.kind is not FailureKind.HANG and not case.earlier and case.calls == 1


def look(
    index: Index, capture_id: int, pool: Workers, case: Case, matcher: FailureMatcher, *, jobs: int, budget: Budget
) -> HeadStart:
    """Look for a small part of ``case`` that shows the captured failure. The storages of ``case`` are in the pool's
    scratch directory. Raises `SandboxError` where the workers cannot work."""
    (captured,) = matcher.examples
    start = with_distinct_names(case)
    reply = pool.submit("record", tasks.record_argument(start), timeout=LIMIT).result()
    if reply.ended is not Ended.DONE:
        return HeadStart()
    trace = Trace.from_json(reply.result)
    entry = "compile" if captured.phase is Phase.GUARDS or paths(case.graph) else "direct"
    first, looked = _first_node(index, capture_id, pool, case, trace, captured, entry)
    hints = named(start, [captured], first)
    if captured.kind is FailureKind.DIVERGENCE and first is None:
        return HeadStart(looked_for_first=looked)
    others: list[tuple[Case, Verdict]] = []
    for threads in numbers_of_threads(case, captured):
        others.clear()
        log = _Log()
        oracle = Oracle(pool, matcher, timeout=LIMIT, entry=entry, threads=threads)
        scheduler = QueryScheduler(oracle, jobs=jobs, log=log, budget=budget)
        shrinker = Shrinker(
            scheduler, pool.scratch, passes=(_GUESSES,), hints=hints, blamed=blamed(start, [captured], first),
            other=lambda found, verdict: others.append((found, verdict)),
        )  # fmt: skip
        found = shrinker.run(start, trace).case
        verdict = log.known.get(scheduler.key(found))
        if verdict is None or verdict.failure is None or found.graph.count > nodes.SMALL_PART * start.graph.count:
            continue
        verdicts = {key: (log.names[key], verdict) for key, verdict in log.known.items()}
        certain = _is_certain(captured, verdict.failure)
        return HeadStart(
            found, verdict.failure, entry, threads, certain, verdicts, frozenset(log.needed), tuple(others), looked
        )  # fmt: skip
    return HeadStart(looked_for_first=looked)


def _first_node(
    index: Index, capture_id: int, pool: Workers, case: Case, trace: Trace, captured: Failure, entry: str
) -> tuple[str | None, bool]:
    """The first node whose value differs, and whether a worker was asked."""
    if captured.kind is not FailureKind.DIVERGENCE:
        return None, False
    known = first_node.stored(index, capture_id)
    if known is None:
        known = first_node.find(pool, case, trace, captured, entry, LIMIT)
        if known is None:
            return None, True
        first_node.keep(index, capture_id, known)
    return str(known.get("node", "")), True


def _is_certain(captured: Failure, seen: Failure) -> bool:
    """Whether the captured failure has every part of the signature of ``seen``."""
    want, have = signature(captured), signature(seen)
    diagnosed = bool(want.diagnostics) or not have.diagnostics
    return diagnosed and (bool(want.origin) or not have.origin or captured.kind is not FailureKind.CRASH)
