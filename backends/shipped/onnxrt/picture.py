"""An ONNX model as a picture: `svg`, one self-contained file drawn by `fxminify.backends.drawing.svg`.

Constants are written inside the node that reads them, and types under operators, so the drawing shows only the flow of
data. The branches of an `If` and the functions of the model are drawn before the node that runs them, with dashed edges
to it. Helper functions of onnxscript are one box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx

from ....store.text import count
from ...drawing.svg import Box, Edge
from ...drawing.svg import svg as draw
from . import listing

#: Functions of these domains, and calls deeper than this, are drawn as one box.
_CLOSED, _DEEPEST = ("pkg.onnxscript.torch_lib", "pkg.onnxscript.torch_lib.common"), 8

#: Where a value comes from: a box, by index, or the text of a constant.
Known = dict[str, int | str]


def svg(model: onnx.ModelProto, *, title: str = "") -> str:
    """The picture, an ``<svg>`` element with its style inside.

    Raises `ValueError` for a model of more nodes or edges than `fxminify.backends.drawing.svg` draws.
    """
    scene = _Scene({(f.domain, f.name): f for f in model.functions if f.domain not in _CLOSED})
    scene.graph(model.graph, {}, "", 0)
    label = title or f"ONNX model {model.graph.name}: {count(len(model.graph.node), 'node')}"
    return draw(scene.boxes, scene.edges, label=label, standalone=True)


@dataclass(slots=True)
class _Scene:
    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def graph(self, graph: onnx.GraphProto, around: Known, name: str, depth: int) -> list[int]:
        """Draw a graph that may read ``around``; the boxes of its outputs."""
        types, known = listing.types_of(graph), dict(around)
        constants = {tensor.name for tensor in graph.initializer}
        where = f"{name}: " if name else ""
        for value in graph.input:
            if value.name not in constants:
                known[value.name] = self._add(where + value.name, types.get(value.name, ""), kind="input")
        for tensor in graph.initializer:
            small = listing.inline(tensor)
            known[tensor.name] = small or self._add(where + tensor.name, types[tensor.name], kind="constant")
        self._nodes(graph.node, known, types, depth)
        outputs = []
        for value in graph.output:
            source = known.get(value.name)
            shown = [types.get(value.name, ""), source if isinstance(source, str) else ""]
            outputs.append(self._add(where + value.name, *shown, kind="output"))
            self._connect([source], outputs[-1])
        return outputs

    def _nodes(self, nodes: Iterable[onnx.NodeProto], known: Known, types: Mapping[str, str], depth: int) -> None:
        for node in nodes:
            if node.op_type == "Constant" and not node.domain and node.attribute:
                known[node.output[0]] = listing.constant_text(node.attribute[0])
            else:
                known |= dict.fromkeys(filter(None, node.output), self._node(node, known, types, depth))

    def _node(self, node: onnx.NodeProto, known: Known, types: Mapping[str, str], depth: int) -> int:
        given = [known.get(name) for name in node.input]
        inner: list[int | str | None] = []
        function = self.functions.get((node.domain, node.op_type)) if depth < _DEEPEST else None
        for name, graph in listing.graphs_of(node):
            inner += self.graph(graph, known, name, depth + 1)
        if function is not None:
            body: Known = {n: v for n, v in zip(function.input, given, strict=False) if v is not None}
            self._nodes(function.node, body, {}, depth + 1)
            inner += [body.get(name) for name in function.output]
            given = [source for source in given if isinstance(source, str)]
        read = [source for source in given if isinstance(source, str)]
        results = [types[name] for name in node.output if name in types]
        said = ", ".join([*read, *listing.telling_attributes(node)])
        box = self._add(node.op_type, said, ", ".join(results), note=listing.node_text(node, types))
        self._connect(given, box)
        self._connect(inner, box, dashed=True)
        return box

    def _add(self, *lines: str, kind: str = "compute", note: str = "") -> int:
        self.boxes.append(Box(tuple(line for line in lines if line), kind, note=note))
        return len(self.boxes) - 1

    def _connect(self, sources: Iterable[int | str | None], box: int, dashed: bool = False) -> None:
        found = dict.fromkeys(source for source in sources if isinstance(source, int))
        self.edges += [Edge(source, box, dashed) for source in found]
