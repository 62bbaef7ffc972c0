"""Edits of the target and the arguments of a node, which keeps its name and its readers.

A *place* is the position of a value in a node: the position or the name of an argument, then positions inside lists.
Nodes that only the former call read are removed with it. Like an edit of a subgraph, an edit does nothing if its node
was removed or changed. Values are put first, then lists are shortened, then arguments are left out, so that places stay
valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from ...store.document.case import Case, Node, Value, map_refs, tag, target_name
from ...store.document.program_lines import place_of
from .graph_view import PAIRS, REGIONS, WRAPPERS, GraphView
from .hop_calls import Path, exists, items, subgraph, with_subgraph
from .subgraphs import SubgraphView, picks, without_dead

#: Where in the arguments of a node: a position or a name, then positions inside of lists.
Place = tuple[int | str, ...]

_CONTAINERS = ("tuple", "size", "slice")
#: All edits of an earlier kind are applied before the edits of a later kind.
_KIND = 1 << 20


@dataclass(frozen=True, slots=True)
class Become:
    """The node calls something else. The proposal expects that the value keeps its shape and dtype."""

    path: Path
    node: str
    op: str
    target: Value
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int]:
        return -len(self.path), 0

    def apply(self, view: GraphView) -> Case:
        return _edited(view, self.path, self.node, self._replaced)

    def _replaced(self, node: Node) -> Node:
        return Node(node.name, self.op, self.target, self.args, dict(self.kwargs), node.meta)


@dataclass(frozen=True, slots=True)
class Omit:
    """Leave out an argument. Later positional arguments become keyword arguments; ``names`` are the parameter names."""

    path: Path
    node: str
    argument: int | str
    names: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        return -len(self.path), -_KIND - (self.argument if isinstance(self.argument, int) else 0)

    def apply(self, view: GraphView) -> Case:
        return _edited(view, self.path, self.node, self._without)

    def _without(self, node: Node) -> Node | None:
        at = self.argument
        if isinstance(at, str):
            return replace(node, kwargs={k: v for k, v in node.kwargs.items() if k != at})
        behind = node.args[at + 1 :]
        if at >= len(node.args) or len(node.args) > len(self.names):
            return None
        named = dict(zip(self.names[at + 1 :], behind, strict=False))
        return replace(node, args=node.args[:at], kwargs={**named, **node.kwargs})


@dataclass(frozen=True, slots=True)
class Put:
    """The node has ``value`` at ``place``. Of several edits of one place, the one with the highest ``turn`` counts."""

    path: Path
    node: str
    place: Place
    value: Value
    turn: int = 0

    @property
    def order(self) -> tuple[int, int]:
        return -len(self.path), self.turn - 3 * _KIND

    def apply(self, view: GraphView) -> Case:
        return _edited(view, self.path, self.node, lambda n: put(n, self.place, self.value))


@dataclass(frozen=True, slots=True)
class Shorten:
    """The list at ``place`` loses the item at ``index``, unless it has only one."""

    path: Path
    node: str
    place: Place
    index: int

    @property
    def order(self) -> tuple[int, int]:
        return -len(self.path), -self.index - 2 * _KIND

    def apply(self, view: GraphView) -> Case:
        return _edited(view, self.path, self.node, self._shorter)

    def _shorter(self, node: Node) -> Node | None:
        found = get(node, self.place)
        held = inside(found)
        if held is None or len(held) < 2 or self.index >= len(held):
            return None
        left = held[: self.index] + held[self.index + 1 :]
        return put(node, self.place, {str(tag(found)): left} if isinstance(found, dict) else left)


@dataclass(frozen=True, slots=True)
class TakeApart:
    """The nodes of its decomposition (`Trace.parts`) replace a node.

    Readers of its result, or of one of several results, read what the decomposition returns.
    """

    path: Path
    node: str

    @property
    def order(self) -> tuple[int, int]:
        return -len(self.path), -1

    def apply(self, view: GraphView) -> Case:
        parts, case = view.trace.parts.get(self.node), view.case
        graph = subgraph(case.graph, self.path) if exists(case.graph, self.path) else None
        if parts is None or graph is None or all(n.name != self.node for n in graph.nodes):
            return case
        result = parts.output.args[0]
        substitutes: dict[str, Value] = {}
        results = items(result)
        if results:
            picked = picks(graph, self.node)
            if picked is None or any(i >= len(results) for i in picked.values()):
                return case
            substitutes = {name: results[i] for name, i in picked.items()}
        elif tag(result) == "ref":
            substitutes = {self.node: result}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.name == self.node:
                place = place_of(node)
                nodes += (replace(part, meta={**part.meta, **place}) for part in parts.compute)
            elif not results or node.name not in substitutes:
                nodes.append(node.map_values(lambda v: map_refs(v, lambda n: substitutes.get(n, {"ref": n}))))
        return replace(case, graph=with_subgraph(case.graph, self.path, replace(graph, nodes=tuple(nodes))))


def inside(value: Value) -> list[Value] | None:
    """The items of a list, tuple, size or slice; None for anything else."""
    kind = tag(value)
    found: Value = value[kind] if kind in _CONTAINERS else value
    return found if isinstance(found, list) else None


def get(node: Node, place: Place) -> Value:
    """The value at ``place`` of ``node``, None if there is no such place."""
    first, *rest = place
    value = dict(enumerate(node.args)).get(first) if isinstance(first, int) else node.kwargs.get(first)
    for index in rest:
        held = inside(value)
        if held is None or not isinstance(index, int) or index >= len(held):
            return None
        value = held[index]
    return value


def put(node: Node, place: Place, value: Value) -> Node | None:
    """``node`` with ``value`` at ``place``, None if there is no such place."""
    first, *rest = place
    if isinstance(first, int):
        if first >= len(node.args):
            return None
        made = _within(node.args[first], rest, value)
        return replace(node, args=(*node.args[:first], made, *node.args[first + 1 :]))
    if first not in node.kwargs:
        return None
    return replace(node, kwargs={**node.kwargs, first: _within(node.kwargs[first], rest, value)})


def _within(old: Value, place: list[int | str], value: Value) -> Value:
    if not place:
        return value
    held = inside(old)
    index = place[0]
    if held is None or not isinstance(index, int) or index >= len(held):
        return old
    left = [*held[:index], _within(held[index], place[1:], value), *held[index + 1 :]]
    return {str(tag(old)): left} if isinstance(old, dict) else left


def places(node: Node) -> Iterator[tuple[Place, Value]]:
    """Every argument of ``node`` and every item of a list, each with its place. A list comes before its items."""
    for index, value in enumerate(node.args):
        yield from _places((index,), value)
    for name, value in node.kwargs.items():
        yield from _places((name,), value)


def _places(place: Place, value: Value) -> Iterator[tuple[Place, Value]]:
    yield place, value
    for index, item in enumerate(inside(value) or ()):
        yield from _places((*place, index), item)


def _edited(view: GraphView, path: Path, name: str, edit: Callable[[Node], Node | None]) -> Case:
    """The case with one node of the graph at ``path`` edited, without the nodes that only the former one needed."""
    case = view.case
    if not exists(case.graph, path):
        return case
    graph = subgraph(case.graph, path)
    before = {n.name: n for n in takewhile(lambda n: n.name != name, graph.nodes)}
    old = graph.nodes[len(before)] if len(before) < len(graph.nodes) else None
    new = None if old is None else edit(old)
    if new is None or new == old or any(source not in before for source in new.inputs):
        return case
    new = replace(new, meta={k: v for k, v in new.meta.items() if k not in ("shape", "dtype")})
    graph = replace(graph, nodes=tuple(new if n is old else n for n in graph.nodes))
    return without_dead(replace(case, graph=with_subgraph(case.graph, path, graph)), case, path, view.trace)


#: Calls that only mean something together with others.
_PAIRED = frozenset({*PAIRS, *PAIRS.values(), *REGIONS, *REGIONS.values(), *WRAPPERS})


def editable(view: GraphView) -> list[Node]:
    """The nodes of a graph that may be edited.

    Not among them are nodes that call a graph, decide when a loop ends or switch a state on or off.
    """
    fixed = view.fixed if isinstance(view, SubgraphView) else frozenset[str]()
    nodes = (view.nodes[name] for name in view.compute if name not in fixed)
    return [
        n
        for n in nodes
        if n.op != "call_module"
        and not (isinstance(n.target, dict) and ("hop" in n.target or "object" in n.target))
        and target_name(n) not in _PAIRED
    ]
