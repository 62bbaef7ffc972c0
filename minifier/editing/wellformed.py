"""Is a candidate a graph at all? What a pass may get wrong is found before a worker is asked, and told of the pass.

Only the structure is looked at: names, references, attributes, inputs. Whether the graph runs is for eager to say.
"""

from __future__ import annotations

from ...store.case import Case, Graph, Node


class Lint:
    """Looks at cases that share most of their nodes: what each reads is worked out once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, tuple[str, ...]]] = {}

    def flaw(self, case: Case) -> str | None:
        """What is wrong with ``case``, None if nothing is."""
        count = sum(node.op == "placeholder" for node in case.graph.nodes)
        if count != len(case.inputs):
            return f"{len(case.inputs)} inputs for {count} placeholders"
        for value in case.inputs:
            if isinstance(value, dict) and type(index := value.get("tensor")) is int and index >= len(case.tensors):
                return f"input tensor {index} of {len(case.tensors)}"
        return self._of_graph(case.graph)

    def _of_graph(self, graph: Graph) -> str | None:
        seen: set[str] = set()
        for node in graph.nodes:
            for source in self._reads(node):
                if source not in seen:
                    return f"node {node.name!r} reads {source!r}, which is not there before it"
            if node.name in seen:
                return f"two nodes are called {node.name!r}"
            if node.op == "get_attr" and not any(f"{node.target}.".startswith(f"{path}.") for path in graph.attrs):
                return f"node {node.name!r} reads the attribute {node.target!r}, which is not there"
            seen.add(node.name)
        if not graph.nodes or graph.nodes[-1].op != "output":
            return "the last node is no output"
        found = (self._of_graph(attr["graph"]) for attr in graph.attrs.values() if "graph" in attr)
        return next((flaw for flaw in found if flaw is not None), None)

    def _reads(self, node: Node) -> tuple[str, ...]:
        known = self._known.get(id(node))
        if known is not None and known[0] is node:
            return known[1]
        if len(self._known) > 100_000:
            self._known.clear()
        read = node.inputs
        self._known[id(node)] = node, read
        return read
