"""Take compute nodes out of the graph, anywhere in it."""

from __future__ import annotations

from ..candidate.graph_view import Subject, reached
from ..candidate.patch import Patch
from .proposal import Proposal, each
from .searches import Items, Space, guided


def singles(subject: Subject, step: int) -> Proposal | None:
    """One patch for each unit, and one for everything that is only handed through to the output.

    Then the same for what functorch regions consist of. What a region makes is recorded as it would be without the
    region, so its nodes can stay when the region goes.
    """
    if step == 0:
        return each(_patches(subject))
    if step == 1 and subject.pieces:
        return each(tuple(Patch(drop=frozenset(group)) for group in (*subject.pieces, *subject.wrappers)))
    return None


def slices(subject: Subject, step: int) -> Proposal | None:
    """The same patches, with the prior chance of each unit to be needed and what it reads; hints come first."""
    if step > 0:
        return None
    patches = _patches(subject)
    number, chances = subject.number, subject.weights
    weights = [sum([chances[number[n]] for n in unit]) for unit in subject.units]
    reads = links(subject)
    if len(patches) > len(weights):
        weights.append(min(weights, default=1.0) / 2)
        reads.append(())
    space = Space(tuple(weights), tuple(reads))
    hints = _hinted(subject, reads)
    return Proposal(patches, lambda: guided(space, hints))


def _hinted(subject: Subject, reads: list[Items]) -> list[Items]:
    """Sets of units to ask about: the best hint, all hints, the best with what it reads, and all it depends on."""
    unit = {name: i for i, group in enumerate(subject.units) for name in group}
    hints = [{unit[name] for name in hint if name in unit} for hint in subject.hints]
    hints = [hint for hint in hints if hint]
    if not hints:
        return []
    near = hints[0].union(*(reads[i] for i in hints[0]))
    above = reached(dict(enumerate(reads)), hints[0])
    sets = [hints[0], set().union(*hints), near, *([above] if len(above) * 4 <= len(reads) * 3 else [])]
    return [tuple(sorted(items)) for items in sets]


def _patches(subject: Subject) -> tuple[Patch, ...]:
    units = subject.units
    patches = [Patch(drop=frozenset(unit)) for unit in units]
    handed = frozenset(i for i, v in enumerate(subject.outputs) if _is_handed_through(subject, v))
    if handed:
        patches.append(Patch(cut=handed))
    return tuple(patches)


def links(subject: Subject) -> list[Items]:
    """The units each unit reads."""
    unit = {name: i for i, group in enumerate(subject.units) for name in group}
    return [
        tuple(dict.fromkeys(unit[s] for n in group for s in subject.inputs[n] if s in unit and unit[s] != i))
        for i, group in enumerate(subject.units)
    ]


def _is_handed_through(subject: Subject, value: object) -> bool:
    return not (isinstance(value, dict) and "ref" in value and subject.nodes[value["ref"]].is_compute)
