"""Compare the fake kernels of operators with the operators. Imports torch.

A compiler learns from the fake kernel of an operator which shapes, strides and dtypes the operator returns. If that is
wrong for an operator of another library, every backend that relies on it fails, and eager mode does not. torch tests
its own operators for this, so these are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ...backends.running import ambient
from ...store.document.case import Blobs, Case
from ...store.live.build import build

#: Namespaces of operators that belong to torch.
OF_TORCH = ("aten", "prims", "prim")


def wrong(case: Case, blobs: Blobs) -> str:
    """Return the first operator of ``case`` whose fake kernel and which itself differ, with both results.

    The case is run in eager mode, so call it in a worker. Empty if all agree.
    """
    gm, inputs = build(case, blobs)
    comparison = _Comparison()
    with ambient.applied(case.context, case.tensors, blobs), comparison:
        gm(*inputs)
    return comparison.words


class _Comparison(TorchDispatchMode):
    """Compares each operator that is not torch's. ``words`` are those about the first difference."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.words = ""

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        own = func.namespace in OF_TORCH or self.words
        fake = None if own else _faked(func, args, given)
        result = func(*args, **given)
        if fake is not None and (said := _difference(fake, tree_leaves(result))):
            self.words = f"{func.namespace}.{func._schema.name.rpartition('::')[2]}, {said}"
        return result


def _faked(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """Return the results of the fake kernel, or None if it raises for these arguments."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode:
            faked = tree_map_only(torch.Tensor, mode.from_tensor, (tuple(args), dict(kwargs)))
            return tree_leaves(func(*faked[0], **faked[1]))
    except Exception:  # noqa: BLE001  a missing fake kernel, or one whose result depends on values: nothing to compare
        return None


def _difference(fake: Sequence[Any], real: Sequence[Any]) -> str:
    """Describe the first result in which the fake kernel and the operator differ. Empty if they agree."""
    if len(fake) != len(real):
        return f"which returns {len(fake)} results where the operator returns {len(real)}"
    for one, other in zip(fake, real, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            shown, seen = _described(one, strides=False), _described(other, strides=False)
            if shown == seen:
                shown, seen = _described(one, strides=True), _described(other, strides=True)
            if shown != seen:
                return f"which returns {shown} where the operator returns {seen}"
    return ""


def _described(tensor: torch.Tensor, *, strides: bool) -> str:
    """The dtype and the shape of ``tensor``, with the strides of dimensions of more than one element."""
    said = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if not strides or tensor.layout is not torch.strided or tensor.numel() == 0:
        return said
    steps = [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return f"{said} with strides {steps}"
