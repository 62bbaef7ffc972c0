"""Take compute nodes out of the graph, anywhere in it."""

from __future__ import annotations

from collections import Counter

from ..candidate.graph_view import GraphView, reached
from ..candidate.patch import Patch
from .proposal import Proposal, each
from .searches import Items, Space, guessed, guided

#: The most operators that occur once and are tried alone, each by itself.
RARE = 6
#: The share of a graph that is a small part of it.
SMALL_PART = 0.25


def singles(view: GraphView, step: int) -> Proposal | None:
    """The first step has a patch for each atom, and one for all returned values that no node computes.

    The second step has a patch for each part of a functorch region. The values of a region are recorded as they would
    be without the region, so its nodes can stay if the region is removed.
    """
    if step == 0:
        return each(_patches(view))
    if step == 1 and view.pieces:
        return each(tuple(Patch(drop=frozenset(group)) for group in (*view.pieces, *view.wrappers)))
    return None


def slices(view: GraphView, step: int) -> Proposal | None:
    """The patches of the first step of `singles`, searched by the chances of the atoms; hints come first."""
    if step > 0:
        return None
    patches, space, hints = _searched(view)
    return Proposal(patches, lambda: guided(space, hints))


def guesses(view: GraphView, step: int) -> Proposal | None:
    """Propose the first queries of `slices`, and two guesses about rare operators.

    The queries are the hints that are a small part of the graph, the likeliest atoms whose operators occur once, each
    alone, and one atom of every operator, all at once. The pass ends if none of these candidates fails.
    """
    if step > 0:
        return None
    patches, space, hints = _searched(view)
    targets = Counter(repr(view.nodes[name].target) for name in view.compute)
    once = [i for i, atom in enumerate(view.atoms) if any(targets[repr(view.nodes[n].target)] == 1 for n in atom)]
    rare = sorted(once, key=lambda i: (-space.weights[i], -i))[:RARE]
    small, specimens = (
        [items for items in sets if len(items) <= SMALL_PART * len(space)] for sets in (hints, _specimens(view))
    )
    return Proposal(patches, lambda: guessed(space, [*small, *((i,) for i in rare), *specimens]))


def _specimens(view: GraphView) -> list[Items]:
    """Return two sets with an atom of every operator: its first occurrences, and its last ones."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, atom in enumerate(view.atoms):
        for target in (repr(view.nodes[name].target) for name in atom):
            first.setdefault(target, i)
            last[target] = i
    return [tuple(sorted(set(atoms.values()))) for atoms in (first, last)]


def _searched(view: GraphView) -> tuple[tuple[Patch, ...], Space, list[Items]]:
    """The patches of `slices`, what is known of them, and the hinted sets of them."""
    patches = _patches(view)
    number, chances = view.number, view.weights
    weights = [sum([chances[number[n]] for n in atom]) for atom in view.atoms]
    reads = links(view)
    if len(patches) > len(weights):
        weights.append(min(weights, default=1.0) / 2)
        reads.append(())
    return patches, Space(tuple(weights), tuple(reads)), _hinted(view, reads)


def _hinted(view: GraphView, reads: list[Items]) -> list[Items]:
    """Sets of atoms to ask about: the best hint; all hints; the best one with its inputs, or with all its ancestors."""
    atom = {name: i for i, group in enumerate(view.atoms) for name in group}
    hints = [{atom[name] for name in hint if name in atom} for hint in view.hints]
    hints = [hint for hint in hints if hint]
    if not hints:
        return []
    near = hints[0].union(*(reads[i] for i in hints[0]))
    above = reached(dict(enumerate(reads)), hints[0])
    sets = [hints[0], set().union(*hints), near, *([above] if len(above) * 4 <= len(reads) * 3 else [])]
    return [tuple(sorted(items)) for items in sets]


def _patches(view: GraphView) -> tuple[Patch, ...]:
    atoms = view.atoms
    patches = [Patch(drop=frozenset(atom)) for atom in atoms]
    handed = frozenset(i for i, v in enumerate(view.outputs) if _is_handed_through(view, v))
    if handed:
        patches.append(Patch(cut=handed))
    return tuple(patches)


def links(view: GraphView) -> list[Items]:
    """For each atom, the numbers of the atoms that it reads."""
    atom = {name: i for i, group in enumerate(view.atoms) for name in group}
    return [
        tuple(dict.fromkeys(atom[s] for n in group for s in view.inputs[n] if s in atom and atom[s] != i))
        for i, group in enumerate(view.atoms)
    ]


def _is_handed_through(view: GraphView, value: object) -> bool:
    return not (isinstance(value, dict) and "ref" in value and view.nodes[value["ref"]].is_compute)
