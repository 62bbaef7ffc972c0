"""Take composite operations apart: often one part of them fails alone."""

from __future__ import annotations

from ..editing.patch import Patch
from ..editing.rewriting import TakeApart
from ..editing.subject import Subject
from ..search.items import alone
from .proposal import Proposal, each


def propose(subject: Subject, step: int) -> Proposal | None:
    """One node a step: is its decomposition at fault, and one part of that?"""
    composite = [name for name in subject.compute if name in subject.trace.parts]
    if step >= len(composite):
        return None
    name = composite[step]
    base = Patch(edits=(TakeApart(name),))
    case = base.edits[0].apply(subject)
    apart = Subject(case, subject.trace)
    own = {n.name for n in subject.trace.parts[name].compute}
    units = [unit for unit in apart.units if not own.isdisjoint(unit)]
    if case is subject.case or any(not own.issuperset(unit) for unit in units):
        return each(())
    patches = tuple(Patch(drop=frozenset(unit)) for unit in units)
    return Proposal(patches, lambda: alone(len(patches)), base=base)
