"""A case's graph as a picture: `picture` draws the graph and marks the nodes that the failure needs.

A box is a node, with its operation and the shape of its value. The nodes of a subgraph stand above the operator that
calls it. If a graph has too many nodes or edges, only the part nearest to the marked nodes is drawn, and `Picture`
says so. Nodes and edges are counted before anything is placed, because to place them is far more work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ...backends.drawing.svg import Box, Edge, svg
from ...store.document.case import Graph, Node, Value
from ..source.expressions import shown, shown_target
from ..source.function import shape_text
from ..source.naming import input_names
from .phrases import without_paths

#: How many nodes of a graph are drawn at most, and how many edges for each of them: graphs of programs have about 1.5,
#: and to place more takes time that grows with their square.
MOST_NODES, MOST_EDGES = 1500, 4
#: A picture may have this number of edges, however few nodes it has.
_EDGES_ALWAYS_DRAWN = 1000


@dataclass(frozen=True, slots=True)
class Picture:
    """``svg`` shows ``shown`` of ``total`` nodes, inputs and outputs included; ``marked`` of them are culprits.

    ``looks`` are the kinds and the marks of the boxes, each of which is drawn in its own way.
    """

    svg: str
    shown: int
    total: int
    marked: int
    looks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A node of a graph or subgraph: what is drawn of it, and the indices of the nodes it reads."""

    node: Node
    name: str
    mark: str
    prefix: str
    reads: tuple[int, ...]
    subgraphs: tuple[int, ...] = ()


def picture(
    graph: Graph, *, label: str, culprits: Collection[str] = (), kept: Collection[str] = (), limit: int = MOST_NODES
) -> Picture:
    """Draw ``graph``. ``culprits`` and ``kept`` are names of nodes; ``label`` says in words what the picture shows."""
    marks = {**dict.fromkeys(kept, "kept"), **dict.fromkeys(culprits, "culprit")}
    entries: list[_Entry] = []
    _collect(graph, marks, entries)
    chosen = _nearest(entries, limit)
    places = {old: new for new, old in enumerate(chosen)}
    edges = []
    for old, new in places.items():
        entry = entries[old]
        edges += [Edge(places[r], new) for r in entry.reads if r in places]
        edges += [Edge(places[b], new, dashed=True) for b in entry.subgraphs if b in places]
    boxes = [_box(entries[old]) for old in chosen]
    marked = sum(box.mark == "culprit" for box in boxes)
    looks = frozenset(look for box in boxes for look in (box.kind, box.mark))
    return Picture(svg(boxes, edges, label=label), len(boxes), len(entries), marked, looks)


def _collect(graph: Graph, marks: Mapping[str, str], entries: list[_Entry], prefix: str = "") -> int:
    """Append the nodes of ``graph``, with the nodes of a subgraph before its caller. Return the index of the
    output.
    """
    known: dict[str, int] = {}
    ends: dict[str, int] = {}
    names = dict(zip(
        (n.name for n in graph.placeholders), input_names([str(n.target) for n in graph.placeholders]), strict=True
    ))  # fmt: skip
    for node in graph.nodes:
        subgraphs = []
        for path in _held(node):
            attr = graph.attrs.get(path, {})
            if "graph" in attr and path not in ends:
                ends[path] = _collect(attr["graph"], marks, entries, f"{prefix}{path}: ")
            subgraphs += [ends[path]] if path in ends else []
        known[node.name] = len(entries)
        reads = tuple(known[name] for name in node.inputs if name in known)
        name, mark = names.get(node.name, node.name), marks.get(node.name, "")
        entries.append(_Entry(node, name, mark, prefix, reads, tuple(subgraphs)))
    return len(entries) - 1


def _held(node: Node) -> Iterator[str]:
    if node.op in ("get_attr", "call_module"):
        yield str(node.target)


def _box(entry: _Entry) -> Box:
    node, name = entry.node, entry.name
    shape = shape_text(node)
    if node.op == "placeholder":
        lines: Sequence[str] = (name, shape)
    elif node.op == "get_attr":
        lines = (str(node.target).rpartition(".")[2], shape)
    elif node.op == "output":
        lines = ("output",)
    else:
        lines = (operation(node), shape)
    kind = {"placeholder": "input", "get_attr": "constant", "output": "output"}.get(node.op, "compute")
    note = without_paths(entry.prefix + _note(node, name), 1500)
    return Box(tuple(line for line in lines if line), kind, entry.mark, note)


def _note(node: Node, name: str) -> str:
    """The tooltip: the node in full, and its place in the program."""
    said = f"{node.name} = {operation(node)}({arguments(node)})" if node.is_compute else f"{node.name}: {node.op}"
    if node.op in ("placeholder", "get_attr"):
        said += f" {node.target}"
    stack = str(node.meta.get("stack", "")).strip().splitlines()
    more = [shape_text(node), f"module {node.meta['module']}" if node.meta.get("module") else "", *stack[-2:]]
    return "\n".join([said[:400], *(line.strip()[:200] for line in more if line.strip())])


def arguments(node: Node, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """The arguments of a node as source. ``names`` has the names of other nodes."""

    def text(value: Value) -> str:
        return shown(value, lambda name: names.get(name, name)) or "..."

    return ", ".join([*map(text, node.args), *(f"{name}={text(value)}" for name, value in node.kwargs.items())])


def operation(node: Node) -> str:
    """The short name of a compute node's operation: ``relu``, ``aten.mm``, ``x.view``."""
    if node.op == "call_method":
        return f".{node.target}"
    if node.op == "call_module":
        return f"self.{node.target}"
    text = shown_target(node.target)
    for long, short in (("torch.ops.higher_order.", ""), ("torch.ops.", ""), ("torch.nn.functional.", "F."),
                        ("torch.", ""), ("operator.", "")):  # fmt: skip
        if text.startswith(long):
            text = short + text.removeprefix(long)
            break
    return text.removesuffix(".default")


def _nearest(entries: Sequence[_Entry], limit: int) -> list[int]:
    """The indices of at most ``limit`` nodes, in order: those nearest to a marked node, or to the output, that have at
    most `MOST_EDGES` edges for each among them."""
    total = sum(len(entry.reads) + len(entry.subgraphs) for entry in entries)
    if len(entries) <= limit and total <= max(MOST_EDGES * len(entries), _EDGES_ALWAYS_DRAWN):
        return list(range(len(entries)))
    near: list[list[int]] = [[] for _ in entries]
    for place, entry in enumerate(entries):
        for other in (*entry.reads, *entry.subgraphs):
            near[place].append(other)
            near[other].append(place)
    starts = [i for i, e in enumerate(entries) if e.mark == "culprit"]
    starts += [i for i, e in enumerate(entries) if e.mark == "kept"] or ([] if starts else [len(entries) - 1])
    chosen: set[int] = set()
    met = set(starts)
    waiting = deque(starts)
    edges = 0
    while waiting and len(chosen) < limit:
        place = waiting.popleft()
        edges += sum(other in chosen for other in near[place])
        if chosen and edges > max(MOST_EDGES * (len(chosen) + 1), _EDGES_ALWAYS_DRAWN):
            break
        chosen.add(place)
        for other in sorted(near[place]):
            if other not in met:
                met.add(other)
                waiting.append(other)
    return sorted(chosen)
