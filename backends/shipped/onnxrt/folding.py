"""Values that depend on no input, computed once in PyTorch: positions, masks, constants of a decomposition.

ONNX Runtime folds constants too, but before it opens the functions that torchlib is written in, so that the attention
mask of a transformer would be computed again at every call, by dozens of operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

#: Values of more bytes than that are left to be computed.
MOST_BYTES = 4 << 20


def constants(gm: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.Tensor]:
    """The nodes of an ATen graph that are constant and that other nodes or the result read, with their values.

    Random numbers, what lies on other devices than the CPU and what depends on symbolic sizes are none. Not under a
    fake mode.
    """
    known: dict[torch.fx.Node, torch.Tensor] = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(value := _attribute(gm, node), torch.Tensor):
            known[node] = value
        elif node.op == "call_function" and _foldable(node, known):
            try:
                with torch.no_grad():
                    out = node.target(*_filled(node.args, known), **_filled(node.kwargs, known))
            except Exception:  # noqa: BLE001  the graph may never get there: whoever runs it will see
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
    value: Any = gm
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value
