"""`fxminify.reduce`: the reducer alone, in this process, for a predicate of your own.

Takes the arguments of ``torch._functorch.fx_minifier.minifier``. The given graph and inputs are never changed: every
call of the predicate gets its own module and tensors. Functions without a public name (a local function, an operator
of a library) stay live objects, so any graph this process can hold can be reduced. Recorded values lie on disk: memory
holds the caller's tensors and the tensors of one run, never more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..store.document.case import Blobs, Case
from .candidate.hop_calls import with_distinct_names
from .candidate.trace import Trace
from .candidate.validity import Way
from .oracle.scheduler import Budget, QueryScheduler
from .oracle.verdict import Outcome, Verdict
from .passes import Stage, in_stage, installed
from .reducer.shrinker import Progress, Shrinker
from .tracing.spill import Spill

if TYPE_CHECKING:
    import torch.fx as fx

    Fails = Callable[[fx.GraphModule, list[Any]], bool]
    DumpState = Callable[[fx.GraphModule, list[Any]], None]


def reduce(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    fails: Fails,
    dump_state: DumpState | None = None,
    *,
    max_queries: int | None = None,
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    stages: Collection[str] = tuple(Stage),
) -> tuple[fx.GraphModule, list[Any]]:
    """The smallest graph found for which ``fails`` is true, and the plainest inputs found for it.

    ``fails(gm, inputs)`` is called with candidates; an exception it raises counts as *not failing*, so catch the one
    you are after. Late in the search, a candidate that eager refuses is not asked about. ``dump_state`` is called with
    every better failing graph, ``progress`` after every query. ``max_queries`` counts calls of ``fails``, the first
    one, on the graph itself, included; ``seconds`` are of wall time.

    Shapes, strides and dtypes of ``inputs`` are kept by the first two stages; only the last one changes them.

    ``stages`` says what is done, see `minify passes`:

    * ``remove``: candidates are subsets of ``gm``, whose missing values are given as inputs. No compute node, input or
      returned value of the result can go, nor can a node be replaced by one of its inputs;
    * ``replace``: a node may become a plainer operation, read an earlier result, or lose arguments;
    * ``canonicalize``: inputs may get other values, sizes, types and strides, and need no gradients any more.

    PyTorch's minifier (``torch/_functorch/fx_minifier.py``) does the first of these: ``stages=["remove"]`` keeps every
    value as it was. All promises hold unless the budget ended the search.

    Raises ``RuntimeError`` when ``gm`` does not fail, ``ValueError`` when a stage is unknown.
    """
    from ..store.live.encode import encode
    from .tracing.recorder import record

    wanted = [Stage(stage) for stage in stages]
    live: list[object] = []
    blobs = Spill()
    encoded = encode(gm, inputs, live=live, put=blobs.write)
    case = with_distinct_names(Case(encoded.graph, encoded.inputs, encoded.tensors))
    predicate = _Predicate(fails, blobs, live)
    if not predicate.ask(case).same:
        raise RuntimeError("nothing to reduce: the predicate is false for the graph given")
    trace = record(case, blobs, put=blobs.write, live=live)
    budget = Budget(None if max_queries is None else max_queries - 1, seconds)
    scheduler = QueryScheduler(predicate, budget=budget)

    def study(best: Case) -> Trace:
        from .tracing.study import study

        return study(best, blobs, put=blobs.write, live=live, prefix=f"{scheduler.key(best)[:12]}:")

    shrinker = Shrinker(
        scheduler,
        blobs,
        passes=in_stage(*wanted, passes=installed().passes),
        study=study,
        validator=_Validator(live),
        progress=progress,
        accepted=None if dump_state is None else lambda best, _: dump_state(*predicate.build(best)),
    )
    return predicate.build(shrinker.run(case, trace).case)


class _Validator:
    """Tells which candidates eager accepts, in this process."""

    def __init__(self, live: list[object]) -> None:
        self._live = live

    def way(self, base: Case) -> Way:
        from .tracing.validity import way

        return way(base, live=self._live)

    def valid(self, way: Way, candidates: Sequence[Case]) -> list[bool]:
        from .tracing.validity import validity

        return validity(way, candidates, live=self._live)

    def obeys_rules(self, cases: Sequence[Case]) -> None:
        """Not found out: Dynamo in this process belongs to the caller."""


class _Predicate:
    """The caller's function as an oracle."""

    def __init__(self, fails: Fails, blobs: Blobs, live: list[object]) -> None:
        self._fails = fails
        self._blobs = blobs
        self._live = live

    def build(self, case: Case) -> tuple[fx.GraphModule, list[Any]]:
        from ..store.live.build import build

        return build(case, self._blobs, live=self._live)

    def ask(self, case: Case) -> Verdict:
        from ..store.live.modes import as_it_was

        gm, inputs = self.build(case)
        try:
            # A candidate may keep the node that switches something on and lose, or never reach, the one that undoes it.
            with as_it_was():
                same = bool(self._fails(gm, inputs))
        except Exception as exc:  # noqa: BLE001 - the caller's predicate may raise anything on a graph it did not expect
            return Verdict(Outcome.INVALID, detail=f"{type(exc).__name__}: {exc}")
        return Verdict(Outcome.SAME if same else Outcome.PASS)
