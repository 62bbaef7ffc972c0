"""Graphs as large as a document may hold, of shapes that are expensive to print, draw or read."""

from __future__ import annotations

import indexes

from fxminify.store.document.case import Case, Graph, Node

X = Node("x", "placeholder", "L_x_")


def call(name: str, function: str, *inputs: str) -> Node:
    return Node(name, "call_function", {"fn": function}, tuple({"ref": i} for i in inputs))


def returning(nodes: list[Node], *names: str, **attrs: Graph) -> Graph:
    output = Node("output", "output", "output", ({"tuple": [{"ref": name} for name in names]},))
    return Graph((*nodes, output), {path: {"graph": body} for path, body in attrs.items()})


def chain(count: int) -> Graph:
    nodes = [X]
    for i in range(count):
        nodes.append(call(f"sin_{i}", "torch.sin", nodes[-1].name))
    return returning(nodes, nodes[-1].name)


def wide(count: int) -> Graph:
    """Every value is read once more, at the end: as many lanes as nodes."""
    nodes = [call(f"s{i}", "torch.sin", "x") for i in range(count)]
    return returning([X, *nodes], *(node.name for node in nodes))


def in_place(count: int) -> Graph:
    nodes = [X]
    for i in range(count):
        nodes.append(call(f"s{i}", "_operator.iadd", nodes[-1].name, "x"))
    return returning(nodes, nodes[-1].name)


def bodies(count: int) -> Graph:
    held = [Node(f"held_{i}", "get_attr", f"body_{i}") for i in range(count)]
    return returning([X, *held], "x", **{f"body_{i}": returning([X], "x") for i in range(count)})


def shared_bodies(count: int) -> Graph:
    """Calls in a row, each of which shares a body with the next; the last is not one that may return its value bare."""
    held = [Node(f"held_{i}", "get_attr", f"body_{i}") for i in range(count + 1)]
    calls = [
        Node(f"c{i}", "call_function", {"hop": "cond"}, ({"ref": "x"}, {"ref": f"held_{i}"}, {"ref": f"held_{i + 1}"}))
        for i in range(count)
    ]
    found = {f"body_{i}": returning([X], *("x",) * (1 + (i == count))) for i in range(count + 1)}
    return returning([X, *held, *calls], "x", **found)


def alike(count: int) -> Graph:
    """Inputs whose names have many words and differ in none of them."""
    words = "_modules_".join("abcdefgh") * 4
    return returning([Node(f"x{i}", "placeholder", f"L_{words}") for i in range(count)], "x0")


def dense(count: int) -> Graph:
    nodes = [X]
    for i in range(count):
        nodes.append(call(f"s{i}", "torch.cat", *(node.name for node in nodes)))
    return returning(nodes, nodes[-1].name)


def case(graph: Graph) -> Case:
    return Case(graph, ({"tensor": 0},) * len(graph.placeholders), indexes.chain(["sin"]).tensors)


#: Shapes near the limits of `fxminify.store.document.decode`: 50,000 nodes, 5,000,000 values.
BOMBS = {
    "chain": lambda: chain(49_000),
    "wide": lambda: wide(49_000),
    "in place": lambda: in_place(49_000),
    "bodies": lambda: bodies(12_000),
    "shared bodies": lambda: shared_bodies(9_000),
    "alike": lambda: alike(49_000),
    "dense": lambda: dense(1_500),
}
