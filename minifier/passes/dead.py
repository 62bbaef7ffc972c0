"""Remove nodes that nothing returned depends on, those with side effects included."""

from __future__ import annotations

from ..candidate.graph_view import GraphView
from ..candidate.patch import Patch
from .proposal import Proposal, each


def propose(view: GraphView, step: int) -> Proposal | None:
    """One patch for each atom that has no live node, then nothing but the tidying up that any patch does."""
    if step == 1:
        return each((Patch(),))
    if step > 1:
        return None
    return each(tuple(Patch(erase=frozenset(atom)) for atom in view.atoms if not any(n in view.live for n in atom)))
