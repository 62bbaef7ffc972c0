"""Ask eager what a backend was asked when it failed, with the same inputs, before the failure counts as the backend's.

Eager runs the captured graph once, in the user's program: its forward pass, and its backward pass too if the failure
arose there or while the backend traced the derivative. What eager raises is kept with the failure. Large storages that
the graph does not write to are not copied for it (`backends.running.shared`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...store.failure import Failure, FailureKind
from ...store.live import modes
from ..running import collectives
from ..running.exceptions import is_out_of_memory, one_line
from ..running.execution import execute, tensors
from ..running.shared import SharedStorages
from .aside import PLAIN, aside, fresh, static
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
        module = snapshot.module()
        leaves = tensors(pytree.tree_leaves(inputs.values))
        if collectives.communicates(module) is not None or any(map(modes.is_fake, leaves)):
            return None
        run = _eager(module, inputs.values, backward, whole=snapshot.whole)
    except Exception:  # noqa: BLE001  a graph or inputs of a kind that cannot be copied
        return None
    try:
        with aside(snapshot.context, rng):
            raised: Exception | None = _raised(run)
    except Exception:  # noqa: BLE001  the state of the call cannot be had again
        return None
    if raised is None:
        return ""
    return None if is_out_of_memory(raised) or _broken(raised) else one_line(raised)


def _eager(module: fx.GraphModule, values: Sequence[Any], backward: bool, *, whole: bool) -> Callable[[], object]:
    """Return a run of ``module`` that changes nothing of it or of ``values``."""
    if all(type(v) in PLAIN or not isinstance(v, torch.Tensor) for v in pytree.tree_leaves(list(values))):
        static_module, given = static(module, list(values))
        shared = SharedStorages(static_module, given, whole=whole)
        if shared.numbers:
            return partial(shared.eager, backward)
        module, copies = copy.deepcopy(static_module), fresh(given, whole)
    else:
        module, copies = static(copy.deepcopy(module), fresh(values, whole))
    # A call of the module would print the errors of the graph.
    return partial(execute, module.forward, copies, backward)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _raised(run: Callable[[], object]) -> Exception | None:
    try:
        run()
    except Exception as exc:  # noqa: BLE001  whatever eager raises is its answer
        return exc
    return None


def _broken(exc: Exception) -> bool:
    """Whether ``exc`` says that the device raises at every call since an earlier one failed."""
    return isinstance(exc, torch.AcceleratorError) or "CUDA error" in str(exc)
