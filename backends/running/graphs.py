"""Graph modules as Dynamo makes them: a private copy for a backend that may edit it, and what its nodes call."""

from __future__ import annotations

import copy
from typing import Any

from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule


def private(gm: fx.GraphModule, *, plain: bool = False) -> fx.GraphModule:
    """A copy of ``gm`` that a backend may edit: the graph is its own, attributes and parameters are shared.

    Everything Dynamo notes on graph and nodes (``meta``, ``example_value``, names of parameters) comes along, and the
    copy compiles its code as lazily as ``gm``; TorchScript cannot read that, it needs a ``plain`` one.
    """
    lazy = isinstance(gm, _LazyGraphModule) and not plain
    new = (_LazyGraphModule if lazy else fx.GraphModule)(gm, copy.deepcopy(gm.graph))
    for old, node in zip(gm.graph.nodes, new.graph.nodes, strict=True):
        vars(node).update(vars(old))  # the sources of inputs, which AOTAutograd asks for
    new.meta = dict(gm.meta)
    new.training = gm.training
    for name, value in vars(gm).items():
        if name not in vars(new):
            setattr(new, name, value)
    return new


def called(node: fx.Node) -> str:
    """What ``node`` calls, as a person would say it: ``relu``, ``aten.relu.default``, ``torch.relu`` ..."""
    if isinstance(node.target, str):
        return node.target
    return str(fx.node._get_qualified_name(node.target)) if callable(node.target) else str(node.target)


def mentions(node: fx.Node, op: str) -> bool:
    """Does ``node`` call ``op``: its last name (``relu``), or the name torch prints (``aten.relu.default``)?"""
    shown = {called(node), str(node.target)}
    names = {part.rstrip("_") for text in shown for part in text.replace("::", ".").split(".")}
    return node.op in ("call_function", "call_method", "call_module") and (op in shown or op.rstrip("_") in names)


def counts(gm: fx.GraphModule) -> dict[str, int]:
    """How often ``gm`` calls what, the most frequent first."""
    found: dict[str, int] = {}
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method", "call_module"):
            found[called(node)] = found.get(called(node), 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def trains(inputs: Any) -> bool:
    """Will gradients be asked of a graph with these inputs?"""
    import torch

    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs)
