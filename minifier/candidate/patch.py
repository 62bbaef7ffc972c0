"""A `Patch`: a proposed edit of a case as plain data, and its application. This module does not import torch.

Passes propose four kinds of edits. Patches merge by union, so any set of patches is one candidate:

* ``drop`` removes a compute node. Its readers read the recorded value: a tensor from an input, a number as it is. The
  candidate returns the values that only this node read, so that the nodes that make them do not become dead;
* ``replace`` lets every reader of a node read another value of the same type;
* ``cut`` stops returning a value;
* ``erase`` removes a node that no returned value depends on, and the dead nodes that read it.

``edits`` change subgraphs of higher-order operators, see `fxminify.minifier.candidate.subgraphs`. They
are applied first.

In the end `apply` removes what is unused: nodes that became dead through the edit, inputs, attributes, tensors. It
never builds a graph and never reads the bytes of a storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...store.document.case import Case, Graph, Json, Node, TensorSpec, Value, map_refs, tag
from .graph_view import GraphView, reached
from .trace import ValueKind


class Edit(Protocol):
    """An edit of a subgraph or of its call, see `minifier.candidate.subgraphs`. `apply` sorts edits by ``order``."""

    @property
    def order(self) -> tuple[int, int]: ...

    def apply(self, view: GraphView) -> Case: ...


@dataclass(frozen=True, slots=True)
class Patch:
    """Edits of one case, see the module docstring.

    ``drop`` and ``erase`` hold names of nodes, ``cut`` positions in `GraphView.outputs`. ``replace`` maps the name of a
    node to the value that its readers read instead.
    """

    drop: frozenset[str] = frozenset()
    replace: Mapping[str, Value] = field(default_factory=dict)
    cut: frozenset[int] = frozenset()
    erase: frozenset[str] = frozenset()
    edits: tuple[Edit, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.drop or self.replace or self.cut or self.erase or self.edits)


def merge(patches: Iterable[Patch]) -> Patch:
    """Return a patch with the edits of all ``patches``. If two of them replace the same node, the first one wins."""
    patches = tuple(patches)
    substitutes: dict[str, Value] = {}
    for p in patches:
        if p.replace:
            for name, value in p.replace.items():
                substitutes.setdefault(name, value)
    return Patch(
        frozenset().union(*[p.drop for p in patches if p.drop]),
        substitutes,
        frozenset().union(*[p.cut for p in patches if p.cut]),
        frozenset().union(*[p.erase for p in patches if p.erase]),
        tuple([e for p in patches if p.edits for e in p.edits]),
    )


def apply(view: GraphView, patch: Patch) -> Case | None:
    """The case with ``patch`` applied; None if no compute node, or nothing to return, would be left."""
    if patch.edits:
        case = view.case
        for change in sorted(patch.edits, key=lambda e: e.order):
            case = change.apply(view if case is view.case else GraphView(case, view.trace))
        if case is view.case and len(patch.edits) == 1:
            return None
        view = GraphView(case, view.trace)
        there = {n: v for n, v in patch.replace.items() if tag(v) != "ref" or v["ref"] in view.nodes}
        patch = replace(patch, replace=there, edits=())
    kept = _closure(view, patch)
    if not kept:
        return None
    edit = _Edit(view, patch, kept)
    outputs = edit.outputs()
    if patch.replace or patch.cut or patch.erase:
        kept = edit.kept = edit.without_dead(outputs)
    if not kept or (not outputs and view.outputs and not patch.drop):
        return None
    return edit.case(outputs)


def reduced(view: GraphView, patch: Patch) -> tuple[Graph, list[str]] | None:
    """Apply ``patch`` to the graph of ``view``. Return the subgraph and the names of the values that become new
    inputs.

    The subgraph keeps its placeholders and its returned values. Return None if ``patch`` changes nothing.
    """
    if not patch:
        return None
    edit = _Edit(view, patch, _closure(view, patch))
    base = view.case.graph
    output = base.output.map_values(lambda value: map_refs(value, edit.read))
    edit.kept = edit.without_dead([{"ref": name} for name in output.inputs])
    subgraph = [edit.rewired(n) for n in base.nodes if n.name in edit.kept]
    read = dict.fromkeys(r for n in (*subgraph, output) for r in n.inputs)
    attributes = [n for n in base.nodes if n.op == "get_attr" and n.name in read]
    missing = [r for r in read if view.nodes[r].is_compute and r not in edit.kept]
    nodes = (*base.placeholders, *edit.placed(attributes, subgraph), output)
    paths = {n.target for n in nodes if n.op in ("get_attr", "call_module")}
    return Graph(nodes, {p: a for p, a in base.attrs.items() if p in paths}, base.training), missing


def without_unused_tensors(case: Case) -> Case:
    """``case`` with a tensor table of only those tensors that its graph, inputs, earlier calls and context mention."""
    tensors = _Tensors(case.tensors)
    inputs, earlier = tuple(map(tensors.moved, case.inputs)), tuple(map(tensors.moved, case.earlier))
    graph, context = tensors.moved(case.graph), tensors.moved(case.context)
    return replace(case, graph=graph, inputs=inputs, earlier=earlier, context=context, tensors=tensors.used())


def _closure(view: GraphView, patch: Patch) -> set[str]:
    """Names of the compute nodes that stay: all but the dropped ones, and dropped ones whose opaque value is read."""
    gone = patch.drop | patch.erase
    kept = set(view.computed - gone)
    if patch.erase:
        doomed = [n for n in patch.erase if n in view.nodes]
        while doomed:
            for user in view.users[doomed.pop()]:
                if user in kept:
                    kept.discard(user)
                    doomed.append(user)
    if not patch.drop or view.opaque.isdisjoint(gone):
        return kept
    atom = {name: group for group in view.atoms if len(group) > 1 for name in group}
    stack = list(kept)
    while stack:
        for source in view.inputs[stack.pop()]:
            if source in gone and source not in kept and source in view.opaque:
                pulled = [n for n in atom.get(source, (source,)) if n not in kept]
                kept.update(pulled)
                stack.extend(pulled)
    return kept


class _Edit:
    """An application of a patch."""

    def __init__(self, view: GraphView, patch: Patch, kept: set[str]) -> None:
        self.view = view
        self.patch = patch
        self.kept = kept
        self.substitutes = {name: self._resolved(name) for name in patch.replace}

    def _resolved(self, name: str) -> Value:
        """The value that replaces ``name``, at the end of a chain of replacements."""
        seen = {name}
        value = self.patch.replace[name]
        while tag(value) == "ref" and value["ref"] in self.patch.replace and value["ref"] not in seen:
            seen.add(value["ref"])
            value = self.patch.replace[value["ref"]]
        return value

    def read(self, name: str) -> Value:
        """Return the value that a reader of ``name`` reads in the candidate."""
        value: Value = self.substitutes.get(name, {"ref": name})
        if tag(value) == "ref":
            name = value["ref"]
            node = self.view.nodes[name]
            if node.is_compute and name not in self.kept:
                recorded = self.view.value(name)
                if recorded.kind is ValueKind.LITERAL:
                    return recorded.literal
        return value

    def outputs(self) -> list[Value]:
        """Return the outputs of the candidate: returned values still computed, and values that lost a reader."""
        view, patch = self.view, self.patch
        values = [v for i, v in enumerate(view.outputs) if i not in patch.cut]
        if not patch.drop:
            return self._unique(map_refs(values, self.read))
        # Returned inputs and constants come first.
        made = [self.read(v["ref"]) if tag(v) == "ref" else v for v in values if not self._is_made(v)]
        wanted = set(view.output_names)
        for i in patch.cut:
            if tag(view.outputs[i]) == "ref":
                wanted.discard(view.outputs[i]["ref"])
        for name in view.in_order(self.kept):
            if name not in self.substitutes:
                users = view.users[name]
                lost = not self.kept.issuperset(users) and any(
                    u not in self.kept and view.nodes[u].is_compute for u in users
                )
                if (name in wanted or lost or not users) and self._can_be_returned(name):
                    made.append({"ref": name})
        return made

    def _can_be_returned(self, name: str) -> bool:
        """Whether the value of ``name`` is a tensor, and no transform that is kept wraps it."""
        value = self.view.value(name)
        return value.kind is ValueKind.TENSOR and not (
            value.wrapped and any(n in self.kept for n in self.view.brackets)
        )

    def _is_made(self, value: Value) -> bool:
        return tag(value) == "ref" and self.view.nodes[value["ref"]].is_compute

    @staticmethod
    def _unique(values: list[Value]) -> list[Value]:
        seen: set[str] = set()
        out = []
        for value in values:
            if tag(value) == "ref":
                if value["ref"] in seen:
                    continue
                seen.add(value["ref"])
            out.append(value)
        return out

    def edges(self) -> dict[str, tuple[str, ...]]:
        """The names of the nodes that each kept node reads in the candidate."""
        return {name: self._sources(name) for name in self.kept}

    def _sources(self, name: str) -> tuple[str, ...]:
        read = self.view.inputs[name]
        if self.substitutes or self.patch.drop:
            values = [self.read(source) for source in read]
            return tuple(dict.fromkeys(v["ref"] for v in values if tag(v) == "ref"))
        return read

    def without_dead(self, outputs: list[Value]) -> set[str]:
        """The kept nodes without those that this edit made dead. Nodes that were dead before may have a side effect."""
        edges = self.edges()
        start = [v["ref"] for v in outputs if tag(v) == "ref"]
        inner = {n: tuple(s for s in sources if s in edges) for n, sources in edges.items()}
        live = reached(inner, [n for n in start if n in inner])
        kept = {n for n in self.kept if n in live or n not in self.view.live}
        # A side effect may still read what became dead.
        return set(reached({n: inner[n] for n in inner}, list(kept)))

    def case(self, outputs: list[Value]) -> Case:
        """The candidate. Nodes that do not change are shared with the view's case."""
        view, kept = self.view, self.kept
        base = view.case.graph
        first: dict[str, str] = {}
        subgraph: list[Node] = []
        for name in view.in_order(kept):
            node, read = view.nodes[name], view.inputs[name]
            if not kept.issuperset(read) or (self.substitutes and not self.substitutes.keys().isdisjoint(read)):
                if self.substitutes or not view.written.isdisjoint(read):
                    read, node = self._sources(node.name), self.rewired(node)
                for source in read:
                    if source not in kept:
                        first.setdefault(source, name)
            subgraph.append(node)
        for value in outputs:
            if tag(value) == "ref" and value["ref"] not in kept:
                first.setdefault(value["ref"], base.output.name)
        placeholders, given, attributes = [], [], []
        tensors = _Tensors(view.case.tensors)
        for name in view.in_order(first):
            node = view.nodes[name]
            if node.op == "get_attr":
                attributes.append(node)
            else:
                made, value = self._input(node, first[name], tensors)
                placeholders.append(made)
                given.append(value)
        output = Node(base.output.name, "output", "output", ({"tuple": outputs},))
        nodes = (*placeholders, *self.placed(attributes, subgraph), output)
        paths = {n.target for n in nodes if n.op in ("get_attr", "call_module")}
        attrs = {path: tensors.moved(attr) for path, attr in base.attrs.items() if path in paths}
        if view.literals:
            nodes = tuple(tensors.moved_node(n) if n.name in view.literals else n for n in nodes)
        return replace(
            view.case,
            graph=Graph(nodes, attrs, base.training),
            inputs=tuple(given),
            context=tensors.moved(view.case.context),
            earlier=self._earlier({n.name for n in placeholders}, tensors),
            tensors=tensors.used(),
        )

    def _earlier(self, names: set[str], tensors: _Tensors) -> tuple[Json, ...]:
        """Earlier calls with the inputs that are left."""
        calls = [{n: tensors.moved(v) for n, v in call.items() if n in names} for call in self.view.case.earlier]
        return tuple(call for call in calls if call)

    def rewired(self, node: Node) -> Node:
        read = self.view.inputs[node.name]
        if all(source in self.kept and source not in self.substitutes for source in read):
            return node
        changed = {s: v for s in read if (v := self.read(s)) != {"ref": s}}
        if not changed:
            return node
        return node.map_values(lambda value: map_refs(value, lambda name: changed.get(name, {"ref": name})))

    def placed(self, attributes: list[Node], subgraph: list[Node]) -> list[Node]:
        """``subgraph`` with the nodes that read ``attributes`` at their former positions."""
        if not attributes:
            return subgraph
        position = self.view.position
        return sorted([*attributes, *subgraph], key=lambda n: position[n.name])

    def _input(self, node: Node, reader: str, tensors: _Tensors) -> tuple[Node, Value]:
        """A placeholder for ``node`` and its input: the recorded value that ``reader``, the first one, sees."""
        view, trace = self.view, self.view.trace
        at = trace.positions.get(reader, len(trace.positions))
        recorded = view.value(node.name)
        index = recorded.snapshot(at)
        if node.op == "placeholder":
            value = view.case.inputs[view.given[node.name]]
            if tag(value) == "tensor" and index is not None:
                now, then = view.case.tensors[value["tensor"]], trace.tensors[index]
                # An input that another pass has already simplified stays as it is.
                if now.storage is not None and (now.dtype, now.shape) == (then.dtype, then.shape):
                    return node, tensors.recorded(trace.tensors, index)
            return node, tensors.moved(value)
        if index is None:
            index = recorded.snapshots[0][1]
        spec = trace.tensors[index]
        made = view.stand_ins.get((node.name, index))
        if made is None:
            meta: Json = {"dtype": spec.dtype, "shape": list(spec.shape)}
            made = view.stand_ins[node.name, index] = Node(node.name, "placeholder", node.name, meta=meta)
        return made, tensors.recorded(trace.tensors, index)


