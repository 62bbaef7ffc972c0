"""Replace a higher-order operator by the nodes of its subgraphs: the edit `Inline` of the top-level graph.

All operators are treated alike. The trace gives the outer value of each placeholder and its value in the first call.
The shapes decide which results can replace the results of the operator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...store.document.case import Case, Graph, Json, Node, Value, map_refs, refs, tag
from .graph_view import GraphView
from .hop_calls import HopCall, hop_calls, items
from .subgraphs import picks, with_inputs
from .trace import ValueKind, copied


@dataclass(frozen=True, slots=True)
class Inline:
    """The nodes of all subgraphs of the call ``node`` replace that node in the top-level graph.

    A placeholder of a subgraph becomes the operand of the call, or an input with its value in the first call. A node
    that read a result of the call reads what the subgraph returned if shape and dtype are the same. Otherwise it reads
    an input with the recorded result.
    """

    node: str

    @property
    def order(self) -> tuple[int, int]:
        return 0, 0

    def apply(self, view: GraphView) -> Case:
        made = [c for c in hop_calls(view.case.graph) if c.node.name == self.node]
        if not made:
            return view.case
        return _Inlining(view, made).case() or view.case


class _Inlining:
    """An application of `Inline`."""

    def __init__(self, view: GraphView, made: list[HopCall]) -> None:
        self.view = view
        self.trace = view.trace
        self.made = made
        self.node = made[0].node
        self.taken = set(view.nodes)
        self.inputs: list[tuple[Node, str]] = []
        self.nodes: list[Node] = []
        self.attrs: dict[str, Json] = {}
        self.leaves: list[list[Value]] = []

    def case(self) -> Case | None:
        taken = [self.subgraph(call, path) for call in self.made for path in call.paths]
        if not any(taken):
            return None
        case, graph = self.view.case, self.view.case.graph
        results = self.results()
        if results is None:
            return None
        substitutes, missing, gone = results
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.name == self.node.name:
                nodes += self.nodes
            elif node.name not in gone:
                nodes.append(node.map_values(lambda v: map_refs(v, lambda n: substitutes.get(n, {"ref": n}))))
        output = nodes[-1]
        have = set(refs(list(output.args)))
        more = [v for group in self.leaves for v in group if v["ref"] not in have]
        values = list(items(output.args[0]))
        kept = [v for v in values if tag(v) != "ref" or v["ref"] not in missing]
        unique = {v["ref"]: v for v in more}
        nodes[-1] = replace(output, args=({"tuple": [*kept, *unique.values()]},))
        edited = replace(case, graph=replace(graph, nodes=tuple(nodes), attrs={**graph.attrs, **self.attrs}))
        read = {r for n in nodes for r in n.inputs}
        names = [*dict.fromkeys([origin for _, origin in self.inputs]), *(m for m in missing if m in read)]
        return with_inputs(edited, [n for n in names if n in read], self.trace)

    def subgraph(self, call: HopCall, path: str) -> bool:
        """Copy the nodes of one subgraph. False if the values of its placeholders are not known."""
        graph: Graph = self.view.case.graph.attrs[path]["graph"]
        given = self.given(call, path, graph)
        if given is None:
            return False
        moved: dict[str, Value] = dict(given)
        attrs = {name: self.attribute(path, name) for name in graph.attrs}
        for node in graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            name = copied(node.name, self.taken) if node.name in self.taken else node.name
            self.taken.add(name)
            moved[node.name] = {"ref": name}
            edited = node.map_values(lambda v: map_refs(v, lambda n: moved.get(n, {"ref": n})))
            target = attrs.get(node.target, node.target) if node.op in ("get_attr", "call_module") else node.target
            self.nodes.append(replace(edited, name=name, target=target))
        self.attrs |= {attrs[name]: attr for name, attr in graph.attrs.items()}
        output = map_refs(graph.output.args[0], lambda n: moved.get(n, {"ref": n}))
        self.leaves.append([v for v in _leaves(output) if tag(v) == "ref"])
        return True

    def given(self, call: HopCall, path: str, graph: Graph) -> dict[str, Value] | None:
        """Return a replacement for each placeholder of the subgraph, or None if one cannot be replaced."""
        given: dict[str, Value] = {}
        placeholders = graph.placeholders
        operands: list[Value] = call.operands if path in call.shared else []
        known = dict(zip([p.name for p in placeholders][len(placeholders) - len(operands) :], operands, strict=True))
        for node in placeholders:
            recorded = self.trace.value(node.name)
            outside = known.get(node.name)
            if outside is None and recorded is not None and recorded.alias in self.node.inputs:
                outside = {"ref": recorded.alias}
            if outside is not None and self.is_alike(outside, node.name):
                given[node.name] = outside
            elif recorded is None or recorded.kind is ValueKind.OPAQUE:
                if any(node.name in n.inputs for n in graph.nodes):
                    return None
                given[node.name] = None
            elif recorded.kind is ValueKind.LITERAL:
                given[node.name] = recorded.literal
            else:
                name = copied(node.name, self.taken) if node.name in self.taken else node.name
                self.taken.add(name)
                self.inputs.append((node, name))
                given[node.name] = {"ref": name}
        return given

    def is_alike(self, value: Value, name: str) -> bool:
        if tag(value) != "ref":
            return True
        spec = self.trace.tensor(name)
        now = self.view.tensor(value["ref"])
        return spec is None or now is None or (spec.shape, spec.dtype) == (now.shape, now.dtype)

    def attribute(self, path: str, name: str) -> str:
        base = f"{path}_{name}".replace(".", "_")
        free, count = base, 0
        while free in self.view.case.graph.attrs or free in self.attrs:
            count += 1
            free = f"{base}_{count}"
        self.attrs[free] = {}
        return free

    def results(self) -> tuple[dict[str, Value], list[str], set[str]] | None:
        """Return the replacement of each result, the results that must become inputs, and the nodes that are removed.

        Return None if the operator has a result that nothing can replace.
        """
        graph, name = self.view.case.graph, self.node.name
        picked = picks(graph, name)
        if picked is None:
            users = self.view.users[name]
            if users and not self.leaves[0]:
                return None
            return {name: self.leaves[0][0]} if users else {}, [], set()
        substitutes: dict[str, Value] = {}
        missing = []
        for user, index in picked.items():
            leaf = next((g[index] for g in self.leaves if index < len(g) and self.is_result(user, g[index])), None)
            if leaf is None:
                missing.append(user)
            else:
                substitutes[user] = leaf
        return substitutes, missing, set(picked)

    def is_result(self, user: str, leaf: Value) -> bool:
        """Whether ``leaf`` can replace the result ``user``: both have one shape and dtype."""
        outside = leaf["ref"] in self.view.nodes
        spec = self.view.tensor(leaf["ref"]) if outside else self.trace.tensor(leaf["ref"])
        wanted = self.view.tensor(user)
        return spec is not None and wanted is not None and (spec.shape, spec.dtype) == (wanted.shape, wanted.dtype)


def _leaves(value: Value) -> list[Value]:
    inner = items(value)
    return [leaf for item in inner for leaf in _leaves(item)] if inner else [value]
