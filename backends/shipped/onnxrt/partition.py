"""Cutting a graph into parts that ONNX Runtime runs and islands that PyTorch runs."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from . import support

_PREFIX = "fxminify_ort_"


class _Supported(OperatorSupportBase):
    """What may be in a part. Arithmetic on sizes stays outside: Python does it faster."""

    def __init__(self, evicted: Mapping[str, str]) -> None:
        self._evicted = evicted

    def is_node_supported(self, submodules: Mapping[str, Any], node: torch.fx.Node) -> bool:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            return False
        if node.target is not operator.getitem and not isinstance(node.target, torch._ops.OpOverload):
            return False  # an operator with subgraphs needs their get_attr nodes beside it
        return support.why_not(node, self._evicted) is None


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
        for holder, argument in zip(_holders(part), node.args, strict=True):
            holder.meta.setdefault("val", argument.meta["val"])
        parts[str(node.target)] = part
    return fused, parts


def constants(fused: torch.fx.GraphModule, name: str, frozen: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """The frozen inputs of a graph, as inputs of one of its parts."""
    holders = _holders(fused)
    call = next(n for n in fused.graph.nodes if n.op == "call_module" and n.target == name)
    positions = {i: holders.index(a) for i, a in enumerate(call.args) if a in holders}
    return {i: frozen[p] for i, p in positions.items() if p in frozen}


def _holders(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in gm.graph.nodes if n.op == "placeholder"]
