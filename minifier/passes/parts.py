"""Take composite operations apart: often one part of them fails alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...store.document.case import Graph
from ..candidate.graph_view import Subject
from ..candidate.patch import Patch
from ..candidate.rewriting import TakeApart, editable
from ..candidate.subgraphs import BodySubject, Inside, Shift, graphs
from ..tracing.hop_calls import body, calls, items
from ..tracing.trace import Kind
from .proposal import Proposal, each
from .searches import alone, one_of


def propose(subject: Subject, step: int) -> Proposal | None:
    """One node a step, those of bodies as well: is its decomposition at fault, and one part of that?"""
    parts = subject.trace.parts
    composite = [(path, n.name) for path, inner in graphs(subject) for n in editable(inner) if n.name in parts]
    if step >= len(composite):
        return None
    path, name = composite[step]
    edit = TakeApart(path, name)
    case = edit.apply(subject)
    if case is subject.case:
        return each(())
    own = [n.name for n in parts[name].compute]
    base = Patch(edits=(edit,))
    if path:
        inner, outer = BodySubject(case, path, subject.trace), body(case.graph, path[:-1])
        found = tuple(_in_body(inner, outer, own, parts[name].output.inputs))
        return Proposal(found, lambda: one_of(len(found)), base=base) if found else each(())
    units = [unit for unit in Subject(case, subject.trace).units if not set(own).isdisjoint(unit)]
    if any(not set(own).issuperset(unit) for unit in units):
        return each(())
    patches = tuple(Patch(drop=frozenset(unit)) for unit in units)
    return Proposal(patches, lambda: alone(len(patches)), base=base)


def _in_body(inner: BodySubject, outer: Graph, own: list[str], results: Sequence[str]) -> Iterator[Patch]:
    """Each part that can be returned in the place of the result of all, or of another shape where that does not matter.

    Here it does not suffice that a part is kept: what a body returns keeps its form, and the rest is dead.
    """
    if len(results) != 1:
        return
    (result,) = results
    returned = items(inner.case.graph.output.args[0])
    alone = [c for c in calls(outer) if inner.path[-1] in c.paths and len(c.paths) == 1]
    at = returned.index({"ref": result}) if alone and {"ref": result} in returned else None
    for name in own:
        if inner.value(name).kind is not Kind.TENSOR:
            continue
        rest = frozenset(own) - {name}
        if name == result:
            yield Patch(edits=(Inside(inner.path, Patch(drop=rest)),))
        elif inner.sort(name) == inner.sort(result):
            yield Patch(edits=(Inside(inner.path, Patch(drop=rest, replace={result: {"ref": name}})),))
        elif at is not None:
            yield Patch(edits=(Shift(inner.path, at, name), Inside(inner.path, Patch(drop=rest))))
