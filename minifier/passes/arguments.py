"""Plainer arguments: optional ones are left out, lists get shorter, numbers become plain.

A number becomes 0, or 1, or the smallest number with which the case still fails.
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
from .proposal import Proposal, each, refused
from .searches import farthest

#: Parameters whose lists name dimensions. A call with fewer dimensions is valid; one with fewer sizes is not.
DIMENSIONS = frozenset({"dim", "dims", "axis", "axes"})
#: Parameters whose lists name no sizes, even where a number in them happens to equal one.
NO_SIZES = DIMENSIONS | {"pad", "padding", "stride", "dilation", "output_padding", "shifts", "scale_factor"}
#: The numbers that are tried instead of large ones: powers of two, above 1024 powers of ten.
LADDER = (*(1 << n for n in range(1, 11)), *(10**n for n in range(4, 19)))
#: If more numbers than this are left, only 0 and 1 are tried.
MOST = 16


def propose(view: GraphView, step: int) -> Proposal | None:
    """All edits of arguments at once, because most failures depend on none; then a sweep."""
    if step > 0:
        return None
    patches = (*omissions(view), *lists(view), *_at(0, view))
    return each(patches, refused(view, patches))


def at_default(view: GraphView, step: int) -> Proposal | None:
    """Leaves out the arguments that have their default by now."""
    return each(tuple(_omissions(view, only_defaults=True))) if step == 0 else None


def omissions(view: GraphView) -> Iterator[Patch]:
    """A patch for every argument that is optional in the recorded signature of what the node calls."""
    return _omissions(view, only_defaults=False)


def _omissions(view: GraphView, *, only_defaults: bool) -> Iterator[Patch]:
    for path, inner in graphs(view):
        for node in editable(inner):
            for names, argument in _optional(inner, node):
                if not only_defaults or _is_default(inner, node, argument):
                    yield Patch(edits=(Omit(path, node.name, argument, names),))


def _is_default(view: GraphView, node: Node, argument: int | str) -> bool:
    defaults = view.trace.defaults.get(node.name, {})
    name = parameter(view, node, argument)
    if name not in defaults:
        return False
    given = node.kwargs.get(argument) if isinstance(argument, str) else node.args[argument]
    default, items = defaults[name], inside(given)
    if items is None:
        return type(given) is type(default) and given == default
    listed = inside(default)
    return bool(items) and items == ([default] * len(items) if listed is None else listed)


def _optional(view: GraphView, node: Node) -> list[tuple[tuple[str, ...], int | str]]:
    signature = view.trace.signatures.get(node.name, ())
    names = tuple(name for name, _ in signature)
    free = [i for i, (_, optional) in enumerate(signature) if optional]
    known = [(names, i) for i in free if i < len(node.args) <= len(names)]
    required = {name for name, optional in signature if not optional}
    return [*known, *(((), key) for key in node.kwargs if key not in required)]


def lists(view: GraphView) -> Iterator[Patch]:
    """A patch for every item of a list of values (of ``cat`` or ``stack``), of an index, or of dimensions."""
    for path, inner in graphs(view):
        for node in editable(inner):
            for place, value in places(node):
                listed = inside(value)
                if listed is None or len(listed) < 2:
                    continue
                if (
                    any(True for _ in refs(listed))
                    or (parameter(inner, node, place[0]) in DIMENSIONS and target_name(node) != "permute")
                    or _is_index(node, place)
                ):
                    for i in range(len(listed)):
                        yield Patch(edits=(Shorten(path, node.name, place, i),))


def parameter(view: GraphView, node: Node, argument: int | str) -> str:
    """The name of the parameter that takes an argument of ``node``, as far as it was recorded."""
    if isinstance(argument, str):
        return argument
    signature = view.trace.signatures.get(node.name, ())
    return signature[argument][0] if argument < len(signature) else ""


def _is_index(node: Node, place: tuple[int | str, ...]) -> bool:
    return place == (1,) and target_name(node) == "getitem"


def numbers(view: GraphView, step: int) -> Proposal | None:
    """The first step makes all numbers 1. If they are few, each further step makes one number as small as possible."""
    if step == 0:
        patches = tuple(_at(1, view))
        return each(patches, refused(view, patches))
    found = counts(view)
    if len(found) > MOST or step - 1 >= len(found):
        return None
    path, node, place, value = found[step - 1]
    steps = [type(value)(sign * n) for n in LADDER for sign in ((1, -1) if value < 0 else (1,))]
    smaller = [n for n in steps if abs(n) < abs(value) and weight(n) < weight(value)]
    edits = [Put(path, node.name, place, n, turn=-i) for i, n in enumerate(smaller)]
    chances = (1.0,) * len(edits)
    return Proposal(tuple(Patch(edits=(e,)) for e in edits), lambda: farthest(chances))


def _at(number: int, view: GraphView) -> Iterator[Patch]:
    """A patch that puts ``number`` in the place of every number with a larger weight."""
    for path, node, place, value in counts(view):
        if weight(new := type(value)(number)) < weight(value):
            yield Patch(edits=(Put(path, node.name, place, new),))


def counts(view: GraphView) -> list[tuple[Path, Node, Place, Value]]:
    """The numbers and flags among the arguments, without sizes, each with its place."""
    return [(path, *found) for path, inner in graphs(view) for found in _numbers(inner)]


def _numbers(view: GraphView) -> Iterator[tuple[Node, Place, Value]]:
    """Numbers and flags among the arguments, without sizes, which `smaller_dimensions` changes."""
    for node in editable(view):
        sizes = {size for name in (node.name, *node.inputs) if (spec := view.tensor(name)) for size in spec.shape}
        shapes = {
            place
            for place, value in places(node)
            if (items := inside(value))
            and tag(value) != "slice"
            and any(type(i) is int and i in sizes for i in items)
            and parameter(view, node, place[0]) not in NO_SIZES
        }
        if node.op == "call_method" and not view.trace.signatures.get(node.name):  # sizes, or dimensions to permute
            shapes |= {(i,) for i, a in enumerate(node.args) if type(a) is int}
        for place, value in places(node):
            if type(value) in (bool, int, float) and not any(place[:n] in shapes for n in range(1, len(place) + 1)):
                yield node, place, value
