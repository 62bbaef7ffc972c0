"""An ONNX model as readable text: opset, inputs, initializers, nodes with their types, outputs.

A node is a line, ``results = Operator(operands) {attributes}``. The graphs in attributes of `If`, `Loop` and `Scan`
follow it, indented, and the model's own functions are at the end. Initializers of more than a few elements are not
printed, and floating-point ones only on request: they may be weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from ....store.text import printable

#: The most elements of a constant, and characters of a text, that are printed.
MOST_ELEMENTS, MOST_TEXT = 8, 60
_INDENT = "  "
_FLOATING = {"FLOAT": "float32", "DOUBLE": "float64"}
#: The kinds of attributes whose values are written; of others the kind is.
_WRITTEN = [getattr(AttributeProto, kind) for kind in ("TENSOR", "STRING", "STRINGS", "FLOAT", "FLOATS", "INT", "INTS")]


def text(model: onnx.ModelProto, *, weights: bool = False) -> str:
    """The whole model; ``weights``: the values of small floating-point initializers too."""
    return "\n".join(_Listing(weights).model(model)) + "\n"


def load(path: str) -> onnx.ModelProto:
    """The model in a file; tensors that lie beside it are not read. Raises `OSError` and `ValueError`."""
    try:
        return onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # protobuf's DecodeError comes from one of several modules
        raise ValueError(f"{path} is no ONNX model: {error}") from error


def types_of(graph: onnx.GraphProto) -> dict[str, str]:
    """The types of a graph's values by name, as far as the model has them: ``float32[N, 4]``."""
    described = [*graph.input, *graph.output, *graph.value_info]
    out = {value.name: type_text(value.type) for value in described if value.HasField("type")}
    return out | {t.name: _tensor_type(t.data_type, t.dims) for t in graph.initializer}


def type_text(type: onnx.TypeProto) -> str:
    """``float32[N, 4]``; ``?`` for what is not known."""
    kind = type.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        inner = getattr(type, kind)
        return f"{kind.removesuffix('_type')}({type_text(inner.elem_type)})"
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return "?"
    tensor = getattr(type, kind)
    if not tensor.HasField("shape"):
        return f"{dtype_text(tensor.elem_type)}[...]"
    return _tensor_type(tensor.elem_type, (_dimension(d) for d in tensor.shape.dim))


def dtype_text(number: int) -> str:
    """The name of an element type, as torch has it."""
    known = TensorProto.DataType.DESCRIPTOR.values_by_number.get(number)
    return "?" if known is None else _FLOATING.get(known.name, known.name.lower())


def attribute_text(attribute: onnx.AttributeProto) -> str:
    """The value of an attribute; graphs are named, long texts cut."""
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    if attribute.name == "to" and attribute.type == AttributeProto.INT:  # of a cast
        return dtype_text(attribute.i)
    value = onnx.helper.get_attribute_value(attribute) if attribute.type in _WRITTEN else None
    if value is None:
        return str(AttributeProto.AttributeType.Name(attribute.type)).lower()
    return _list(map(_word, value)) if isinstance(value, list) else _word(value)


def operator_text(node: onnx.NodeProto) -> str:
    """The operator of a node, with its domain where that is not ONNX's own."""
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def telling_attributes(node: onnx.NodeProto) -> list[str]:
    """The attributes of a node that are no graphs and have not their default, as ``name=value``."""
    try:
        schema = onnx.defs.get_schema(node.op_type, node.domain)
        usual = {name: a.default_value for name, a in schema.attributes.items()}
    except onnx.defs.SchemaError:  # a function of the model, or an operator of the runtime's own
        usual = {}
    plain = [a for a in node.attribute if a.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS)]
    texts = {a.name: attribute_text(a) for a in plain}
    return [f"{n}={t}" for n, t in texts.items() if n not in usual or attribute_text(usual[n]) != t]


def constant_text(attribute: onnx.AttributeProto) -> str:
    """The text of a `Constant` at its readers: its elements, or its type."""
    return (_elements(attribute.t) if attribute.type == AttributeProto.TENSOR else "") or attribute_text(attribute)


def graphs_of(node: onnx.NodeProto) -> list[tuple[str, onnx.GraphProto]]:
    """The graphs in a node's attributes, with the attribute's name."""
    found = [(a.name, a.g) for a in node.attribute if a.type == AttributeProto.GRAPH]
    return found + [(a.name, g) for a in node.attribute if a.type == AttributeProto.GRAPHS for g in a.graphs]


