"""Give as inputs the tensors that a graph holds, such as the parameters of an optimizer's step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...store.document.case import Case, Node, map_refs
from ..candidate.graph_view import Storages
from .candidates import Candidates, together


def held_as_inputs(case: Case, storages: Storages) -> Candidates:
    """Give as inputs the tensors that the graph holds: a function that takes all that it needs is plainer."""
    held = [name for name, attr in case.graph.attrs.items() if "tensor" in attr]
    return together(case, [partial(_given, name=name) for name in held])


def _given(case: Case, name: str) -> Case:
    """``case`` whose graph takes the tensor of the attribute ``name``, which is its last input."""
    graph = case.graph
    readers = [node.name for node in graph.nodes if node.op == "get_attr" and node.target == name]
    if not readers:
        return case
    first = readers[0]
    meta = next(node.meta for node in graph.nodes if node.name == first)
    nodes = [
        node.map_values(lambda value: map_refs(value, lambda read: {"ref": first if read in readers else read}))
        for node in graph.nodes
        if node.name not in readers
    ]
    place = max((i + 1 for i, node in enumerate(nodes) if node.op == "placeholder"), default=0)
    if any(first in node.inputs for node in nodes[:place]):
        return case
    nodes.insert(place, Node(first, "placeholder", first, meta=meta))
    attrs = {key: attr for key, attr in graph.attrs.items() if key != name}
    given = replace(graph, nodes=tuple(nodes), attrs=attrs)
    return replace(case, graph=given, inputs=(*case.inputs, {"tensor": graph.attrs[name]["tensor"]}))