class _Tensors:
    """The tensor table of a candidate, filled in the order of first use."""

    def __init__(self, base: tuple[TensorSpec, ...]) -> None:
        self.base = base
        self.table: list[TensorSpec] = []
        self.moves: dict[tuple[bool, int], int] = {}

    def used(self) -> tuple[TensorSpec, ...]:
        return tuple(self.table)

    def recorded(self, specs: tuple[TensorSpec, ...], index: int) -> Value:
        return {"tensor": self._move(specs, index, traced=True)}

    def _move(self, specs: tuple[TensorSpec, ...], index: int, *, traced: bool) -> int:
        if (traced, index) not in self.moves:
            spec = specs[index]
            place = len(self.table)
            self.moves[traced, index] = place
            self.table.append(spec)
            if spec.parts:
                parts = tuple(self._move(specs, p, traced=traced) for p in spec.parts)
                self.table[place] = replace(spec, parts=parts)
        return self.moves[traced, index]

    def moved(self, value: Value) -> Value:
        """Return ``value`` with its tensor indices translated to the indices of this table."""
        if type(value) is list:
            return [self.moved(v) for v in value]
        if isinstance(value, Graph):
            inner = tuple(self.moved_node(n) for n in value.nodes)
            return replace(value, nodes=inner, attrs={path: self.moved(attr) for path, attr in value.attrs.items()})
        if type(value) is not dict:
            return value
        if "tensor" in value and type(value["tensor"]) is int:
            return value | {"tensor": self._move(self.base, value["tensor"], traced=False)}
        if len(value) == 1 and "generator" in value:
            device, state = value["generator"]
            return {"generator": [device, self._move(self.base, state, traced=False)]}
        if "class" in value and "parameters" in value:
            return {k: self._owned(v) if k in ("parameters", "buffers") else self.moved(v) for k, v in value.items()}
        return {k: self.moved(v) for k, v in value.items()}

    def _owned(self, tensors: Mapping[str, int | None]) -> Json:
        return {k: None if i is None else self._move(self.base, i, traced=False) for k, i in tensors.items()}

    def moved_node(self, node: Node) -> Node:
        return node.map_values(self.moved)
