"""Cutting a graph into parts that ONNX Runtime runs and islands that PyTorch runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from . import exporter
from .report import held_values
from .results import attribute

aten = torch.ops.aten

#: Checks of AOTAutograd's that compute nothing.
ASSERTIONS = frozenset(
    {
        aten.sym_constrain_range_for_size.default,
        aten._assert_async.default,
        aten._assert_async.msg,
        aten._assert_scalar.default,
        aten._assert_tensor_metadata.default,
    }
)


def name(target: Any) -> str:
    """The name of an operator, such as ``aten::scatter.src``; empty for other callables."""
    return str(target.name()) if isinstance(target, torch._ops.OpOverload) else ""


#: Why the translation of a call cannot be used, empty if it can: ``Trust.why_not`` of `onnxrt.trust`.
Doubt = Callable[[torch.fx.Node], str]


def refused(gm: torch.fx.GraphModule, doubt: Doubt) -> dict[str, str]:
    """Return the nodes of an ATen graph that must stay in PyTorch, by name, and why.

    If an operator is one of them, so are the nodes that pick from its results.
    """
    found: dict[str, str] = {}
    for node in gm.graph.nodes:
        if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            reason = found.get(node.args[0].name)
        else:
            reason = why_not(gm, node, doubt)
        if reason:
            found[node.name] = reason
    return found


def why_not(gm: torch.fx.GraphModule, node: torch.fx.Node, doubt: Doubt) -> str | None:
    """Return why a node of an ATen graph must stay in PyTorch; None if it need not."""
    if node.op != "call_function":
        return None if node.op in ("placeholder", "output", "get_attr") else f"{node.op} is no ATen operator"
    if node.target in ASSERTIONS or node.target is operator.getitem:
        return None
    return _why_not_type(node) or _why_not_operator(gm, node, doubt)


def _why_not_operator(gm: torch.fx.GraphModule, node: torch.fx.Node, doubt: Doubt) -> str | None:
    target: Any = node.target
    if not exporter.is_registered(target):
        return "torchlib has no function for it"
    if not isinstance(target, torch._ops.OpOverload):
        return _why_not_inside(gm, node, doubt)
    if torch.Tag.nondeterministic_seeded in target.tags and "scaled_dot_product" not in name(target):
        return "random numbers would differ from eager's"
    return doubt(node) if gives_tensors(node) else None


def gives_tensors(node: torch.fx.Node) -> bool:
    """Return whether a result of a call is a tensor, and not a size or nothing."""
    return any(isinstance(v, torch.Tensor) for v in torch.utils._pytree.tree_leaves(node.meta.get("val")))


def _why_not_inside(gm: torch.fx.GraphModule, node: torch.fx.Node, doubt: Doubt) -> str | None:
    """Return why a subgraph of a higher-order operator cannot be translated."""
    for argument in node.all_input_nodes:
        inner = attribute(gm, argument) if argument.op == "get_attr" else None
        if isinstance(inner, torch.fx.GraphModule) and (reasons := refused(inner, doubt)):
            called, reason = next(iter(reasons.items()))
            return f"{called} in {argument.name}: {reason}"
    return None


def _why_not_type(node: torch.fx.Node) -> str | None:
    for value in held_values(node):
        if not isinstance(value, torch.Tensor):
            continue
        if value.dtype not in exporter.DTYPES:
            return f"ONNX Runtime has no kernels for {str(value.dtype).removeprefix('torch.')}"
        if value.layout != torch.strided:
            return f"ONNX Runtime has no tensors with layout {value.layout}"
    return None


_PREFIX = "fxminify_ort_"


class _Supported(OperatorSupportBase):
    """Decides which nodes may be in a part. Arithmetic on sizes stays outside: Python is faster."""

    def __init__(self, refused: Container[str]) -> None:
        self._refused = refused

    def is_node_supported(self, submodules: Mapping[str, Any], node: torch.fx.Node) -> bool:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            return False
        if node.target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            return False  # an operator with subgraphs needs their get_attr nodes beside it
        return node.name not in self._refused


def cut(
    gm: torch.fx.GraphModule, refused: Container[str]
) -> tuple[torch.fx.GraphModule, dict[str, torch.fx.GraphModule]]:
    """Return a graph module whose parts are submodules, and those by name. ``refused`` are names of nodes outside."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copy = torch.fx.GraphModule(gm, graph)
    partitioner = CapabilityBasedPartitioner(copy, _Supported(refused), allows_single_node_partition=True)
    fused = partitioner.partition_and_fuse(_PREFIX)
    parts = {}
    for node in fused.graph.nodes:
        if node.op != "call_module" or not str(node.target).startswith(_PREFIX):
            continue
        part = getattr(fused, str(node.target))
        for holder, argument in zip(part.graph.find_nodes(op="placeholder"), node.args, strict=True):
            holder.meta.setdefault("val", argument.meta["val"])
        parts[str(node.target)] = part
    return fused, parts


def constants(fused: torch.fx.GraphModule, name: str, frozen: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """The frozen inputs of a graph, as inputs of one of its parts."""
    holders = fused.graph.find_nodes(op="placeholder")
    call = next(n for n in fused.graph.nodes if n.op == "call_module" and n.target == name)
    positions = {i: holders.index(a) for i, a in enumerate(call.args) if a in holders}
    return {i: frozen[p] for i, p in positions.items() if p in frozen}
