"""`fxminify.reduce`: the reducer alone, in this process, for a predicate of your own.

Takes what ``torch._functorch.fx_minifier.minifier`` takes. The graph and the inputs given are never touched: every
call of the predicate gets a module and tensors of its own. Functions without a public name (a local function, an
operator of a library) stay live objects, so any graph this process can hold can be reduced. Recorded values lie on
disk: at no time are there more tensors than the caller's own and those of one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..store.document.case import Blobs, Case
from .oracle.verdict import Outcome, Verdict
from .reducer.account import Progress
from .reducer.engine import Engine
from .tracing.hop_calls import with_distinct_names
from .tracing.spill import Spill
from .tracing.trace import record

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
) -> tuple[fx.GraphModule, list[Any]]:
    """The smallest graph found for which ``fails`` is true, and inputs for it.

    ``fails(gm, inputs)`` is called with graphs that are subsets of ``gm``, whose missing values are given as inputs;
    an exception it raises counts as *not failing*, so catch the one you are after. ``dump_state`` is called with
    every smaller failing graph. ``max_queries`` counts calls of ``fails``, the first one, on the graph itself,
    included. No compute node, input or returned value of the result can go, nor can a node be replaced by one of its
    inputs, unless the budget ended the search.

    Raises ``RuntimeError`` when ``gm`` does not fail.
    """
    from ..store.live.encode import encode

    live: list[object] = []
    blobs = Spill()
    encoded = encode(gm, inputs, live=live, put=blobs.put)
    case = with_distinct_names(Case(encoded.graph, encoded.inputs, encoded.tensors))
    predicate = _Predicate(fails, blobs, live)
    if not predicate.ask(case).same:
        raise RuntimeError("nothing to reduce: the predicate is false for the graph given")
    trace = record(case, blobs, put=blobs.put, live=live)
    engine = Engine(
        predicate,
        max_queries=None if max_queries is None else max_queries - 1,
        seconds=seconds,
        progress=progress,
        accepted=None if dump_state is None else lambda best, _: dump_state(*predicate.build(best)),
    )
    return predicate.build(engine.run(case, trace).case)


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
