"""Operands of loops that stand in several lists: what is carried from step to step, and what is taken apart.

`minifier.candidate.subgraphs.Operand` takes away what every operator has, the operands at the end. Here are those
that say
more than a value: one that a loop carries is a placeholder of each body, a result of the last one, and a result of the
operator. All of it goes together, and only where nothing else depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...store.document.case import Case, Graph, Node, Value, tag
from ..tracing.hop_calls import items, with_body
from .graph_view import Subject, reached
from .subgraphs import OfCall, found, picks

#: Positions of the lists of operands, whose items are the placeholders in order, and whether the first is carried.
_LISTS = {"while_loop": ((2,), True), "scan": ((1, 2), True), "map_impl": ((1,), False)}


@dataclass(frozen=True, slots=True)
class Slot(OfCall):
    """The operand at ``index``, counted over all lists, of the call of ``body`` by ``node`` goes with its results."""

    def apply(self, subject: Subject) -> Case:
        case = subject.case
        graph, call = found(case, self.path, self.node, self.body)
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
            graph = with_body(graph, (name,), inner)
        group = group[:place] + group[place + 1 :]
        args = list(call.node.args)
        args[at] = {"tuple": group} if tag(args[at]) == "tuple" else group
        changed = {self.node: replace(call.node, args=tuple(args))}
        for name, index in picked.items() if carried else ():
            if index > self.index:
                node = next(n for n in graph.nodes if n.name == name)
                changed[name] = replace(node, args=(node.args[0], index - 1))
        graph = replace(graph, nodes=tuple(changed.get(n.name, n) for n in graph.nodes))
        return replace(case, graph=with_body(case.graph, self.path, graph))


def slots(node: Node) -> list[tuple[int, int, bool]]:
    """For each operand of a loop in such a list: the position of the list, its place there, whether it is carried."""
    operator = node.target.get("hop", "") if isinstance(node.target, dict) else ""
    lists, carries = _LISTS.get(operator, ((), False))
    if any(at >= len(node.args) for at in lists):
        return []
    return [
        (at, place, carries and at == lists[0]) for at in lists for place in range(len(items(node.args[at])))
    ]  # fmt: skip


def _less(graph: Graph, index: int, *, returns: bool) -> Graph | None:
    """A body without its placeholder, and without its result, at ``index``; None where other results depend on it."""
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
