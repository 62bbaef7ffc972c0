"""HOP calls: which subgraphs a higher-order operator calls, and with which operands. No torch.

A *call* is a node that reads an attribute which is a graph, its *subgraph*. The *operands* stand at the end of the
arguments: in the last list (``cond``, ``while_loop``, ``scan``, ``map``...), or one by one after the subgraph
(``tag_activation_checkpoint``, ``wrap...``, ``invoke_subgraph``). The last placeholders of the subgraph stand for them.
Operands can be added or removed as long as every subgraph of the call agrees. Operators that follow neither form
(``autograd_function_apply``) have fixed operands. As few operators as possible are treated by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...store.document.case import Case, Graph, Node, Value, map_refs, refs, tag

#: From the top-level graph to a subgraph: attribute paths, one for each level.
Path = tuple[str, ...]

#: ``flex_attention`` has a separate list of operands for each of its functions.
_FLEX = {"flex_attention": (3, 7), "flex_attention_backward": (7, 12)}
#: Operators whose number of operands also depends on the results of another subgraph.
_FIXED = frozenset({"autograd_function_apply", "custom_function_call"})


@dataclass(frozen=True, slots=True)
class HopCall:
    """The call of a higher-order operator. ``node`` calls the subgraphs at ``paths``, attributes of the graph of the
    node.

    ``at`` is the position of the list of operands among the arguments; with ``spread`` it is the position of the first
    operand. It is None for unknown operands. The subgraphs in ``shared`` receive the operands. ``free``: operands can
    be added and removed.
    """

    node: Node
    paths: tuple[str, ...]
    at: int | None = None
    spread: bool = False
    shared: tuple[str, ...] = ()
    free: bool = True

    @property
    def operands(self) -> list[Value]:
        """The operands of the call; none if they are not known."""
        if self.at is None:
            return []
        return list(self.node.args[self.at :]) if self.spread else items(self.node.args[self.at])

    def with_operands(self, operands: list[Value]) -> Node:
        """The node with these operands. ``at`` must be known."""
        assert self.at is not None
        args = self.node.args
        if self.spread:
            return replace(self.node, args=(*args[: self.at], *operands))
        group = {"tuple": operands} if tag(args[self.at]) == "tuple" else operands
        return replace(self.node, args=(*args[: self.at], group, *args[self.at + 1 :]))


def items(value: Value) -> list[Value]:
    """The items of a list or a tuple; none for any other value."""
    found: Value = value["tuple"] if tag(value) == "tuple" else value
    return list(found) if isinstance(found, list) else []


def hop_calls(graph: Graph) -> list[HopCall]:
    """The calls that a graph makes, in order. The calls that its subgraphs make are left out."""
    if not any("graph" in attr for attr in graph.attrs.values()):
        return []
    subgraphs = {
        n.name: n.target for n in graph.nodes if n.op == "get_attr" and "graph" in graph.attrs.get(n.target, {})
    }
    found: list[HopCall] = []
    for node in graph.nodes:
        if node.is_compute and (names := [n for n in node.inputs if n in subgraphs]):
            found += _calls_of(graph, node, names, subgraphs)
    return found


def _calls_of(graph: Graph, node: Node, names: list[str], subgraphs: dict[str, str]) -> Iterator[HopCall]:
    paths = tuple(dict.fromkeys(subgraphs[n] for n in names))
    operator = node.target.get("hop", "") if isinstance(node.target, dict) else ""
    if operator in _FLEX:
        first, lists = _FLEX[operator]
        for at, values in ((lists, list(node.args[first : first + 1])), (lists + 1, list(node.args[first + 1 :][:1]))):
            own = tuple(subgraphs[r] for r in refs(values) if r in subgraphs)
            if own:
                given = at if at < len(node.args) and _fits(graph, own, len(items(node.args[at]))) else None
                yield HopCall(node, own, given, shared=own if given is not None else (), free=given is not None)
        return
    mentioned = [i for i, a in enumerate(node.args) if any(r in names for r in refs([a]))]
    yield _call(graph, node, paths, mentioned, operator)


def _call(graph: Graph, node: Node, paths: tuple[str, ...], mentioned: list[int], operator: str) -> HopCall:
    if not mentioned:
        return HopCall(node, paths, free=False)
    last, args = mentioned[-1], node.args
    if operator in _FIXED:
        known = len(graph.attrs[paths[0]]["graph"].placeholders) == len(args) - last - 1
        return HopCall(node, paths, last + 1 if known else None, spread=True, shared=paths[:known], free=False)
    if len(args) - 1 > last and (tag(args[-1]) == "tuple" or isinstance(args[-1], list)):
        if _fits(graph, paths, len(items(args[-1]))):
            return HopCall(node, paths, len(args) - 1, shared=paths)
        return HopCall(node, paths, free=False)
    start = last + 1
    while start < len(args) and tag(args[start]) != "ref":
        start += 1
    for at in range(last + 1, start + 1):
        if len(paths) == 1 and len(graph.attrs[paths[0]]["graph"].placeholders) == len(args) - at:
            return HopCall(node, paths, at, spread=True, shared=paths)
    return HopCall(node, paths, free=False)


def _fits(graph: Graph, paths: tuple[str, ...], count: int) -> bool:
    return all(len(graph.attrs[p]["graph"].placeholders) >= count for p in paths)


def subgraph(graph: Graph, path: Path) -> Graph:
    """The graph at ``path``; the empty path is ``graph`` itself."""
    for part in path:
        graph = graph.attrs[part]["graph"]
    return graph


def exists(graph: Graph, path: Path) -> bool:
    """Whether there is a subgraph at ``path``."""
    for part in path:
        if "graph" not in graph.attrs.get(part, {}):
            return False
        graph = graph.attrs[part]["graph"]
    return True


def with_subgraph(graph: Graph, path: Path, new: Graph) -> Graph:
    """``graph`` with another graph at ``path``."""
    if not path:
        return new
    inner = with_subgraph(graph.attrs[path[0]]["graph"], path[1:], new)
    return replace(graph, attrs={**graph.attrs, path[0]: {**graph.attrs[path[0]], "graph": inner}})


def paths(graph: Graph) -> list[Path]:
    """The paths of all subgraphs of a graph, also of those inside subgraphs; outer ones come first."""
    found: list[Path] = []
    for name, attr in graph.attrs.items():
        if "graph" in attr:
            found += [(name,), *((name, *inner) for inner in paths(attr["graph"]))]
    return found


def with_distinct_names(case: Case) -> Case:
    """``case`` with a unique name for every node of every graph, so that one trace can hold all values."""
    inner = paths(case.graph)
    if not inner:
        return case
    taken = {n.name for n in case.graph.nodes}
    graph = case.graph
    for path in inner:
        old = subgraph(graph, path)
        names: dict[str, str] = {}
        for node in old.nodes:
            name, count = node.name, 0
            while name in taken:
                count += 1
                name = f"{node.name}_{count}"
            taken.add(name)
            names[node.name] = name
        if any(a != b for a, b in names.items()):
            graph = with_subgraph(graph, path, renamed(old, names))
    return replace(case, graph=graph)


def renamed(graph: Graph, names: dict[str, str]) -> Graph:
    """``graph`` with its nodes renamed from the keys of ``names`` to the values."""

    def edit(value: Value) -> Value:
        return map_refs(value, lambda name: {"ref": names.get(name, name)})

    return replace(graph, nodes=tuple(replace(n.map_values(edit), name=names.get(n.name, n.name)) for n in graph.nodes))


def positions(graph: Graph, start: int = 0) -> dict[str, int]:
    """A number for every node, by name, in execution order; the nodes of a subgraph come before its first call."""
    numbers: dict[str, int] = {}
    called: dict[str, list[str]] = {}
    for call in hop_calls(graph):
        called.setdefault(call.node.name, []).extend(call.paths)
    done: set[str] = set()
    for node in graph.nodes:
        for path in called.get(node.name, ()):
            if path not in done:
                done.add(path)
                numbers |= positions(graph.attrs[path]["graph"], start + len(numbers))
        numbers.setdefault(node.name, start + len(numbers))
    return numbers


def deciding(graph: Graph) -> dict[str, frozenset[str]]:
    """For each subgraph of a ``while_loop`` in ``graph``, the nodes that decide when the loop ends.

    These are all nodes of the condition, and the nodes of the body that compute the values that the condition reads.
    """
    found: dict[str, frozenset[str]] = {}
    for call in hop_calls(graph):
        if not isinstance(call.node.target, dict) or call.node.target.get("hop") != "while_loop" or len(call.paths) < 2:
            continue
        condition, loop = (graph.attrs[p]["graph"] for p in call.paths[:2])
        found[call.paths[0]] = frozenset(n.name for n in condition.nodes if n.op != "placeholder")
        read = {r for n in condition.nodes for r in n.inputs}
        wanted = {i for i, p in enumerate(condition.placeholders) if p.name in read}
        results = items(loop.output.args[0])
        place = {p.name: i for i, p in enumerate(loop.placeholders)}
        reads = {n.name: n.inputs for n in loop.nodes}
        done: set[str] = set()
        stack = [r for i in wanted if i < len(results) for r in refs(results[i])]
        while stack:
            name = stack.pop()
            if name in done:
                continue
            done.add(name)
            stack += reads[name]
            if name in place and place[name] < len(results):
                stack += refs(results[place[name]])
        found[call.paths[1]] = frozenset(done)
    return found
