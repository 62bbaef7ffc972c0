"""Return less."""

from __future__ import annotations

from ...store.document.case import tag
from ..candidate.graph_view import GraphView
from ..candidate.patch import Patch
from .proposal import Proposal, each


def propose(view: GraphView, step: int) -> Proposal | None:
    """First what is returned although the graph reads it itself (nothing becomes dead), then each value."""
    if step == 0:
        read = [i for i, v in enumerate(view.outputs) if tag(v) != "ref" or len(view.users[v["ref"]]) > 1]
        return each(tuple(Patch(cut=frozenset([i])) for i in read))
    if step == 1 and len(view.outputs) > 1:
        return each(tuple(Patch(cut=frozenset([i])) for i in range(len(view.outputs))))
    return None
