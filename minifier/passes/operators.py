"""Passes for higher-order operators: inline their subgraphs, or make the subgraphs smaller.

`within` applies a pass of the top-level graph to each subgraph. Other passes edit what a subgraph returns and takes,
which must fit its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...store.document.case import Graph, tag
from ..candidate.graph_view import GraphView
from ..candidate.hop_calls import HopCall, hop_calls, items, paths
from ..candidate.hop_calls import subgraph as graph_at
from ..candidate.inlining import Inline
from ..candidate.patch import Patch
from ..candidate.subgraphs import (
    Inside,
    Operand,
    OperatorResult,
    Shift,
    Slot,
    SubgraphView,
    Zeros,
    picks,
    slots,
    subgraphs,
)
from ..candidate.trace import ValueKind
from . import ends, reroute
from .proposal import Proposal, each
from .searches import farthest, sweep

Propose = Callable[[GraphView, int], Proposal | None]


def flatten(view: GraphView, step: int) -> Proposal | None:
    """Inline all calls at once, then the calls that were inside of them."""
    edits = _inlines(view)
    return Proposal((Patch(edits=edits),), lambda: sweep((0,)), again=True) if edits and step == 0 else None


def inline(view: GraphView, step: int) -> Proposal | None:
    """Inline calls in the top-level graph, one call in each patch."""
    edits = _inlines(view)
    return each(tuple(Patch(edits=(edit,)) for edit in edits)) if edits and step == 0 else None


def _inlines(view: GraphView) -> tuple[Inline, ...]:
    return tuple(Inline(name) for name in dict.fromkeys(c.node.name for c in hop_calls(view.case.graph)))


def within(propose: Propose) -> Propose:
    """The pass that merges the patches of ``propose`` for all subgraphs into one proposal."""

    def inner(view: GraphView, step: int) -> Proposal | None:
        made = [(b.path, p) for b in subgraphs(view) if (p := propose(b, step)) is not None]
        if not made:
            return None
        return each(tuple(Patch(edits=(Inside(path, patch),)) for path, p in made for patch in p.patches if patch))

    return inner


subgraph_nodes = within(lambda view, step: each(tuple(map(_drop, view.atoms))) if step == 0 else None)
subgraph_skip_to_operand = within(reroute.skip_to_operand)
subgraph_dead = within(lambda view, step: ends.dead(view, step) if step == 0 else None)


def _drop(atom: tuple[str, ...]) -> Patch:
    return Patch(drop=frozenset(atom))


def subgraph_replace_with_ancestor(view: GraphView, step: int) -> Proposal | None:
    """`reroute.replace_with_ancestor` for one subgraph after the other."""
    for inner in subgraphs(view):
        if step < len(inner.compute):
            found = reroute.replace_with_ancestor(inner, step)
            if found is None:
                return each(())
            patches = tuple(Patch(edits=(Inside(inner.path, patch),)) for patch in found.patches)
            return Proposal(patches, found.search, again=found.again)
        step -= len(inner.compute)
    return None


def subgraph_zeros(view: GraphView, step: int) -> Proposal | None:
    """A patch that makes each node of each subgraph zeros; a search begins with the last nodes."""
    found = [Zeros(b.path, name) for b in subgraphs(view) for name in b.compute if b.tensor(name) is not None]
    if not found or step > 0:
        return None
    return Proposal(tuple(Patch(edits=(edit,)) for edit in found), lambda: sweep(range(len(found))))


def subgraph_ends(view: GraphView, step: int) -> Proposal | None:
    """Remove results that nothing reads, and operands that no subgraph reads; then return earlier values instead."""
    graphs = [(path, graph_at(view.case.graph, path)) for path in ((), *paths(view.case.graph))]
    made = [(path, graph, call) for path, graph in graphs for call in hop_calls(graph)]
    if not made:
        return None
    if step < len(_ENDS):
        kind, places = _ENDS[step]
        return each(
            tuple(
                Patch(edits=(kind(path, call.node.name, call.paths[0], i),))
                for path, graph, call in made
                for i in places(graph, call)
            )
        )
    ends = [
        (SubgraphView(view.case, (*path, call.paths[0]), view.trace), i, value["ref"])
        for path, graph, call in made
        if call.spread and call.free
        for i, value in enumerate(items(graph.attrs[call.paths[0]]["graph"].output.args[0]))
        if tag(value) == "ref"
    ]
    step -= len(_ENDS)
    return _earlier(*ends[step]) if step < len(ends) else None


def _unread_results(graph: Graph, call: HopCall) -> list[int]:
    """The indices of the results of ``call`` that nothing reads; none if a node reads the call as a whole."""
    picked = picks(graph, call.node.name)
    returned = (len(items(graph.attrs[path]["graph"].output.args[0])) for path in call.paths)
    return [] if picked is None else [i for i in range(max(returned)) if i not in picked.values()]


#: The edits of `subgraph_ends` by step, and the indices in a call at which each may be tried.
_ENDS: tuple[tuple[type[OperatorResult | Operand | Slot], Callable[[Graph, HopCall], Iterable[int]]], ...] = (
    (OperatorResult, _unread_results),
    (Operand, lambda graph, call: range(len(call.operands))),
    (Slot, lambda graph, call: range(len(slots(call.node)))),
)


def _earlier(inner: SubgraphView, index: int, name: str) -> Proposal:
    """Return, instead of ``name`` at ``index``, a value that it depends on, the earliest possible."""
    own = inner.ancestors[name]
    sources = [
        s
        for s in inner.compute
        if s != name
        and own >> inner.position[s] & 1
        and inner.value(s).kind is ValueKind.TENSOR
        and inner.value(s).snapshots
    ]
    patches = tuple(Patch(edits=(Shift(inner.path, index, s),)) for s in sources)
    return Proposal(patches, lambda: farthest((1.0,) * len(patches)), again=True)
