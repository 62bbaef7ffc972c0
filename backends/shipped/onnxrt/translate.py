"""From an ATen graph to an ONNX model: `translate`.

A copy of the graph is reduced to what the model must compute. bfloat16 becomes float32 around each operator: ONNX
Runtime has no CPU kernels for it, and eager computes in the same way. Then the exporter translates the copy node by
node. ONNX nodes have the name of their FX node, so the error of a session names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import onnx_ir as ir
import sympy  # type: ignore[import-untyped]
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from . import exporter, partition
from .options import TORCHLIB_OPSET
from .report import held_values

#: Values of more bytes are computed by the model.
MOST_BYTES = 4 << 20


def folded_constants(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.Tensor]:
    """The nodes of an ATen graph that are constant and that other nodes or the result read, with their values.

    Random numbers, values on other devices than the CPU and values that depend on symbolic sizes are no constants. Do
    not call it under a fake mode.
    """
    known: dict[torch.fx.Node, torch.Tensor] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(value := _attribute(gm, node), torch.Tensor):
            known[node] = value
        elif node.op == "call_function" and _foldable(node, known):
            try:
                with torch.no_grad():
                    out = node.target(*_filled(node.args, known), **_filled(node.kwargs, known))
            except Exception:  # noqa: BLE001  the graph may never get there: the error appears when it runs
                continue
            if isinstance(out, torch.Tensor) and _matches(out, node.meta["val"]):
                known[node] = out
    wanted = [n for n in known if n.op != "get_attr" and any(user not in known for user in n.users)]
    return {node: known[node] for node in wanted}


def _foldable(node: torch.fx.Node, known: dict[torch.fx.Node, torch.Tensor]) -> bool:
    target, value = node.target, node.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.layout != torch.strided:
        return False
    static = all(isinstance(size, int) for size in value.shape)
    small = static and value.numel() * value.element_size() <= MOST_BYTES
    return small and all(argument in known for argument in node.all_input_nodes)


def _matches(out: torch.Tensor, promised: torch.Tensor) -> bool:
    return (out.dtype, out.shape, out.layout) == (promised.dtype, promised.shape, promised.layout)


def _filled(arguments: Any, known: dict[torch.fx.Node, torch.Tensor]) -> Any:
    return pytree.tree_map_only(torch.fx.Node, known.__getitem__, arguments, is_leaf=_is_node)


def _is_node(value: Any) -> bool:
    return isinstance(value, torch.fx.Node)


def _attribute(gm: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    return attrgetter(str(node.target))(gm)


Source = Callable[[Sequence[Any], Sequence[Any]], Any]
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


@dataclass(frozen=True, slots=True)
class Results:
    """``computed``: nodes whose values the model computes; ``sources``: from (inputs, those values) to each result."""

    computed: list[torch.fx.Node]
    sources: list[Source]
    single: bool

    def assemble(self, inputs: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Everything the graph returns."""
        return [source(inputs, values) for source in self.sources]

    @property
    def plain(self) -> bool:
        """Whether the results are exactly the computed values."""
        return all(isinstance(s, _Computed) for s in self.sources) and len(self.sources) == len(self.computed)


def results_of(gm: torch.fx.GraphModule) -> Results:
    """The results of a graph whose nodes have ``meta["val"]``."""
    holders = gm.graph.find_nodes(op="placeholder")
    returned = gm.graph.output_node().args[0]
    single = not isinstance(returned, tuple | list)
    computed: list[torch.fx.Node] = []
    sources = [_source(gm, item, holders, computed) for item in ([returned] if single else returned)]  # type: ignore[union-attr]
    return Results(computed, sources, single)


def _source(gm: torch.fx.GraphModule, item: Any, holders: list[torch.fx.Node], computed: list[torch.fx.Node]) -> Source:
    if not isinstance(item, torch.fx.Node):
        return lambda inputs, values: item
    if item in holders:
        position = holders.index(item)
        return lambda inputs, values: inputs[position]
    if item.op == "get_attr":
        constant = _attribute(gm, item)
        return lambda inputs, values: constant
    value = item.meta.get("val")
    if isinstance(value, _NUMBERS):
        number = _number(value, holders)
        if number is not None:
            return number
    elif not isinstance(value, torch.Tensor):
        raise TypeError(f"the result {item.name} is {type(value).__name__}, not a tensor")
    if item not in computed:
        computed.append(item)
    return _Computed(computed.index(item), type(value))


@dataclass(frozen=True, slots=True)
class _Computed:
    position: int
    type: type

    def __call__(self, inputs: Sequence[Any], values: Sequence[Any]) -> Any:
        value = values[self.position]
        return value if issubclass(self.type, torch.Tensor) else value.item()


