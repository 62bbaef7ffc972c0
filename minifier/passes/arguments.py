"""Give operations less: what has a default is left out, lists get shorter, numbers become 0."""

from __future__ import annotations

from collections.abc import Iterator

from ...store.document.case import Node, refs, target_name
from ..candidate.graph_view import GraphView
from ..candidate.patch import Patch
from ..candidate.rewriting import Omit, Shorten, editable, inside, places
from ..candidate.subgraphs import graphs
from .numbers import at
from .proposal import Proposal, each

#: Parameters whose lists name dimensions: fewer of them are still a call. (A shape with fewer sizes is not.)
DIMENSIONS = frozenset({"dim", "dims", "axis", "axes"})


def propose(view: GraphView, step: int) -> Proposal | None:
    """Everything at once: most failures depend on no argument. Then each alone."""
    if step > 0:
        return None
    return each((*_defaults(view), *_lists(view), *at(0, view)))


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
