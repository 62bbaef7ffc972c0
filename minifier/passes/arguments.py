"""Give operations less: what has a default is left out, lists get shorter, numbers become plain.

A number becomes 0, else 1, else the shortest number with which the failure still shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...store.document.case import Node, Value, refs, tag, target_name
from ..candidate.graph_view import GraphView
from ..candidate.hop_calls import Path
from ..candidate.order import weight
from ..candidate.patch import Patch
from ..candidate.rewriting import Omit, Place, Put, Shorten, editable, inside, places
from ..candidate.subgraphs import graphs
from .proposal import Proposal, each
from .searches import farthest

#: Parameters whose lists name dimensions: fewer of them are still a call. (A shape with fewer sizes is not.)
DIMENSIONS = frozenset({"dim", "dims", "axis", "axes"})
#: What large numbers are tried at, smallest first: powers of two, from a thousand on of ten.
LADDER = (*(1 << n for n in range(1, 11)), *(10**n for n in range(4, 19)))
#: Where more numbers than this are left, they are 0, 1 or what they were.
MOST = 16


def propose(view: GraphView, step: int) -> Proposal | None:
    """Everything at once: most failures depend on no argument. Then each alone."""
    if step > 0:
        return None
    return each((*_defaults(view), *_lists(view), *_at(0, view)))


def _defaults(view: GraphView) -> Iterator[Patch]:
    """Every argument that may be left out, by the signature that was recorded of what the node calls."""
    for path, inner in graphs(view):
        for node in editable(inner):
            for names, argument in _optional(inner, node):
                yield Patch(edits=(Omit(path, node.name, argument, names),))


def _optional(view: GraphView, node: Node) -> list[tuple[tuple[str, ...], int | str]]:
    signature = view.trace.signatures.get(node.name, ())
    names = tuple(name for name, _ in signature)
    free = [i for i, (_, optional) in enumerate(signature) if optional]
    known = [(names, i) for i in free if i < len(node.args) <= len(names)]
    required = {name for name, optional in signature if not optional}
    return [*known, *(((), key) for key in node.kwargs if key not in required)]


def _lists(view: GraphView) -> Iterator[Patch]:
    """Every item of a list of values (what ``cat`` and ``stack`` join, what an index consists of) or of dimensions."""
    for path, inner in graphs(view):
        for node in editable(inner):
            for place, value in places(node):
                listed = inside(value)
                if listed is None or len(listed) < 2:
                    continue
                if (
                    any(True for _ in refs(listed))
                    or _names_dimensions(inner, node, place[0])
                    or _is_index(node, place)
                ):
                    for i in range(len(listed)):
                        yield Patch(edits=(Shorten(path, node.name, place, i),))


def _names_dimensions(view: GraphView, node: Node, argument: int | str) -> bool:
    signature = view.trace.signatures.get(node.name, ())
    if isinstance(argument, int):
        argument = signature[argument][0] if argument < len(signature) else ""
    return argument in DIMENSIONS and target_name(node) != "permute"


def _is_index(node: Node, place: tuple[int | str, ...]) -> bool:
    return place == (1,) and target_name(node) == "getitem"


def numbers(view: GraphView, step: int) -> Proposal | None:
    """All numbers to 1, then, if they are few, each to as small a step of the ladder as will do."""
    if step == 0:
        return each(tuple(_at(1, view)))
    found = _all(view)
    if len(found) > MOST or step - 1 >= len(found):
        return None
    path, node, place, value = found[step - 1]
    steps = [type(value)(sign * n) for n in LADDER for sign in ((1, -1) if value < 0 else (1,))]
    smaller = [n for n in steps if abs(n) < abs(value) and weight(n) < weight(value)]
    edits = [Put(path, node.name, place, n, turn=-i) for i, n in enumerate(smaller)]
    chances = (1.0,) * len(edits)
    return Proposal(tuple(Patch(edits=(e,)) for e in edits), lambda: farthest(chances))


def _at(number: int, view: GraphView) -> Iterator[Patch]:
    """Every number that is less plain than 0 or 1, as that."""
    for path, node, place, value in _all(view):
        if weight(new := type(value)(number)) < weight(value):
            yield Patch(edits=(Put(path, node.name, place, new),))


def _all(view: GraphView) -> list[tuple[Path, Node, Place, Value]]:
    return [(path, *found) for path, inner in graphs(view) for found in _numbers(inner)]


def _numbers(view: GraphView) -> Iterator[tuple[Node, Place, Value]]:
    """Numbers and flags among the arguments, less those that are sizes: `smaller_dimensions` changes these."""
    for node in editable(view):
        sizes = {size for name in (node.name, *node.inputs) if (spec := view.tensor(name)) for size in spec.shape}
        shapes = {
            place
            for place, value in places(node)
            if (items := inside(value)) and tag(value) != "slice" and any(type(i) is int and i in sizes for i in items)
        }
        if node.op == "call_method" and not view.trace.signatures.get(node.name):  # sizes, or dimensions to permute
            shapes |= {(i,) for i, a in enumerate(node.args) if type(a) is int}
        for place, value in places(node):
            if type(value) in (bool, int, float) and not any(place[:n] in shapes for n in range(1, len(place) + 1)):
                yield node, place, value