def _number(value: Any, holders: list[torch.fx.Node]) -> Source | None:
    """A function from the inputs to a number; None if it depends on data."""
    if isinstance(value, int | float):
        return lambda inputs, values: value
    expression = value.node.expr
    places = _places(holders)
    symbols = sorted(expression.free_symbols, key=str)
    if any(symbol not in places for symbol in symbols):
        return None
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]

    def number(inputs: Sequence[Any], values: Sequence[Any]) -> Any:
        sizes = {symbol: sympy.Integer(_size(inputs, places[symbol])) for symbol in symbols}
        return kind(expression.xreplace(sizes))

    return number


def _size(inputs: Sequence[Any], place: tuple[int, int | None]) -> int:
    position, dimension = place
    return int(inputs[position] if dimension is None else inputs[position].shape[dimension])


def _places(holders: list[torch.fx.Node]) -> dict[Any, tuple[int, int | None]]:
    """Return a place to read each size symbol: (input, None) for a number, (input, dimension) for a tensor."""
    places: dict[Any, tuple[int, int | None]] = {}
    for position, holder in enumerate(holders):
        value = holder.meta["val"]
        if isinstance(value, torch.SymInt) and value.node.expr.is_symbol:
            places.setdefault(value.node.expr, (position, None))
        elif isinstance(value, torch.Tensor):
            for dimension, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    places.setdefault(size.node.expr, (position, dimension))
    return places


aten, prims = torch.ops.aten, torch.ops.prims


@dataclass(frozen=True, slots=True)
class Translation:
    """A model; ``inputs``: position in the graph and name in the model; ``op_types``: ONNX operators of an FX node."""

    model: ir.Model
    inputs: list[tuple[int, str]]
    results: Results
    op_types: dict[str, set[str]]


def translate(
    gm: torch.fx.GraphModule,
    constants: Mapping[int, torch.Tensor],
    target_opset: int = TORCHLIB_OPSET,
    optimize: bool = False,
) -> Translation:
    """Translate an ATen graph. ``constants`` are inputs, by position, that become initializers."""
    plan = results_of(gm)
    trimmed, sources = _trim(gm, plan, constants)
    _lift_bfloat16(trimmed.graph)
    trimmed.recompile()
    promote = _mixes_types(trimmed)
    with unset_fake_temporarily():
        model = exporter.translate(trimmed, promote)
        op_types = _op_types(model)
        _make_initializers(model, sources)
        _separate_outputs(model)
        if optimize:
            from onnxscript import optimizer

            optimizer.optimize(model)
        if target_opset != TORCHLIB_OPSET:
            from onnxscript import version_converter

            version_converter.convert_version(model, target_opset, fallback=True)
    names = [str(value.name) for value in model.graph.inputs]
    positions = [source for source in sources if isinstance(source, int)]
    return Translation(model, list(zip(positions, names, strict=True)), plan, op_types)


def _trim(
    gm: torch.fx.GraphModule, plan: Results, constants: Mapping[int, torch.Tensor]
) -> tuple[torch.fx.GraphModule, list[int | torch.Tensor]]:
    """A copy that returns what must be computed, and the position or constant of each of its inputs.

    Constants are inputs until the model is made: torchlib's functions can compute with inputs only.
    """
    graph = torch.fx.Graph()
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    graph.graph_copy(gm.graph, copied)
    graph.output(tuple(copied[node] for node in plan.computed))
    trimmed = torch.fx.GraphModule(gm, graph)
    for node in list(graph.nodes):
        if node.target in partition.ASSERTIONS:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    with unset_fake_temporarily():
        folded = folded_constants(trimmed)
    sources: list[int | torch.Tensor] = []
    for position, holder in enumerate(graph.find_nodes(op="placeholder")):
        if holder.users:
            sources.append(constants.get(position, position))
        else:
            graph.erase_node(holder)
    first: Any = next((n for n in graph.nodes if n.op != "placeholder"), None)
    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        value = _attribute(gm, node)
        if not isinstance(value, torch.Tensor):
            continue  # the subgraph of a higher-order operator
        with graph.inserting_before(first if first is not node else node):
            holder = graph.placeholder(f"constant_{node.name}")
        holder.meta = {"val": node.meta.get("val", value)}
        node.replace_all_uses_with(holder)
        sources.append(value)
        if first is node:
            first = node.next
        graph.erase_node(node)
    for node, constant in folded.items():
        with graph.inserting_before(first):
            holder = graph.placeholder(f"constant_{node.name}")
        holder.meta = {"val": node.meta["val"]}
        node.replace_all_uses_with(holder)
        sources.append(constant)
    graph.eliminate_dead_code()
    trimmed.recompile()
    return trimmed, sources


