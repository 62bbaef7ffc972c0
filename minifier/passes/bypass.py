"""Let readers of a node read something of the same shape and type that lies before it."""

from __future__ import annotations

from itertools import pairwise

from ..candidate.graph_view import Subject
from ..candidate.patch import Patch
from .proposal import Proposal, each
from .searches import farthest

#: With this many nodes single steps do as well as jumps.
FEW = 4


def singles(subject: Subject, step: int) -> Proposal | None:
    """Each node's inputs in turn: every single bypass is tried."""
    patches = tuple(
        Patch(replace={name: {"ref": options[step]}})
        for name in subject.compute
        if len(options := _inputs_alike(subject, name)) > step
    )
    return each(patches) if patches else None


def _inputs_alike(subject: Subject, name: str) -> list[str]:
    """Direct inputs of the sort of ``name``."""
    sort = subject.sort(name)
    return [s for s in subject.inputs[name] if sort is not None and subject.sort(s) == sort]


def jumps(subject: Subject, step: int) -> Proposal | None:
    """From the end of the graph backwards, one node a step: how far up may its readers look instead?

    What lies between goes. A step that is taken removes only nodes before its own, so the steps behind stay done.
    """
    if step >= len(subject.compute) or len(subject.compute) <= FEW:
        return None
    name = subject.compute[-1 - step]
    sources = _ancestors_alike(subject, name)
    if not sources:
        return Proposal((), lambda: farthest(()))
    patches = tuple(Patch(replace={name: {"ref": s}}) for s in sources)
    weights = _chances(subject, name, sources)
    return Proposal(patches, lambda: farthest(weights), again=True)


def _ancestors_alike(subject: Subject, name: str) -> list[str]:
    """Nodes of the sort of ``name`` that it depends on, the earliest first."""
    sort = subject.sort(name)
    if sort is None or name not in subject.live:
        return []
    own, position = subject.ancestors[name], subject.position
    return [s for s in subject.by_sort[sort] if s != name and own >> position[s] & 1]


def _chances(subject: Subject, name: str, sources: list[str]) -> tuple[float, ...]:
    """Chance, for each of ``sources``, that what lies between it and the next one (or ``name`` itself) is needed."""
    number, weights = subject.number, subject.weights
    bounds = [*(number.get(s, -1) for s in sources), number[name]]
    total = sum(weights[bounds[0] + 1 : bounds[-1] + 1])
    # Being the first thing in the way also counts: most nodes that are left are needed.
    chances = [sum(weights[a + 1 : b + 1]) for a, b in pairwise(bounds)]
    chances[-1] += total
    return tuple(chances)
