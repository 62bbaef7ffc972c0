"""Merge inputs that other passes have made equal."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial

from ...store.document.case import Case, map_refs, tag
from ..candidate.graph_view import Storages
from ..candidate.patch import without_unused_tensors
from .candidates import Candidates, together


def one_input_twice(case: Case, storages: Storages) -> Candidates:
    """Give one input where several are the same by now."""
    first: dict[str, str] = {}
    edits = []
    for node, value in zip(case.graph.placeholders, case.inputs, strict=True):
        look = _look(case, value)
        if look in first:
            edits.append(partial(_without_input, name=node.name, other=first[look]))
        elif look:
            first[look] = node.name
    return (yield from together(case, edits))


def _look(case: Case, value: object) -> str:
    """A text that is the same for equal tensors, and empty for other inputs and for tensors that consist of parts."""
    kind = tag(value)
    if kind != "tensor":
        return ""
    spec = case.tensors[value["tensor"]]  # type: ignore[index]
    return "" if spec.parts else json.dumps(asdict(spec), sort_keys=True)


def _without_input(case: Case, name: str, other: str) -> Case:
    graph = case.graph
    place = [n.name for n in graph.placeholders].index(name)
    nodes = tuple(
        node.map_values(lambda value: map_refs(value, lambda read: {"ref": other if read == name else read}))
        for node in graph.nodes
        if node.name != name
    )
    earlier = tuple({n: v for n, v in call.items() if n != name} for call in case.earlier)
    inputs = (*case.inputs[:place], *case.inputs[place + 1 :])
    made = replace(case, graph=replace(graph, nodes=nodes), inputs=inputs, earlier=tuple(c for c in earlier if c))
    return without_unused_tensors(made)
