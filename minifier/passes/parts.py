"""Replace composite operations by their parts, because often one part fails alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...store.document.case import Graph
from ..candidate.graph_view import GraphView
from ..candidate.hop_calls import hop_calls, items, subgraph
from ..candidate.patch import Patch
from ..candidate.rewriting import TakeApart, editable
from ..candidate.subgraphs import Inside, Shift, SubgraphView, graphs
from ..candidate.trace import ValueKind
from .proposal import Proposal, each
from .searches import alone, one_of


def propose(view: GraphView, step: int) -> Proposal | None:
    """Each step replaces one node, which may be in a subgraph, by its decomposition, and keeps one part of that."""
    parts = view.trace.parts
    composite = [(path, n.name) for path, inner in graphs(view) for n in editable(inner) if n.name in parts]
    if step >= len(composite):
        return None
    path, name = composite[step]
    edit = TakeApart(path, name)
    case = edit.apply(view)
    if case is view.case:
        return each(())
    own = [n.name for n in parts[name].compute]
    base = Patch(edits=(edit,))
    if path:
        inner, outer = SubgraphView(case, path, view.trace), subgraph(case.graph, path[:-1])
        found = tuple(_in_subgraph(inner, outer, own, parts[name].output.inputs))
        return Proposal(found, lambda: one_of(len(found)), base=base) if found else each(())
    atoms = [atom for atom in GraphView(case, view.trace).atoms if not set(own).isdisjoint(atom)]
    if any(not set(own).issuperset(atom) for atom in atoms):
        return each(())
    patches = tuple(Patch(drop=frozenset(atom)) for atom in atoms)
    return Proposal(patches, lambda: alone(len(patches)), base=base)


def _in_subgraph(inner: SubgraphView, outer: Graph, own: list[str], results: Sequence[str]) -> Iterator[Patch]:
    """A patch for each part that the subgraph can return instead of the result of all parts.

    A part of another shape can be returned if the subgraph is the only one of its call. All parts that the subgraph
    does not return are dead.
    """
    if len(results) != 1:
        return
    (result,) = results
    returned = items(inner.case.graph.output.args[0])
    alone = [c for c in hop_calls(outer) if inner.path[-1] in c.paths and len(c.paths) == 1]
    at = returned.index({"ref": result}) if alone and {"ref": result} in returned else None
    for name in own:
        if inner.value(name).kind is not ValueKind.TENSOR:
            continue
        rest = frozenset(own) - {name}
        if name == result:
            yield Patch(edits=(Inside(inner.path, Patch(drop=rest)),))
        elif inner.tensor_type(name) == inner.tensor_type(result):
            yield Patch(edits=(Inside(inner.path, Patch(drop=rest, replace={result: {"ref": name}})),))
        elif at is not None:
            yield Patch(edits=(Shift(inner.path, at, name), Inside(inner.path, Patch(drop=rest))))
