"""Decompositions: what AOTAutograd takes apart before a graph reaches this backend.

Torch's own table, for everything without a (trustworthy) torchlib function, less what would change the numbers: dropout
stays whole, so that it draws eager's random numbers in an island. Neither torch nor torchlib knows the backward of
convolutions and of average pooling; both are written here as convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import exporter, support

aten = torch.ops.aten

#: Not taken apart. Without ``lift_fresh`` whole, AOTAutograd refuses graphs with tensor constants.
_WHOLE = (
    aten.lift_fresh.default,
    aten.lift.default,
    aten.native_dropout.default,
    aten.bernoulli.default,
    aten.bernoulli.p,
)


def table(chosen: str | Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decomposition table for the option ``decompositions``."""
    if chosen == "none":
        return {}
    if chosen == "core":
        return {**torch._decomp.core_aten_decompositions(), **OWN}
    kept = {op for op in exporter.implemented() if support.name(op) not in support.WRONG}
    out = exporter.friendly_table(kept)
    for op in _WHOLE:
        out.pop(op, None)
    return {**out, **OWN, **(chosen if isinstance(chosen, Mapping) else {})}


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a convolution, (N, C, *) and (O, C/groups, *) or transposed (C, O/groups, *), as convolutions."""
    rank = weight.dim() - 2
    stride, padding, dilation = (_each(v, rank) for v in (stride, padding, dilation))
    grad_x = grad_weight = grad_bias = None
    if mask[0]:
        grad_x = (
            aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * rank, groups)
            if transposed
            else _spread(grad, weight, x.shape[2:], stride, padding, dilation, groups)
        )
    if mask[1]:
        # A transposed convolution is the other one with input and output exchanged.
        image, steps = (grad, x) if transposed else (x, grad)
        grad_weight = _correlate(image, steps, weight.shape[2:], stride, padding, dilation, groups)
    if mask[2]:
        grad_bias = grad.sum([0, *range(2, grad.dim())])
    return grad_x, grad_weight, grad_bias


def _each(values: Sequence[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _spread(
    grad: Tensor, weight: Tensor, size: Sequence[Any], stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """The transposed convolution of ``grad`` (N, O, *) that ends at the spatial ``size`` of the convolution's input."""
    rank = len(size)
    room = []
    for i in range(rank):
        least = (grad.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1
        missing = size[i] - least
        # An attribute of an ONNX node is a number: where sizes are symbolic, make the most there may be and cut.
        room.append(missing if type(missing) is int else stride[i] - 1)
    out: Tensor = aten.convolution(grad, weight, None, stride, padding, dilation, True, room, groups)
    for i in range(rank):
        if type(size[i]) is not int and stride[i] > 1:
            out = out.narrow(2 + i, 0, size[i])
    return out


def _correlate(
    image: Tensor, steps: Tensor, size: Sequence[Any], stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """The gradient of a weight: ``image`` (N, C, *) correlated with ``steps`` (N, O, *), giving (O, C/groups, *)."""
    rank, batch, channels = len(size), image.shape[0], image.shape[1]
    if groups == 1:
        folded = image.transpose(0, 1)
    else:
        spatial = list(image.shape[2:])
        split = image.reshape([batch, groups, channels // groups, *spatial])
        folded = split.permute([2, 1, 0, *range(3, rank + 3)]).reshape([channels // groups, groups * batch, *spatial])
    kernel = steps.transpose(0, 1)
    out: Tensor = aten.convolution(folded, kernel, None, dilation, padding, stride, False, [0] * rank, groups)
    for i in range(rank):
        out = out.narrow(2 + i, 0, size[i])
    return out.transpose(0, 1)


def avg_pool2d_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Gradient of average pooling as a transposed convolution with a constant; uneven windows are not taken apart."""
    padding = _each(padding or [0], 2)
    if ceil_mode or x.dim() != 4 or (any(padding) and not count_include_pad and divisor_override is None):
        return NotImplemented  # type: ignore[no-any-return]
    kernel = _each(kernel_size, 2)
    steps = _each(stride, 2) if stride else kernel
    divisor = divisor_override or kernel[0] * kernel[1]
    weight = torch.full((1, 1, *kernel), 1 / divisor, dtype=x.dtype, device=x.device)
    n, c, height, width = x.shape
    flat = grad.reshape([n * c, 1, grad.shape[2], grad.shape[3]])
    return _spread(flat, weight, [height, width], steps, padding, [1, 1], 1).reshape([n, c, height, width])


OWN: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: convolution_backward,
    aten.avg_pool2d_backward.default: avg_pool2d_backward,
}
