"""Cutting a graph into parts that ONNX Runtime runs and islands that PyTorch runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from . import exporter
from .report import held_values

aten = torch.ops.aten

#: Operators whose torchlib function gives wrong numbers, or a model that no session accepts: name -> the reason.
WRONG: dict[str, str] = {
    "aten::_native_batch_norm_legit_functional": "in training the results are wrong and running statistics stay",
    "aten::native_batch_norm": "in training the results are wrong",
    "aten::_native_batch_norm_legit": "in training the saved statistics are not to be trusted",
    "aten::_native_batch_norm_legit.no_stats": "the saved statistics are not to be trusted",
    "aten::nll_loss_forward": "total_weight is wrong, which makes gradients wrong",
    "aten::native_dropout": "random numbers differ from eager's",
    "aten::avg_pool3d": "divisor_override is ignored",
    "aten::_upsample_bilinear2d_aa": "wrong at some sizes",
    "aten::special_erfcx": "wrong far from zero",
}


def _takes_rank_0(node: torch.fx.Node) -> bool:
    """Whether the first argument is a tensor without dimensions."""
    value = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], torch.fx.Node) else None
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _not_float32(node: torch.fx.Node) -> bool:
    return any(isinstance(v, torch.Tensor) and v.dtype != torch.float32 for v in held_values(node))


#: Operators that are wrong for some arguments only: name -> (when, what is wrong).
WRONG_WHEN: dict[str, tuple[Callable[[torch.fx.Node], bool], str]] = {
    "aten::native_layer_norm": (_not_float32, "mean and rstd are float32 whatever the input, and sessions refuse that"),
    "aten::nonzero": (_takes_rank_0, "the result of a tensor without dimensions has the wrong shape"),
    "aten::scatter.src": (_takes_rank_0, "tensors without dimensions are refused at run time"),
    "aten::scatter.value": (_takes_rank_0, "tensors without dimensions are refused at run time"),
    "aten::scatter_add": (_takes_rank_0, "tensors without dimensions are refused at run time"),
}

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
    """The name of an operator as in `WRONG`, ``aten::scatter.src``; empty for other callables."""
    return str(target.name()) if isinstance(target, torch._ops.OpOverload) else ""


def why_not(node: torch.fx.Node, evicted: Mapping[str, str]) -> str | None:
    """Return why a node of an ATen graph must stay in PyTorch, or None if it need not.

    ``evicted`` has the error of the exporter or session for each node that it refused, by name.
    """
    if node.op != "call_function":
        return None if node.op in ("placeholder", "output", "get_attr") else f"{node.op} is no ATen operator"
    if node.name in evicted:
        return evicted[node.name]
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return why_not(node.args[0], evicted)
    if node.target in ASSERTIONS:
        return None
    return _why_not_type(node) or _why_not_operator(node)


def _why_not_operator(node: torch.fx.Node) -> str | None:
    target: Any = node.target
    if not exporter.is_registered(target):
        return "torchlib has no function for it"
    if not isinstance(target, torch._ops.OpOverload):
        return None
    called = name(target)
    if torch.Tag.nondeterministic_seeded in target.tags and "scaled_dot_product" not in called:
        return "random numbers would differ from eager's"
    if called in WRONG:
        return WRONG[called]
    when, reason = WRONG_WHEN.get(called, (None, ""))
    return reason if when is not None and when(node) else None


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

    def __init__(self, evicted: Mapping[str, str]) -> None:
        self._evicted = evicted

    def is_node_supported(self, submodules: Mapping[str, Any], node: torch.fx.Node) -> bool:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            return False
        if node.target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            return False  # an operator with subgraphs needs their get_attr nodes beside it
        return why_not(node, self._evicted) is None


def cut(
    gm: torch.fx.GraphModule, evicted: Mapping[str, str]
) -> tuple[torch.fx.GraphModule, dict[str, torch.fx.GraphModule]]:
    """A graph module whose parts are submodules, and those by name."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copy = torch.fx.GraphModule(gm, graph)
    partitioner = CapabilityBasedPartitioner(copy, _Supported(evicted), allows_single_node_partition=True)
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