def node_text(node: onnx.NodeProto, types: Mapping[str, str]) -> str:
    """A node in one line, without the graphs in its attributes."""
    plain = [a for a in node.attribute if a.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS)]
    given = ", ".join(f"{a.name}={attribute_text(a)}" for a in plain)
    call = operator_text(node) + (f"({_names(node.input)})" if node.input else "") + (f" {{{given}}}" if given else "")
    results = ", ".join(_typed(name, types) for name in node.output if name)
    return printable(f"{results} = {call}" if results else call)


def inline(tensor: onnx.TensorProto) -> str:
    """The text of a small constant at its readers; empty for others, and for numbers that may be weights."""
    return _elements(tensor) if _public(tensor) else ""


class _Listing:
    def __init__(self, weights: bool) -> None:
        self._weights = weights

    def model(self, model: onnx.ModelProto) -> list[str]:
        opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
        maker = f", made by {printable(model.producer_name)}" if model.producer_name else ""
        lines = [f"opset {opsets}; IR version {model.ir_version}{maker}", *self.graph(model.graph, 0)]
        for function in model.functions:
            name = f"{function.domain}::{function.name}" if function.domain else function.name
            lines += ["", f"function {printable(name)}({_names(function.input)})"]
            lines += self.nodes(function.node, {}, 1)
            lines.append(f"{_INDENT}return {_names(function.output)}")
        return lines

    def graph(self, graph: onnx.GraphProto, depth: int) -> list[str]:
        indent, types = _INDENT * depth, types_of(graph)
        constants = {tensor.name for tensor in graph.initializer}
        lines = [f"{indent}input {_typed(v.name, types)}" for v in graph.input if v.name not in constants]
        lines += [f"{indent}initializer {_typed(t.name, types)}{self.value(t)}" for t in graph.initializer]
        lines += self.nodes(graph.node, types, depth)
        return [*lines, *(f"{indent}output {_typed(v.name, types)}" for v in graph.output)]

    def nodes(self, nodes: Iterable[onnx.NodeProto], types: Mapping[str, str], depth: int) -> list[str]:
        lines = []
        for node in nodes:
            lines.append(_INDENT * depth + node_text(node, types))
            for name, inner in graphs_of(node):
                lines.append(f"{_INDENT * (depth + 1)}{printable(name)}:")
                lines += self.graph(inner, depth + 2)
        return lines

    def value(self, tensor: onnx.TensorProto) -> str:
        value = _elements(tensor) if self._weights or _public(tensor) else ""
        return f" = {value}" if value else ""


def _public(tensor: onnx.TensorProto) -> bool:
    """Whether a constant holds sizes or indices, no weights."""
    return not dtype_text(tensor.data_type).startswith(("float", "bfloat", "complex"))


def _constant(tensor: onnx.TensorProto) -> str:
    value = _elements(tensor)
    return f"{_tensor_type(tensor.data_type, tensor.dims)}" + (f" {value}" if value else "")


def _elements(tensor: onnx.TensorProto) -> str:
    """The elements of a small tensor, nothing for others."""
    count = int(np.prod([*tensor.dims], dtype=object)) if tensor.dims else 1
    external = tensor.data_location == TensorProto.EXTERNAL
    if count > MOST_ELEMENTS or external or tensor.data_type == TensorProto.STRING:
        return ""
    try:
        found = numpy_helper.to_array(tensor).reshape(-1).tolist()
    except (ValueError, TypeError):  # the bytes do not fit the shape
        return ""
    return _word(found[0]) if not tensor.dims and found else _list(map(_word, found))


def _tensor_type(number: int, dimensions: Iterable[Any]) -> str:
    return f"{dtype_text(number)}[{', '.join(str(d) for d in dimensions)}]"


def _dimension(dimension: Any) -> str:
    kind = dimension.WhichOneof("value")
    return "?" if kind is None else str(getattr(dimension, kind)) or "?"


def _typed(name: str, types: Mapping[str, str]) -> str:
    return printable(f"{name}: {types[name]}" if name in types else name)


def _names(names: Iterable[str]) -> str:
    return ", ".join(printable(name) or "_" for name in names)


def _list(words: Iterable[str]) -> str:
    return f"[{', '.join(words)}]"


def _word(value: Any) -> str:
    """A tensor, text or number of an attribute."""
    if isinstance(value, TensorProto):
        return _constant(value)
    if isinstance(value, bytes):
        found = value.decode(errors="replace")
        return repr(found if len(found) <= MOST_TEXT else f"{found[: MOST_TEXT - 3]}...")
    return f"{value:g}" if isinstance(value, float) else str(value)
