"""From an ATen graph to an ONNX model: `translate`.

A copy of the graph is reduced to what the model must compute. bfloat16 becomes float32 around each operator: ONNX
Runtime has no CPU kernels for it, and eager computes in the same way. Then the exporter translates the copy node by
node. ONNX nodes have the name of their FX node, so the error of a session names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from . import exporter, partition
from .options import TORCHLIB_OPSET
from .report import held_values
from .results import Results, attribute, is_node

#: Values of more bytes are computed by the model.
MOST_BYTES = 4 << 20


def folded_constants(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.Tensor]:
    """The nodes of an ATen graph that are constant and that other nodes or the result read, with their values.

    Random numbers, values on other devices than the CPU and values that depend on symbolic sizes are no constants. Do
    not call it under a fake mode.
    """
    known: dict[torch.fx.Node, torch.Tensor] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(value := attribute(gm, node), torch.Tensor):
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
    return pytree.tree_map_only(torch.fx.Node, known.__getitem__, arguments, is_leaf=is_node)


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
    plan: Results,
    constants: Mapping[int, torch.Tensor],
    target_opset: int = TORCHLIB_OPSET,
    optimize: bool = False,
) -> Translation:
    """Translate what an ATen graph has to compute for its results, the ``plan``, which is some value at least.

    ``constants`` are inputs, by position, that become initializers.
    """
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
    sources: dict[torch.fx.Node, int | torch.Tensor] = {}
    for position, holder in enumerate(graph.find_nodes(op="placeholder")):
        if holder.users:
            sources[holder] = constants.get(position, position)
        else:
            graph.erase_node(holder)

    def hold(node: torch.fx.Node, value: torch.Tensor, meta: Any) -> None:
        with graph.inserting_before(node):
            holder = graph.placeholder(f"constant_{node.name}")
        holder.meta = {"val": meta}
        node.replace_all_uses_with(holder)
        sources[holder] = value

    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        value = attribute(gm, node)
        if isinstance(value, torch.Tensor):  # else the subgraph of a higher-order operator
            hold(node, value, node.meta.get("val", value))
            graph.erase_node(node)
    for node, constant in folded.items():
        hold(node, constant, node.meta["val"])
    graph.eliminate_dead_code()
    trimmed.recompile()
    # The placeholders of a part may stand anywhere between its nodes.
    return trimmed, [sources[holder] for holder in graph.find_nodes(op="placeholder")]


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
