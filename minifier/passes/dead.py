"""Remove nodes that nothing returned depends on, those with side effects included."""

from __future__ import annotations

from ..candidate.graph_view import Subject
from ..candidate.patch import Patch
from .proposal import Proposal, each


def propose(subject: Subject, step: int) -> Proposal | None:
    """One patch for each unit that has no live node, then nothing but the tidying up that any patch does."""
    if step == 1:
        return each((Patch(),))
    if step > 1:
        return None
    return each(
        tuple(Patch(erase=frozenset(unit)) for unit in subject.units if not any(n in subject.live for n in unit))
    )
