"""Higher-order operators: their bodies take their place, or shrink where they are.

Inside a body the passes of the top-level graph are at work, each patch wrapped by `within`; besides there are edits
that only a body has: what it returns and what it is given must fit its calls.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.document.case import tag
from ..candidate.graph_view import Subject
from ..candidate.inlining import Inline
from ..candidate.patch import Patch
from ..candidate.slots import Slot, slots
from ..candidate.subgraphs import BodySubject, Inside, Operand, Result, Shift, Zeros, bodies, picks
from ..tracing.hop_calls import body as graph_at
from ..tracing.hop_calls import calls, items, paths
from ..tracing.trace import Kind
from . import bypass, dead
from .proposal import Proposal, each
from .searches import farthest, sweep

Propose = Callable[[Subject, int], Proposal | None]


def flatten(subject: Subject, step: int) -> Proposal | None:
    """All calls at once, then those that came from inside them, then one by one in `inline`."""
    edits = _inlines(subject)
    return Proposal((Patch(edits=edits),), lambda: sweep((0,)), again=True) if edits and step == 0 else None


def inline(subject: Subject, step: int) -> Proposal | None:
    """One patch for each call in the top-level graph."""
    edits = _inlines(subject)
    return each(tuple(Patch(edits=(edit,)) for edit in edits)) if edits and step == 0 else None


def _inlines(subject: Subject) -> tuple[Inline, ...]:
    return tuple(Inline(name) for name in dict.fromkeys(c.node.name for c in calls(subject.case.graph)))


def within(propose: Propose) -> Propose:
    """``propose`` for each body, its patches in one proposal."""

    def inner(subject: Subject, step: int) -> Proposal | None:
        made = [(b.path, p) for b in bodies(subject) if (p := propose(b, step)) is not None]
        if not made:
            return None
        return each(tuple(Patch(edits=(Inside(path, patch),)) for path, p in made for patch in p.patches if patch))

    return inner


body_nodes = within(lambda subject, step: _drops(subject) if step == 0 else None)
body_bypass = within(bypass.singles)
body_dead = within(lambda subject, step: dead.propose(subject, step) if step == 0 else None)


def _drops(subject: Subject) -> Proposal:
    return each(tuple(Patch(drop=frozenset(unit)) for unit in subject.units))


def body_jumps(subject: Subject, step: int) -> Proposal | None:
    """`bypass.jumps` of each body in turn."""
    for inner in bodies(subject):
        if step < len(inner.compute):
            found = bypass.jumps(inner, step)
            if found is None:
                return each(())
            patches = tuple(Patch(edits=(Inside(inner.path, patch),)) for patch in found.patches)
            return Proposal(patches, found.search, again=found.again)
        step -= len(inner.compute)
    return None


def body_zeros(subject: Subject, step: int) -> Proposal | None:
    """Each node of each body, those that are returned first: what it was made of goes with it."""
    found = [Zeros(b.path, name) for b in bodies(subject) for name in b.compute if b.tensor(name) is not None]
    if not found or step > 0:
        return None
    return Proposal(tuple(Patch(edits=(edit,)) for edit in found), lambda: sweep(range(len(found))))


def body_ends(subject: Subject, step: int) -> Proposal | None:
    """First results that nothing reads and operands that no body reads, then earlier values are returned instead."""
    graphs = [(path, graph_at(subject.case.graph, path)) for path in ((), *paths(subject.case.graph))]
    made = [(path, graph, call) for path, graph in graphs for call in calls(graph)]
    if not made:
        return None
    if step == 0:
        return each(
            tuple(
                Patch(edits=(Result(path, call.node.name, call.paths[0], i),))
                for path, graph, call in made
                if (picked := picks(graph, call.node.name)) is not None
                for i in range(max(len(items(graph.attrs[p]["graph"].output.args[0])) for p in call.paths))
                if i not in picked.values()
            )
        )
    if step == 1:
        return each(
            tuple(
                Patch(edits=(Operand(path, call.node.name, call.paths[0], i),))
                for path, _, call in made
                for i in range(len(call.operands))
            )
        )
    if step == 2:
        return each(
            tuple(
                Patch(edits=(Slot(path, call.node.name, call.paths[0], i),))
                for path, _, call in made
                for i in range(len(slots(call.node)))
            )
        )
    ends = [
        (BodySubject(subject.case, (*path, call.paths[0]), subject.trace), i, value["ref"])
        for path, graph, call in made
        if call.spread and call.free
        for i, value in enumerate(items(graph.attrs[call.paths[0]]["graph"].output.args[0]))
        if tag(value) == "ref"
    ]
    if step - 3 >= len(ends):
        return None
    inner, index, name = ends[step - 3]
    return _earlier(inner, index, name)


def _earlier(inner: BodySubject, index: int, name: str) -> Proposal:
    """Anything that ``name``, which is returned at ``index``, depends on may be returned instead."""
    own = inner.ancestors[name]
    sources = [
        s
        for s in inner.compute
        if s != name
        and own >> inner.position[s] & 1
        and inner.value(s).kind is Kind.TENSOR
        and inner.value(s).snapshots
    ]
    patches = tuple(Patch(edits=(Shift(inner.path, index, s),)) for s in sources)
    return Proposal(patches, lambda: farthest((1.0,) * len(patches)), again=True)
