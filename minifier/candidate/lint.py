"""Checks that a candidate is a valid graph, before a worker is asked about it. A flaw is an error of the pass.

Only the structure is checked: names, references, attributes, inputs. Whether the graph runs is found out in eager.
"""

from __future__ import annotations

from ...store.document.case import Case, Graph


def flaw(case: Case) -> str | None:
    """The first thing that is wrong with the structure of ``case``; None if nothing is."""
    count = sum(node.op == "placeholder" for node in case.graph.nodes)
    if count != len(case.inputs):
        return f"{len(case.inputs)} inputs for {count} placeholders"
    for value in case.inputs:
        if isinstance(value, dict) and type(index := value.get("tensor")) is int and index >= len(case.tensors):
            return f"input tensor {index} of {len(case.tensors)}"
    return _of_graph(case.graph)


def _of_graph(graph: Graph) -> str | None:
    seen: set[str] = set()
    for node in graph.nodes:
        if not seen.issuperset(node.inputs):
            source = next(name for name in node.inputs if name not in seen)
            return f"node {node.name!r} reads {source!r}, which is not there before it"
        if node.name in seen:
            return f"two nodes are called {node.name!r}"
        if node.op == "get_attr" and not any(f"{node.target}.".startswith(f"{path}.") for path in graph.attrs):
            return f"node {node.name!r} reads the attribute {node.target!r}, which is not there"
        seen.add(node.name)
    if not graph.nodes or graph.nodes[-1].op != "output":
        return "the last node is no output"
    found = (_of_graph(attr["graph"]) for attr in graph.attrs.values() if "graph" in attr)
    return next((flaw for flaw in found if flaw is not None), None)