def _make_initializers(model: ir.Model, sources: list[int | torch.Tensor]) -> None:
    """Turn the inputs that are constants into initializers. Do not call it under a fake mode."""
    for value, source in zip(list(model.graph.inputs), sources, strict=True):
        if isinstance(source, torch.Tensor):
            value.const_value = TorchTensor(source.detach().cpu(), value.name)
            model.graph.inputs.remove(value)
            model.graph.register_initializer(value)


def _lift_bfloat16(graph: torch.fx.Graph) -> None:
    """Compute bfloat16 in float32 and round each result, as eager does inside its kernels."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if not any(map(_is_bfloat16, held_values(node))):
            continue
        if node.target in (prims.convert_element_type.default, aten._to_copy.default):
            continue  # a cast is what ONNX Runtime can do
        wide: dict[torch.fx.Node, torch.fx.Node] = {}
        with graph.inserting_before(node):
            for arg in node.all_input_nodes:
                if _is_bfloat16(arg.meta.get("val")):
                    wide[arg] = _cast(graph, arg, torch.float32)
        for arg, lifted in wide.items():
            node.replace_input_with(arg, lifted)
        swap = {torch.bfloat16: torch.float32}
        node.args = tuple(swap.get(a, a) if isinstance(a, torch.dtype) else a for a in node.args)
        node.kwargs = {k: swap.get(a, a) if isinstance(a, torch.dtype) else a for k, a in node.kwargs.items()}
        _narrow_results(graph, node)


def _narrow_results(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Cast the results of a node that now computes in float32 back to bfloat16."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            _narrow(graph, node)
    elif isinstance(value, tuple | list):
        for user in list(node.users):  # getitem
            if _is_bfloat16(user.meta.get("val")):
                _narrow(graph, user)
        node.meta["val"] = type(value)(v.to(torch.float32) if _is_bfloat16(v) else v for v in value)


def _narrow(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    users = list(node.users)
    wide = node.meta["val"].to(torch.float32)
    with graph.inserting_after(node):
        narrowed = _cast(graph, node, torch.bfloat16)
    node.meta["val"] = wide
    for user in users:
        user.replace_input_with(node, narrowed)


def _cast(graph: torch.fx.Graph, node: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
    cast = graph.call_function(prims.convert_element_type.default, (node, dtype))
    cast.meta = {"val": node.meta["val"].to(dtype)}
    return cast


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16


def _mixes_types(gm: torch.fx.GraphModule) -> bool:
    """Whether an operator needs type promotion, which ONNX lacks. Inserting it costs a millisecond for each node."""
    return any(_promotes(node) for node in gm.graph.nodes if node.op == "call_function")


def _promotes(node: torch.fx.Node) -> bool:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace == "prims":
        return False
    if any(word in partition.name(target) for word in ("where", "index", "embedding")):
        return False
    values = [arg.meta.get("val") for arg in node.all_input_nodes]
    kinds = {v.dtype for v in values if isinstance(v, torch.Tensor)}
    if not kinds:
        return False
    if len(kinds) > 1 or any(isinstance(v, torch.SymInt | torch.SymFloat) for v in values):
        return True
    kind, value = kinds.pop(), node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.dtype not in (kind, torch.bool):
        return target is not aten._to_copy.default
    if kind == torch.bool and not isinstance(value, torch.Tensor):
        return True
    return not kind.is_floating_point and any(isinstance(arg, float) for arg in node.args)


def _separate_outputs(model: ir.Model) -> None:
    """Give each output a node of its own if it is an input, an initializer or another output."""
    graph, seen = model.graph, set()
    for position, value in enumerate(list(graph.outputs)):
        if value.producer() is None or value in seen:
            name = f"output_{position}"
            separate = ir.Value(name=name, type=value.type, shape=value.shape)
            graph.append(ir.node("Identity", [value], outputs=[separate], name=name))
            graph.outputs[position] = separate
        seen.add(value)


def _op_types(model: ir.Model) -> dict[str, set[str]]:
    """ONNX operators that each FX node became; names every node after its FX node."""
    found: dict[str, set[str]] = {}
    for count, node in enumerate(model.graph):
        origin = node.meta.get("node")
        if origin is None:
            continue
        node.name = node.name or f"node_{origin.name}__{count}"
        found.setdefault(origin.name, set()).add(node.op_type)
        function = model.functions.get(node.op_identifier())
        if function is not None:
            found[origin.name] |= {inner.op_type for inner in function}
    return found
