"""Decompositions that AOTAutograd applies before a graph reaches this backend.

They are torch's own table for everything without a correct torchlib function, except what would change the numbers:
dropout is kept, so that it draws eager's random numbers in an island. Neither torch nor torchlib decomposes the
backward of convolutions and of average pooling; both are written here as convolutions. An operator that one fast ONNX
operator computes correctly is kept. Splits become slices and not sequences, because each operator of a small model
costs a microsecond or two.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import exporter, partition

aten = torch.ops.aten

#: Not decomposed. If ``lift_fresh`` were, AOTAutograd would refuse graphs with tensor constants. The decomposition of
#: ``diagonal_scatter`` writes to a view, which a functional graph cannot do. The one for ``copysign`` calls
#: ``prims.signbit``, whose meta function says another dtype than it returns.
_WHOLE = (
    aten.copysign.Scalar,
    aten.copysign.Tensor,
    aten.diagonal_scatter.default,
    aten.lift_fresh.default,
    aten.lift.default,
    aten.native_dropout.default,
    aten.bernoulli.default,
    aten.bernoulli.p,
)

#: Operators that torchlib has a function for, and that are decomposed nevertheless: the function is wrong.
_DECOMPOSED = frozenset(
    {
        "aten::_native_batch_norm_legit_functional", "aten::native_batch_norm", "aten::_native_batch_norm_legit",
        "aten::_native_batch_norm_legit.no_stats", "aten::nll_loss_forward", "aten::avg_pool3d",
        "aten::_upsample_bilinear2d_aa", "aten::special_erfcx",
    }
)  # fmt: skip

#: Larger kernels take too much memory as a matrix.
_MOST_SHIFTS = 27


def table(chosen: str | Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decomposition table for the option ``decompositions``."""
    if chosen == "none":
        return {}
    if chosen == "core":
        return {**torch._decomp.core_aten_decompositions(), **OWN}
    return {**_default(), **(chosen if isinstance(chosen, Mapping) else {})}


@functools.cache
def _default() -> dict[Any, Callable[..., Any]]:
    """Return the table of the option "default". Torch needs a tenth of a second to make its part."""
    kept = {op for op in exporter.implemented() if partition.name(op) not in _DECOMPOSED}
    out = exporter.friendly_table(kept)
    for op in _WHOLE:
        out.pop(op, None)
    return {**out, **OWN}


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
        if transposed:
            grad_x = aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * rank, groups)
            for i, more in enumerate(_each(output_padding, rank)):
                grad_x = grad_x.narrow(2 + i, 0, x.shape[2 + i]) if more >= stride[i] else grad_x
        else:
            grad_x = _spread(grad, weight, x.shape[2:], stride, padding, dilation, groups)
    if mask[1]:
        # A transposed convolution is a convolution with input and output exchanged.
        image, steps = (grad, x) if transposed else (x, grad)
        correlate = _correlate_by_matrix if _fits(image, steps, weight.shape[2:], groups) else _correlate
        grad_weight = correlate(image, steps, weight.shape[2:], stride, padding, dilation, groups)
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
        # An attribute of an ONNX node is a number. If sizes are symbolic, make the largest result and cut it.
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


def _fits(image: Tensor, steps: Tensor, size: Sequence[int], groups: int) -> bool:
    static = all(type(s) is int for s in (*image.shape, *steps.shape))
    return groups == 1 and static and math.prod(size) <= _MOST_SHIFTS and image.numel() > 0 and steps.numel() > 0


