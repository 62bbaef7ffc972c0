"""A graph as text: a line for each node, and to its left the lanes of values, from the node that makes a value to its
readers, as `git log --graph` draws commits.

    ○      x       f32[2, 8]
    │ ○    weight  f32[8, 8]
    ├─┘
    ●      linear = F.linear(x, weight)  f32[2, 8]
    ■      return linear

A lane is free after the last node that reads its value. It continues past nodes that do not read it. Inputs are just
above the first node that reads them. The work grows with the number of nodes and edges, and the text has a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush

from ...store.document.case import Graph, Node
from ...store.text import count
from ..source.function import shape_text
from ..source.naming import input_names
from .picture import arguments, operation

#: The character for the lines at a point: up, down, left, right.
_JOINTS = {
    "ud": "│", "lr": "─", "ur": "└", "ul": "┘", "dr": "┌", "dl": "┐", "udr": "├", "udl": "┤", "dlr": "┬", "ulr": "┴",
    "udlr": "┼", "u": "│", "d": "│", "l": "─", "r": "─", "": " ",
}  # fmt: skip
_MARKS = {"placeholder": "○", "get_attr": "◇", "output": "■"}
_ASCII = str.maketrans({**dict.fromkeys("└┘┌┐├┤┬┴┼", "+"), "│": "|", "─": "-", "○": "o", "◇": "o", "■": "=", "●": "*",
                        "←": "<"})  # fmt: skip
#: The most lanes. Further values are only shown by their names.
MOST_LANES = 20
#: The most characters of a line, and of a drawing. The rest of both is counted.
MOST_LINE, MOST_TEXT = 2_000, 1_000_000


def text_graph(graph: Graph, *, culprits: Collection[str] = (), ascii: bool = False) -> list[str]:
    """Return the lines of the drawing, with a subgraph below its name. Nodes in ``culprits`` are marked."""
    out: list[str] = []
    left = MOST_TEXT
    further = 0
    for line in _lines(graph, culprits):
        left -= len(line)
        if left >= 0:
            out.append(line)
        else:
            further += 1
    out += [f"... and {count(further, 'further line')}"] if further else []
    return [line.translate(_ASCII) for line in out] if ascii else out


def _lines(graph: Graph, culprits: Collection[str]) -> Iterator[str]:
    yield from _drawn(graph, culprits)
    for path, attr in graph.attrs.items():
        if "graph" in attr:
            yield from ("", f"{path}:")
            for line in _lines(attr["graph"], culprits):
                yield f"  {line}"


def _drawn(graph: Graph, culprits: Collection[str]) -> Iterator[str]:
    left: dict[str, int] = {}
    for node in graph.nodes:
        for name in node.inputs:
            left[name] = left.get(name, 0) + 1
    rows: list[tuple[str, str]] = []
    held: list[str | None] = []
    lanes: dict[str, int] = {}  # where each value that is still read runs
    free: list[int] = []  # a heap of lanes without a value; some may have gone, or have one again
    names = _names(graph)
    for node in _late(graph):
        reads = {lanes[name] for name in node.inputs if name in lanes}
        for name in node.inputs:
            left[name] -= 1
        dying = sorted(lane for lane in reads if not left[held[lane] or ""])
        before = _running(held)
        for read in dying:
            del lanes[held[read] or ""]
            held[read] = None
            heappush(free, read)
        while free and (free[0] >= len(held) or held[free[0]] is not None):
            heappop(free)
        lane = dying[0] if dying else free[0] if free else len(held)
        if lane == len(held):
            held.append(None)
            before = [*before, False][:MOST_LANES]
        if reads - {lane} and lane < MOST_LANES:
            rows.append((_joints(reads, lane, before, _running(held)), ""))
        running = _running(held)
        held[lane] = node.name if left.get(node.name) else None
        if held[lane] is not None:
            lanes[node.name] = lane
        rows.append((_line(node, lane, running), _label(node, names, culprits)))
        while held and held[-1] is None:
            held.pop()
    width = max(len(drawn) for drawn, _ in rows)
    for drawn, label in rows:
        yield f"{drawn:{width}}  {label}".rstrip()


def _late(graph: Graph) -> Iterator[Node]:
    """The nodes in order, with inputs and constants just before their first readers, which needs fewer lanes."""
    waiting = {node.name: node for node in graph.nodes if node.op in ("placeholder", "get_attr")}
    read = {name for node in graph.nodes for name in node.inputs}
    for node in graph.nodes:
        if node.name not in waiting:
            yield from (waiting.pop(name) for name in node.inputs if name in waiting)
            yield node
        elif node.name not in read:
            yield waiting.pop(node.name)


def _running(held: Sequence[str | None]) -> list[bool]:
    """Return for each drawn lane whether it has a value."""
    return [name is not None for name in held[:MOST_LANES]]


def _joints(reads: Collection[int], lane: int, before: Sequence[bool], after: Sequence[bool]) -> str:
    """Draw the line from the lanes ``reads`` to ``lane``, the lane of the next node."""
    ends = {*reads, lane}
    first, last = min(ends), max(ends)
    out = ""
    for at in range(min(len(before), MOST_LANES)):
        if at in ends:
            ways = ("u" if before[at] else "") + ("d" if after[at] or at == lane else "")
            ways += ("l" if at > first else "") + ("r" if at < last else "")
        else:
            ways = "ud" if before[at] else "lr" if first < at < last else ""
        out += _JOINTS[ways] + ("─" if first <= at < last else " ")
    return out.rstrip()


def _line(node: Node, lane: int, running: Sequence[bool]) -> str:
    mark = _MARKS.get(node.op, "●")
    marks = [mark if at == lane else "│" if live else " " for at, live in enumerate(running)]
    return " ".join(marks[:MOST_LANES]).rstrip()


def _names(graph: Graph) -> dict[str, str]:
    placeholders = graph.placeholders
    short = input_names([str(node.target) for node in placeholders])
    return {node.name: name for node, name in zip(placeholders, short, strict=True)}


def _label(node: Node, names: dict[str, str], culprits: Collection[str]) -> str:
    if node.op == "placeholder":
        said = names[node.name]
    elif node.op == "output":
        said = f"return {arguments(node, names)}"
    elif node.op == "get_attr":
        said = f"{node.name} = self.{node.target}"
    elif node.op == "call_method":
        first, _, rest = arguments(node, names).partition(", ")
        said = f"{node.name} = {first}{operation(node)}({rest})"
    else:
        said = f"{node.name} = {operation(node)}({arguments(node, names)})"
    if len(said) > MOST_LINE:
        said = f"{said[:MOST_LINE]}... and {count(len(said) - MOST_LINE, 'further character')}"
    return "  ".join(part for part in (said, shape_text(node), "← here" if node.name in culprits else "") if part)
