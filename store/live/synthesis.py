"""Recipes for values of tensors that are not kept: seeded numbers of the same range.

Many failures, and nearly all compile errors, depend on shapes and dtypes only. The program must still run with the new
values. So integers stay within the bounds of the real ones, because they may be indices, and counting sequences stay
counting sequences. Nothing is copied: bounds are reductions, and of large floating tensors only a sample is read.
"""

from __future__ import annotations

from typing import Any

import torch

#: The most elements of a floating tensor that are read.
_SAMPLE = 1 << 20
#: Larger values are not measured.
_LARGEST = 1e30
#: The most integers that are compared with a counting sequence.
_COUNTED = 1 << 22


def recipe(tensor: torch.Tensor, *, measured: bool = False) -> dict[str, Any]:
    """An ``init`` of `TensorSpec` for a plain strided tensor: a constant, a sequence, or seeded numbers.

    Normal numbers have the standard deviation of the values if it is ``measured``, else 1.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg() if tensor.is_complex() else tensor.detach()
    if tensor.numel() == 0 or tensor.is_complex():
        return {"fn": "randn"} if tensor.is_complex() else {"fn": "full", "value": 0}
    if tensor.dtype is torch.bool:
        every, some = bool(tensor.all()), bool(tensor.any())
        return {"fn": "full", "value": some} if every == some else {"fn": "randint", "low": 0, "high": 2}
    if tensor.is_floating_point():
        return _measured(tensor) if measured else _floating(tensor)
    try:
        low, high = (int(bound) for bound in torch.aminmax(tensor))
    except RuntimeError:  # an integer type without this kernel: widen what there is
        low, high = (int(bound) for bound in torch.aminmax(tensor.to(torch.int64)))
    if low == high:
        return {"fn": "full", "value": low}
    flat = tensor.reshape(-1) if tensor.numel() <= _COUNTED else tensor.new_empty(0)
    if low == 0 and high == tensor.numel() - 1 and torch.equal(flat.to(torch.int64), torch.arange(flat.numel())):
        return {"fn": "arange"}
    if high >= 2**63 - 1:
        return {"fn": "full", "value": low}
    return {"fn": "randint", "low": low, "high": high + 1}


def _measured(tensor: torch.Tensor) -> dict[str, Any]:
    """Normal numbers with the standard deviation of the values, or their mean if they hardly differ from it."""
    values = tensor[_every(tensor)].flatten().double()
    low, high, mean = float(values.min()), float(values.max()), float(values.mean())
    spread = float(values.std(correction=0))
    if not (-_LARGEST < low <= high < _LARGEST):
        return {"fn": "randn"}
    if spread < abs(mean) / 10 or low == high:
        return {"fn": "full", "value": _short(mean)}
    if low >= 0 and high <= 1:
        return {"fn": "rand"}
    return {"fn": "randn", "std": _short(spread)}


def _every(tensor: torch.Tensor) -> tuple[slice, ...]:
    """An index of at most about `_SAMPLE` elements, from all parts of the tensor."""
    step = max(1, round((tensor.numel() / _SAMPLE) ** (1 / max(1, tensor.dim()))))
    return tuple(slice(None, None, step if size >= step else 1) for size in tensor.shape)


def _short(number: float) -> float:
    return float(f"{number:.2g}")


def _floating(tensor: torch.Tensor) -> dict[str, Any]:
    """Normal numbers, uniform ones if all that were read lie between 0 and 1, or the constant if all are equal."""
    if isinstance(tensor, torch.nn.Parameter) or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return {"fn": "randn"}
    sample = tensor.view(-1)[:_SAMPLE].float()
    low, high = (float(bound) for bound in torch.aminmax(sample))
    if low == high and tensor.numel() <= _SAMPLE and abs(low) < float("inf"):
        return {"fn": "full", "value": low}
    return {"fn": "rand"} if low >= 0 and high <= 1 else {"fn": "randn"}
