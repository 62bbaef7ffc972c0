"""The decomposition of a composite operation, as torch defines it. Imports torch and uses `make_fx`.

A call is traced to operators, which decomposes every composite kernel (``cross_entropy`` becomes ``log_softmax`` and
``nll_loss_forward``). If that gives a single operator, one level of its decomposition in torch's table is traced. The
operators in it may be decomposed later, if they turn out to matter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._decomp import global_decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx

from ...backends.running.execution import copy_inputs

#: A decomposition into more operators than this is not used: it is harder to read than the operation itself.
MOST = 256


def decomposition(call: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> fx.GraphModule | None:
    """``call(*tensors)`` as a graph of at least two operators; None for an operator without a decomposition.

    Runs the call on copies of the tensors. Raises any exception of the call or of its decomposition.
    """
    traced = _traced(call, tensors, {})
    if len(operators := _operators(traced)) == 1:
        table = global_decomposition_table["post_autograd"]
        target = operators[0].target
        if target not in table:
            return None
        traced = _traced(call, tensors, {target: table[target]})
    return traced if 2 <= len(_operators(traced)) <= MOST else None


def _traced(call: Callable[..., Any], tensors: Sequence[torch.Tensor], table: dict[Any, Any]) -> fx.GraphModule:
    given = [t.detach() for t in copy_inputs(list(tensors))]
    traced: fx.GraphModule = make_fx(call, decomposition_table=table, tracing_mode="real")(*given)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def _operators(traced: fx.GraphModule) -> list[fx.Node]:
    trivial = (operator.getitem, torch.ops.aten.detach.default, torch.ops.aten.alias.default)
    return [n for n in traced.graph.nodes if n.op == "call_function" and n.target not in trivial]
