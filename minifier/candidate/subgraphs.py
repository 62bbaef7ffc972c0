"""Edits of the subgraphs of higher-order operators. A `Patch` carries them beside its edits of the top-level graph.

An edit is plain data and addresses a graph by its path. Any edits may be combined, so an edit does nothing if its node
was already removed or the operator does not allow it. The rules of `minifier.candidate.patch` also hold inside a
subgraph, with two differences. The result of a subgraph keeps its form. A value whose producer is removed becomes a
further operand of every call of the subgraph (`provide`), and finally an input of the case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...store.document.case import Case, Graph, Json, Node, TensorSpec, Value, map_refs, refs, tag
from ...store.document.program_lines import place_of
from .graph_view import GraphView, reached
from .hop_calls import HopCall, Path, deciding, exists, hop_calls, items, paths, subgraph, with_subgraph
from .patch import Patch, reduced
from .trace import Trace, copied


class SubgraphView(GraphView):
    """A view of a subgraph. Its placeholders have the values that the first call gave them."""

    def __init__(self, case: Case, path: Path, trace: Trace) -> None:
        graph = subgraph(case.graph, path)
        super().__init__(replace(case, graph=graph, inputs=(None,) * len(graph.placeholders)), trace)
        self.path = path
        #: Nodes that decide when a loop ends: without them it may never.
        self.fixed = deciding(subgraph(case.graph, path[:-1])).get(path[-1], frozenset())

    def tensor(self, name: str) -> TensorSpec | None:
        return self.trace.tensor(name) if name in self.given else super().tensor(name)


def graphs(view: GraphView) -> list[tuple[Path, GraphView]]:
    """The path and the view of the top-level graph and of every subgraph, the outer ones first."""
    return [((), view), *((b.path, b) for b in subgraphs(view))]


def subgraphs(view: GraphView) -> list[SubgraphView]:
    """A view of every subgraph of a case, the outer ones first."""
    return [SubgraphView(view.case, path, view.trace) for path in paths(view.case.graph)]


@dataclass(frozen=True, slots=True)
class OfSubgraph:
    """An edit of the subgraph at ``path``. Inner subgraphs are edited before outer ones."""

    path: Path

    @property
    def order(self) -> tuple[int, int]:
        return -len(self.path), 0

    def inner(self, view: GraphView) -> SubgraphView | None:
        """The view of the subgraph, None if it was removed."""
        case = view.case
        return SubgraphView(case, self.path, view.trace) if exists(case.graph, self.path) else None


@dataclass(frozen=True, slots=True)
class OfCall:
    """An edit of operand or result ``index`` of the call of ``subgraph`` by ``node`` in the graph at ``path``.

    Edits with a higher index are applied first, so that the others keep their places.
    """

    path: Path
    node: str
    subgraph: str
    index: int

    @property
    def order(self) -> tuple[int, int]:
        return -len(self.path), -self.index


@dataclass(frozen=True, slots=True)
class Inside(OfSubgraph):
    """``patch`` (drops, replacements and erasures) applied to the subgraph at ``path``."""

    patch: Patch

    def apply(self, view: GraphView) -> Case:
        case, inner = view.case, self.inner(view)
        if inner is None:
            return case
        made = reduced(inner, _valid(inner, self.patch))
        if made is None:
            return case
        graph, missing = made
        edited = replace(case, graph=with_subgraph(case.graph, self.path, graph))
        return provide(edited, self.path, missing, view.trace) or case


@dataclass(frozen=True, slots=True)
class Zeros(OfSubgraph):
    """The node ``name`` of the subgraph at ``path`` becomes zeros of its shape and dtype."""

    name: str

    def apply(self, view: GraphView) -> Case:
        case, inner = view.case, self.inner(view)
        if inner is None:
            return case
        node, spec = inner.nodes.get(self.name), inner.tensor(self.name)
        if node is None or spec is None or not node.is_compute or node.target in _ZEROS:
            return case
        if node.name in inner.fixed and inner.case.graph.output.args[0] != {"ref": node.name}:
            return case  # no loop that begins goes on for ever, so one must not begin
        target = _ZEROS[isinstance(node.target, dict) and "op" in node.target]
        kwargs: Json = {"dtype": {"dtype": spec.dtype}, "device": {"device": spec.device}}
        zeros = Node(node.name, "call_function", target, (list(spec.shape),), kwargs, node.meta)
        graph = inner.case.graph
        graph = replace(graph, nodes=tuple(zeros if n is node else n for n in graph.nodes))
        edited = replace(case, graph=with_subgraph(case.graph, self.path, graph))
        return without_dead(edited, case, self.path, view.trace)


@dataclass(frozen=True, slots=True)
class Operand(OfCall):
    """The operand at ``index`` is removed if no subgraph of the call reads it, or if the call passes it twice."""

    def apply(self, view: GraphView) -> Case:
        case = view.case
        graph, call = found(case, self.path, self.node, self.subgraph)
        if call is None or not call.free or self.index >= len(call.operands):
            return case
        count = len(call.operands)
        group = [c for c in hop_calls(graph) if c.free and set(c.shared) & set(call.shared)]
        if any(len(c.operands) != count or set(c.shared) != set(call.shared) for c in group):
            return case
        same = call.operands.index(call.operands[self.index])
        for name in call.shared:
            inner: Graph = graph.attrs[name]["graph"]
            gone, equal = inner.placeholders[self.index - count], inner.placeholders[same - count]
            if gone is not equal and self.is_equal(group, same):
                inner = renamed_reads(inner, gone.name, equal.name)
                gone = inner.placeholders[self.index - count]
            elif any(gone.name in n.inputs for n in inner.nodes):
                return case
            inner = replace(inner, nodes=tuple(n for n in inner.nodes if n is not gone))
            graph = with_subgraph(graph, (name,), inner)
        for other in group:
            operands = other.operands
            graph = _with_node(graph, other.with_operands(operands[: self.index] + operands[self.index + 1 :]))
        return without_dead(
            replace(case, graph=with_subgraph(case.graph, self.path, graph)), case, self.path, view.trace
        )

    def is_equal(self, group: list[HopCall], other: int) -> bool:
        """Whether every call passes the same operand at ``other`` as at ``index``."""
        return all(c.operands[other] == c.operands[self.index] for c in group)


@dataclass(frozen=True, slots=True)
class OperatorResult(OfCall):
    """The result at ``index`` is removed if nothing reads it."""

    def apply(self, view: GraphView) -> Case:
        case = view.case
        graph, call = found(case, self.path, self.node, self.subgraph)
        if call is None:
            return case
        picked = picks(graph, self.node)
        if picked is None or self.index in picked.values():
            return case
        returning = [p for p in call.paths if len(items(graph.attrs[p]["graph"].output.args[0])) > self.index]
        if not returning or any(len(items(graph.attrs[p]["graph"].output.args[0])) < 2 for p in returning):
            return case
        for name in returning:
            inner: Graph = graph.attrs[name]["graph"]
            values = items(inner.output.args[0])
            graph = with_subgraph(graph, (name,), _returning(inner, values[: self.index] + values[self.index + 1 :]))
        for name, index in picked.items():
            if index > self.index:
                node = next(n for n in graph.nodes if n.name == name)
                graph = _with_node(graph, replace(node, args=(node.args[0], index - 1)))
        edited = replace(case, graph=with_subgraph(case.graph, self.path, graph))
        for name in returning:
            edited = without_dead(edited, case, (*self.path, name), view.trace)
        return edited


@dataclass(frozen=True, slots=True)
class Shift(OfSubgraph):
    """The subgraph at ``path``, the only one of its call, returns ``source`` at ``index``, whatever its shape is.

    Outer nodes that read the former result read its recorded value.
    """

    index: int
    source: str

    def apply(self, view: GraphView) -> Case:
        case, outer = view.case, self.path[:-1]
        if not exists(case.graph, self.path):
            return case
        inner, graph = subgraph(case.graph, self.path), subgraph(case.graph, outer)
        users = [c for c in hop_calls(graph) if self.path[-1] in c.paths]
        values = items(inner.output.args[0])
        if len(users) != 1 or self.index >= len(values) or all(n.name != self.source for n in inner.nodes):
            return case
        picked = picks(graph, users[0].node.name)
        if picked is None:
            return case
        values[self.index] = {"ref": self.source}
        graph = with_subgraph(graph, self.path[-1:], _returning(inner, values))
        returned = set(refs(list(graph.output.args)))
        missing = []
        for name, index in picked.items():
            if index == self.index:
                graph, again = _renamed_aside(graph, name, self.source)
                if again:
                    missing.append(name)
                elif name not in returned:
                    continue
        edited = replace(case, graph=with_subgraph(case.graph, outer, graph))
        done = provide(edited, outer, missing, view.trace)
        return case if done is None else without_dead(done, case, self.path, view.trace)


def found(case: Case, path: Path, node: str, name: str) -> tuple[Graph, HopCall | None]:
    """The graph at ``path``, and the call of its subgraph ``name`` by ``node``; None for a call that was removed.

    Where ``path`` was removed, the graph is ``case.graph``.
    """
    if not exists(case.graph, path):
        return case.graph, None
    graph = subgraph(case.graph, path)
    return graph, next((c for c in hop_calls(graph) if c.node.name == node and name in c.paths), None)


def picks(graph: Graph, name: str) -> dict[str, int] | None:
    """The index of the result that each ``getitem`` takes of the call ``name``; None if another node reads the call."""
    picked = {}
    for node in graph.nodes:
        if name not in node.inputs:
            continue
        if (
            node.op != "call_function"
            or not str(node.target.get("fn", "")).endswith("getitem")
            or len(node.args) != 2
            or node.args[0] != {"ref": name}
            or type(node.args[1]) is not int
        ):
            return None
        picked[node.name] = node.args[1]
    return picked


def provide(case: Case, path: Path, names: Iterable[str], trace: Trace) -> Case | None:
    """Add placeholders ``names``, which have recorded values, to the graph of ``case`` at ``path``.

    Every call of the subgraph passes them as operands; the outermost ones become inputs of the case. Return None if a
    call takes no further operands.
    """
    names = list(names)
    if not names:
        return case
    if not path:
        return with_inputs(case, names, trace)
    outer, own = path[:-1], path[-1]
    graph = subgraph(case.graph, outer)
    users = [c for c in hop_calls(graph) if own in c.paths]
    if not users or any(not c.free or own not in c.shared for c in users):
        return None
    taken = {n.name for n in graph.nodes}
    given = []
    for name in names:
        given.append(name if name not in taken else copied(name, taken))
        taken.add(given[-1])
    shared = dict.fromkeys(p for c in users for p in c.shared)
    for other in shared:
        inner: Graph = graph.attrs[other]["graph"]
        inside = {n.name for n in inner.nodes}
        more = []
        for name in names:
            more.append(name if other == own else copied(name, inside))
            inside.add(more[-1])
        graph = with_subgraph(graph, (other,), _with_placeholders(inner, more))
    for call in users:
        graph = _with_node(graph, call.with_operands([*call.operands, *({"ref": n} for n in given)]))
    return provide(replace(case, graph=with_subgraph(case.graph, outer, graph)), outer, given, trace)


def with_inputs(case: Case, names: list[str], trace: Trace) -> Case | None:
    """``case`` with inputs that have the recorded values of ``names``, None if one has no record."""
    tensors = list(case.tensors)
    inputs = list(case.inputs)
    for name in names:
        value = trace.value(name)
        if value is None or not value.snapshots:
            return None
        inputs.append({"tensor": _add(tensors, trace, value.snapshots[0][1])})
    graph = _with_placeholders(case.graph, names)
    return replace(case, graph=graph, inputs=tuple(inputs), tensors=tuple(tensors))


def _add(tensors: list[TensorSpec], trace: Trace, index: int) -> int:
    spec, place = trace.tensors[index], len(tensors)
    tensors.append(spec)
    if spec.parts:
        tensors[place] = replace(spec, parts=tuple(_add(tensors, trace, p) for p in spec.parts))
    return place


def _with_placeholders(graph: Graph, names: list[str]) -> Graph:
    made = tuple(Node(name, "placeholder", name) for name in names)
    first = graph.placeholders
    return replace(graph, nodes=(*first, *made, *(n for n in graph.nodes if n.op != "placeholder")))


def _with_node(graph: Graph, new: Node) -> Graph:
    return replace(graph, nodes=tuple(new if n.name == new.name else n for n in graph.nodes))


def renamed_reads(graph: Graph, old: str, new: str) -> Graph:
    """``graph`` with every read of ``old`` changed to ``new``."""

    def edit(value: Value) -> Value:
        return map_refs(value, lambda name: {"ref": new if name == old else name})

    return replace(graph, nodes=tuple(n.map_values(edit) if old in n.inputs else n for n in graph.nodes))


def _returning(graph: Graph, values: list[Value]) -> Graph:
    old = graph.output.args[0]
    new: Value = {"tuple": values} if tag(old) == "tuple" else values
    return replace(graph, nodes=(*graph.nodes[:-1], replace(graph.output, args=(new,))))


def _renamed_aside(graph: Graph, name: str, source: str) -> tuple[Graph, bool]:
    """``graph`` with the node ``name`` renamed to a copy of ``source``, which the graph returns instead of ``name``.

    Also whether other nodes still read ``name``: the caller has to provide a value of that name.
    """
    new = copied(source, {n.name for n in graph.nodes})
    nodes, again = [], False
    for old in graph.nodes:
        node = old
        if node.name == name:
            node = replace(node, name=new, meta=place_of(node))
        elif node.op == "output":
            node = node.map_values(lambda v: map_refs(v, lambda n: {"ref": new if n == name else n}))
        else:
            again = again or name in node.inputs
        nodes.append(node)
    returned = new in refs(list(nodes[-1].args))
    if not returned and isinstance(nodes[-1].args[0], dict) and "tuple" in nodes[-1].args[0]:
        nodes[-1] = replace(nodes[-1], args=({"tuple": [*items(nodes[-1].args[0]), {"ref": new}]},))
    return replace(graph, nodes=tuple(nodes)), again


def without_dead(edited: Case, before: Case, path: Path, trace: Trace) -> Case:
    """``edited`` without the nodes of the graph at ``path`` that are dead now and were not in ``before``."""
    if not exists(edited.graph, path):
        return edited
    live = SubgraphView(before, path, trace).live if path else GraphView(before, trace).live
    graph = subgraph(edited.graph, path)
    view = GraphView(replace(edited, graph=graph), trace)
    dead = {n for n in view.compute if n in live and n not in view.live}
    while True:
        # What an older side effect reads stays.
        needed = {n for n in dead if any(u not in dead for u in view.users[n])}
        if not needed:
            break
        dead -= needed
    nodes = [n for n in graph.nodes if n.name not in dead]
    read = {r for n in nodes for r in n.inputs}
    nodes = [n for n in nodes if n.op != "get_attr" or n.name in read]
    targets = {n.target for n in nodes if n.op in ("get_attr", "call_module")}
    attrs = {name: attr for name, attr in graph.attrs.items() if name in targets}
    return replace(edited, graph=with_subgraph(edited.graph, path, Graph(tuple(nodes), attrs, graph.training)))


def _valid(view: SubgraphView, patch: Patch) -> Patch:
    """``patch`` without edits of nodes that were removed or must stay."""
    names = view.nodes.keys() - view.fixed
    return Patch(
        drop=frozenset(n for n in patch.drop if n in names),
        replace={n: v for n, v in patch.replace.items() if n in names and (tag(v) != "ref" or v["ref"] in view.nodes)},
        erase=frozenset(n for n in patch.erase if n in names),
    )


#: What makes zeros in a graph of functions, and in one of operators.
_ZEROS: tuple[Json, Json] = ({"fn": "torch.zeros"}, {"op": "aten::zeros.default"})

#: Positions of the lists of operands, whose items are the placeholders in order, and whether the first is carried.
_LISTS = {"while_loop": ((2,), True), "scan": ((1, 2), True), "map_impl": ((1,), False)}


@dataclass(frozen=True, slots=True)
class Slot(OfCall):
    """The operand at ``index``, counted over all lists of operands of a loop, is removed with its results."""

    def apply(self, view: GraphView) -> Case:
        case = view.case
        graph, call = found(case, self.path, self.node, self.subgraph)
        if call is None or self.index >= len(slots(call.node)):
            return case
        at, place, carried = slots(call.node)[self.index]
        group = items(call.node.args[at])
        picked = picks(graph, self.node)
        if picked is None or len(group) < 2 or (carried and self.index in picked.values()):
            return case
        for number, name in enumerate(call.paths):
            returns = carried and number == len(call.paths) - 1
            inner = _less(graph.attrs[name]["graph"], self.index, returns=returns)
            if inner is None:
                return case
            graph = with_subgraph(graph, (name,), inner)
        group = group[:place] + group[place + 1 :]
        args = list(call.node.args)
        args[at] = {"tuple": group} if tag(args[at]) == "tuple" else group
        changed = {self.node: replace(call.node, args=tuple(args))}
        for name, index in picked.items() if carried else ():
            if index > self.index:
                node = next(n for n in graph.nodes if n.name == name)
                changed[name] = replace(node, args=(node.args[0], index - 1))
        graph = replace(graph, nodes=tuple(changed.get(n.name, n) for n in graph.nodes))
        return replace(case, graph=with_subgraph(case.graph, self.path, graph))


def slots(node: Node) -> list[tuple[int, int, bool]]:
    """For each operand in a list of a loop: the position of the list, its place there, and whether it is carried."""
    operator = node.target.get("hop", "") if isinstance(node.target, dict) else ""
    lists, carries = _LISTS.get(operator, ((), False))
    if any(at >= len(node.args) for at in lists):
        return []
    return [
        (at, place, carries and at == lists[0]) for at in lists for place in range(len(items(node.args[at])))
    ]  # fmt: skip


def _less(graph: Graph, index: int, *, returns: bool) -> Graph | None:
    """``graph`` without its placeholder at ``index`` and, if ``returns``, its result there.

    None if other results depend on the placeholder.
    """
    placeholders = graph.placeholders
    if index >= len(placeholders):
        return None
    gone, output = placeholders[index], graph.output
    if returns:
        old: Value = output.args[0]
        values = items(old)
        values = values[:index] + values[index + 1 :]
        if not values:
            return None
        output = replace(output, args=({"tuple": values} if tag(old) == "tuple" else values,))
    reads = {n.name: n.inputs for n in graph.nodes[:-1]}
    needed = reached(reads, list(output.inputs))
    before = reached(reads, list(graph.output.inputs))
    dead = {n.name for n in graph.nodes[:-1] if n.op != "placeholder" and n.name in before and n.name not in needed}
    kept = [n for n in graph.nodes[:-1] if n is not gone and n.name not in dead]
    if any(gone.name in n.inputs or dead & set(n.inputs) for n in (*kept, output)):
        return None
    targets = {n.target for n in kept if n.op in ("get_attr", "call_module")}
    return Graph((*kept, output), {p: a for p, a in graph.attrs.items() if p in targets}, graph.training)
