"""A trace: the values of the nodes of a case, recorded in one eager run, as data.

With a trace every subset of the nodes is a valid graph: a value whose node was removed becomes an input. There are
three kinds of value (`ValueKind`):

* A **tensor** is kept as one or more snapshots. An in-place operation changes the value of a name. Each version has a
  snapshot, which is valid from a position in the graph on.
* A **literal** (number, size, dtype, None...) is written into the graph where it is read.
* An **opaque** value (a tuple of tensors, a generator, a context object) can become neither an input nor a literal. A
  node that reads it needs the node that makes it.

Nodes of subgraphs are recorded when they run for the first time, under the names that
`minifier.candidate.hop_calls.with_distinct_names` gave them. Of a tensor that a transform such as ``vmap`` wraps, one
element of the batch is recorded, because a node without the transform can take that.

Recorded bytes are kept beside the trace under symbolic keys ``<node>@<version>``. So the same candidate has the same
keys in two recordings, whatever the random numbers were.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ...store import codec
from ...store.document.case import Case, Graph, Json, Node, TensorSpec, Value, graph_to_json

#: Where recorded bytes go: ``put(key, bytes)``.
Put = Callable[[str, bytes], None]

#: Between the name of a node and the number of its copy.
COPY = "__copy"


class ValueKind(StrEnum):
    TENSOR = "tensor"
    LITERAL = "literal"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The value of one node. ``snapshots`` are ``(first position that may read it, index into Trace.tensors)``.

    ``alias`` names the outer node whose value a placeholder of a subgraph had. ``wrapped`` says that the tensor has a
    meaning only inside the transform that made it.
    """

    kind: ValueKind
    snapshots: tuple[tuple[int, int], ...] = ()
    literal: Value = None
    alias: str = ""
    wrapped: bool = False

    def snapshot(self, position: int) -> int | None:
        """Index into `Trace.tensors` of what a reader at ``position`` sees; None if nothing was recorded by then."""
        found = None
        for start, index in self.snapshots:
            if start <= position:
                found = index
        return found


@dataclass(frozen=True, slots=True)
class Trace:
    """Values by node name. ``positions`` numbers the nodes of the case that was run. Passes keep the names of nodes.

    ``problem`` says why the run ended early; the nodes after that are not recorded. It is empty for a complete run.
    ``signatures`` has, by name of a node, the parameters of what the node calls: each one's name, and whether it may be
    left out. ``defaults`` has, by name of a node, the values of those that may. ``parts`` has decompositions of nodes
    as graphs, whose placeholders have the names of the operands (see `fxminify.minifier.tracing.study`). All three
    are empty if the case was not studied.
    """

    values: Mapping[str, Recorded]
    tensors: tuple[TensorSpec, ...]
    positions: Mapping[str, int]
    problem: str = ""
    signatures: Mapping[str, tuple[tuple[str, bool], ...]] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    parts: Mapping[str, Graph] = field(default_factory=dict)

    def value(self, name: str) -> Recorded | None:
        """Return the record of the node ``name``, or of its original if it is a copy (`copied`). Return None if
        neither exists.
        """
        return self.values.get(name) or (self.values.get(name.partition(COPY)[0]) if COPY in name else None)

    def tensor(self, name: str) -> TensorSpec | None:
        """The first recorded version of the tensor ``name``, None if no tensor was recorded."""
        value = self.value(name)
        if value is None or not value.snapshots:
            return None
        return self.tensors[value.snapshots[0][1]]

    def to_json(self) -> Json:
        """The trace as a JSON object, which a worker sends to the driver."""
        parts = {name: graph_to_json(graph) for name, graph in self.parts.items()}
        return {**codec.dump(replace(self, parts={})), "parts": parts}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Trace:
        """Inverse of `to_json`."""
        parts = {name: graph_from_json(graph) for name, graph in doc["parts"].items()}
        return replace(codec.load({**doc, "parts": {}}, cls), parts=parts)


def graph_from_json(doc: Json) -> Graph:
    """The graph that `graph_to_json` wrote as ``doc``, which is not checked."""
    attrs = {p: {"graph": graph_from_json(a["graph"])} if "graph" in a else a for p, a in doc["attrs"].items()}
    nodes = tuple(Node(**{**n, "args": tuple(n.get("args", ()))}) for n in doc["nodes"])
    return Graph(nodes, attrs, doc["training"])


def copied(name: str, taken: Container[str]) -> str:
    """A name, not among ``taken``, for another node with the value of ``name``. `Trace.value` finds that value."""
    base, count = name.partition(COPY)[0], 1
    while f"{base}{COPY}{count}" in taken:
        count += 1
    return f"{base}{COPY}{count}"


def lacks_shapes(case: Case) -> bool:
    """Whether `with_shapes` has something to do."""
    return any("shape" not in node.meta for node in case.graph.compute)


def with_shapes(case: Case, trace: Trace) -> Case:
    """``case`` with recorded shapes and dtypes, for display, at the nodes whose shape an edit made unknown."""

    def shaped(node: Node) -> Node:
        spec = trace.tensor(node.name)
        if "shape" in node.meta or spec is None or not node.is_compute:
            return node
        return replace(node, meta={**node.meta, "dtype": spec.dtype, "shape": list(spec.shape)})

    return replace(case, graph=replace(case.graph, nodes=tuple(map(shaped, case.graph.nodes))))
