"""`Frozen`: parameters and buffers that the option ``freeze`` makes constants of an inference model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Frozen:
    """What Dynamo's graph was called with. AOTAutograd keeps the order of inputs where it adds none."""

    inputs: list[Any]
    constant: list[bool]
    results: int

    @classmethod
    def of(cls, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Frozen:
        """Which inputs of Dynamo's graph are parameters or buffers of modules."""
        holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        returned = torch.utils._pytree.tree_leaves(gm.graph.output_node().args)
        constant = [_is_state(n, t) for n, t in zip(holders, example_inputs, strict=True)]
        return cls(list(example_inputs), constant, len(returned))

    def constants(self, gm: torch.fx.GraphModule) -> dict[int, torch.Tensor]:
        """Positions of an ATen graph's inputs whose values are constant, with the values.

        None where positions cannot be matched, and none where the graph returns more than Dynamo's did: then it
        changes inputs, perhaps the very buffers.
        """
        holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        returned = torch.utils._pytree.tree_leaves(gm.graph.output_node().args)
        mutates = any(getattr(getattr(n.target, "_schema", None), "is_mutable", False) for n in gm.graph.nodes)
        if len(holders) != len(self.inputs) or len(returned) != self.results or mutates:
            return {}
        matched = all(_same(n.meta.get("val"), value) for n, value in zip(holders, self.inputs, strict=True))
        return {i: self.inputs[i] for i, constant in enumerate(self.constant) if constant} if matched else {}


def _is_state(node: torch.fx.Node, value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    source = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", "")
    name = source() if callable(source) else source
    return isinstance(value, torch.nn.Parameter) or "._buffers[" in name or "._parameters[" in name


def _same(expected: Any, value: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(value, torch.Tensor):
        return isinstance(expected, torch.Tensor) == isinstance(value, torch.Tensor)
    return expected.dtype == value.dtype and expected.dim() == value.dim()