def _correlate_by_matrix(
    image: Tensor, steps: Tensor, size: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """`_correlate` as one matrix product of shifted images: several times faster for small kernels."""
    rank, out_channels, channels = len(size), steps.shape[1], image.shape[1]
    if any(padding):
        image = aten.constant_pad_nd(image, [p for p in reversed(padding) for _ in range(2)], 0.0)
    shifted = [image.transpose(0, 1)]
    for i in range(rank):
        span = (steps.shape[2 + i] - 1) * stride[i] + 1
        starts = [k * dilation[i] for k in range(size[i])]
        shifted = [aten.slice(x, 2 + i, start, start + span, stride[i]) for x in shifted for start in starts]
    columns = torch.cat([x.reshape([channels, -1]) for x in shifted], 0)
    product = torch.mm(steps.transpose(0, 1).reshape([out_channels, -1]), columns.t())
    return product.reshape([out_channels, -1, channels]).transpose(1, 2).reshape([out_channels, channels, *size])


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
    """Gradient of average pooling as a transposed convolution with a constant; uneven windows are not decomposed."""
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


def native_layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer normalization is kept in float32 only: ONNX Runtime's saved statistics have no other type."""
    if x.dtype == torch.float32:
        return NotImplemented  # type: ignore[no-any-return]
    whole: Callable[..., tuple[Tensor, Tensor, Tensor]] = torch._decomp.decomposition_table[
        aten.native_layer_norm.default
    ]
    return whole(x, normalized_shape, weight, bias, eps)


def split(x: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    """Pieces of ``size``, the last one smaller; a sequence if sizes depend on data."""
    length = x.shape[dim]
    if any(isinstance(s, torch.SymInt) and not s.node.has_hint() for s in (length, size)) or size <= 0:
        return NotImplemented  # type: ignore[no-any-return]
    last = max(int((length + size - 1) // size), 1) - 1  # a guard on it exists: the graph has so many pieces
    pieces = [x.narrow(dim, i * size, size) for i in range(last)]
    return [*pieces, x.narrow(dim, last * size, length - last * size)]


def split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Pieces of these ``sizes``."""
    ends = itertools.accumulate(sizes)
    return [x.narrow(dim, end - size, size) for size, end in zip(sizes, ends, strict=True)]


def squeeze_dim(x: Tensor, dim: int) -> Tensor:
    """``x`` itself if the dimension is not 1: ONNX refuses to remove it then."""
    return NotImplemented if x.dim() == 0 or _is_one(x.shape[dim]) else aten.alias(x)


def squeeze_dims(x: Tensor, dims: Sequence[int]) -> Tensor:
    """``x`` without those dimensions that are 1."""
    removed = sorted((d % x.dim() for d in dims if x.dim() and _is_one(x.shape[d])), reverse=True)
    found: Tensor = functools.reduce(aten.squeeze.dim, dict.fromkeys(removed), aten.alias(x))
    return found


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _extremum(op: Any) -> Callable[..., Tensor]:
    """The decomposition of ``op``, ``amax`` or ``amin``. torchlib wants its dimensions named, and one at least."""

    def extremum(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
        if not x.dim():
            return x.clone()
        return NotImplemented if dim else op(x, range(x.dim()), keepdim)

    return extremum


def mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """A product with a matrix of one column: ONNX Runtime fuses a transposed matrix and a vector, and then is wrong."""
    return torch.mm(matrix, vector.unsqueeze(1)).squeeze(1)


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """With one bound the larger or smaller of the two: ``Clip`` would make a number of NaN."""
    if (min is None) == (max is None) or not x.is_floating_point():
        return NotImplemented  # type: ignore[no-any-return]
    bound = torch.scalar_tensor(max if min is None else min, dtype=x.dtype, device=x.device)
    return torch.minimum(x, bound) if min is None else torch.maximum(x, bound)


def clamp_min(x: Tensor, min: Any) -> Tensor:
    """`clamp` without an upper bound."""
    return clamp(x, min)


def clamp_max(x: Tensor, max: Any) -> Tensor:
    """`clamp` without a lower bound."""
    return clamp(x, None, max)


def sign(x: Tensor) -> Tensor:
    """The sign as eager computes it: 0 for NaN, which the operator of ONNX keeps."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype) if x.is_floating_point() else NotImplemented


OWN: dict[Any, Callable[..., Any]] = {
    aten.amax.default: _extremum(aten.amax),
    aten.amin.default: _extremum(aten.amin),
    aten.clamp.default: clamp,
    aten.clamp_max.default: clamp_max,
    aten.clamp_min.default: clamp_min,
    aten.mv.default: mv,
    aten.sign.default: sign,
    aten.squeeze.dim: squeeze_dim,
    aten.squeeze.dims: squeeze_dims,
    aten.convolution_backward.default: convolution_backward,
    aten.avg_pool2d_backward.default: avg_pool2d_backward,
    aten.native_layer_norm.default: native_layer_norm,
    aten.split.Tensor: split,
    aten.split_with_sizes.default: split_with_sizes,
    aten.unsafe_split.Tensor: split,
    aten.unsafe_split_with_sizes.default: split_with_sizes,
}
