"""Ask eager what a backend was asked when it failed, with the same inputs, before the failure counts as the backend's.

Eager runs the captured graph once, in the user's program: its forward pass, and its backward pass too if the failure
arose there or while the backend traced the derivative. What eager raises is kept with the failure.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...store.failure import Failure, FailureKind
from ...store.live import modes
from ..running import collectives
from ..running.exceptions import is_out_of_memory, one_line
from ..running.execution import execute, tensors
from .aside import aside, fresh, static
from .graph_snapshot import GraphSnapshot, KeptInputs

#: Kinds of failures that eager may share.
_SHARED = (FailureKind.COMPILE_ERROR, FailureKind.RUNTIME_ERROR)


def refusal(
    snapshot: GraphSnapshot,
    inputs: KeptInputs,
    rng: Mapping[str, torch.Tensor],
    failure: Failure,
    *,
    backward: bool,
) -> str | None:
    """Return what eager raises for the call that failed: type and first line, empty if it raises nothing.

    None if eager cannot be asked: inputs were overwritten or have no values, the graph communicates with other
    processes, there is no memory left, or the device no longer works. Raises no `Exception`.
    """
    if failure.kind not in _SHARED or inputs.changed or modes.functorch_depth():
        return None
    try:
        module = copy.deepcopy(snapshot.module())
        leaves = tensors(pytree.tree_leaves(inputs.values))
        if collectives.communicates(module) is not None or any(map(modes.is_fake, leaves)):
            return None
        module, values = static(module, fresh(inputs.values, snapshot.whole))
    except Exception:  # noqa: BLE001  a graph or inputs of a kind that cannot be copied
        return None
    try:
        with aside(snapshot.context, rng):
            raised: Exception | None = _raised(module, values, backward)
    except Exception:  # noqa: BLE001  the state of the call cannot be had again
        return None
    if raised is None:
        return ""
    return None if is_out_of_memory(raised) or _broken(raised) else one_line(raised)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _raised(module: fx.GraphModule, values: Sequence[Any], backward: bool) -> Exception | None:
    try:
        execute(module.forward, values, backward)  # a call of the module would print the errors of the graph
    except Exception as exc:  # noqa: BLE001  whatever eager raises is its answer
        return exc
    return None


def _broken(exc: Exception) -> bool:
    """Whether ``exc`` says that the device raises at every call since an earlier one failed."""
    return isinstance(exc, torch.AcceleratorError) or "CUDA error" in str(exc)
