"""Give operations fewer arguments: what has a default is left out, and lists get shorter."""

from __future__ import annotations

from ...store.case import Node, refs
from ..editing.bodies import BodySubject, graphs
from ..editing.patch import Patch
from ..editing.rewriting import Omit, Shorten, inside, places
from ..editing.subject import PAIRS, REGIONS, WRAPPERS, Subject, target_name
from .proposal import Proposal, each

#: Parameters whose lists name dimensions: fewer of them are still a call. (A shape with fewer sizes is not.)
DIMENSIONS = frozenset({"dim", "dims", "axis", "axes"})


def defaults(subject: Subject, step: int) -> Proposal | None:
    """Every argument that may be left out, by the signature that was recorded of what the node calls."""
    if step > 0:
        return None
    return each(
        tuple(
            Patch(edits=(Omit(path, node.name, argument, names),))
            for path, inner in graphs(subject)
            for node in editable(inner)
            for names, argument in _optional(inner, node)
        )
    )


def _optional(subject: Subject, node: Node) -> list[tuple[tuple[str, ...], int | str]]:
    signature = subject.trace.signatures.get(node.name, ())
    names = tuple(name for name, _ in signature)
    free = [i for i, (_, optional) in enumerate(signature) if optional]
    known = [(names, i) for i in free if i < len(node.args) <= len(names)]
    required = {name for name, optional in signature if not optional}
    return [*known, *(((), key) for key in node.kwargs if key not in required)]


def lists(subject: Subject, step: int) -> Proposal | None:
    """Every item of a list of values (what ``cat`` and ``stack`` join, what an index consists of) or of dimensions."""
    if step > 0:
        return None
    return each(
        tuple(
            Patch(edits=(Shorten(path, node.name, place, i),))
            for path, inner in graphs(subject)
            for node in editable(inner)
            for place, value in places(node)
            if (items := inside(value)) is not None and len(items) > 1
            if any(True for _ in refs(items)) or _names_dimensions(inner, node, place[0]) or _is_index(node, place)
            for i in range(len(items))
        )
    )


def _names_dimensions(subject: Subject, node: Node, argument: int | str) -> bool:
    signature = subject.trace.signatures.get(node.name, ())
    if isinstance(argument, int):
        argument = signature[argument][0] if argument < len(signature) else ""
    return argument in DIMENSIONS and target_name(node) != "permute"


def _is_index(node: Node, place: tuple[int | str, ...]) -> bool:
    return place == (1,) and target_name(node) == "getitem"


#: Calls that only mean something together with others.
_PAIRED = frozenset({*PAIRS, *PAIRS.values(), *REGIONS, *REGIONS.values(), *WRAPPERS})


def editable(subject: Subject) -> list[Node]:
    """The nodes of a graph that may be edited: none that calls a graph, or decides when a loop ends, or what state is
    switched on.
    """
    fixed = subject.fixed if isinstance(subject, BodySubject) else frozenset[str]()
    nodes = (subject.nodes[name] for name in subject.compute if name not in fixed)
    return [
        n
        for n in nodes
        if n.op != "call_module"
        and not (isinstance(n.target, dict) and ("hop" in n.target or "object" in n.target))
        and target_name(n) not in _PAIRED
    ]
