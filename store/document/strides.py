"""Strides, and the calls that make them: `.t()`, `.permute(...)`, `.expand(...)`, a memory format.

All compute as torch does, also for dimensions of size 1. A tensor that a generator makes is drawn in memory order
if `view` has a view for its strides, and in logical order if they are the strides of a memory format.
"""

from __future__ import annotations

Shape = tuple[int, ...]

_FORMATS = {4: ("channels_last", (0, 2, 3, 1)), 5: ("channels_last_3d", (0, 2, 3, 4, 1))}


def contiguous(shape: Shape) -> Shape:
    """Row-major strides, as torch gives them to a new tensor (a size of 0 counts as 1)."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def memory_order(shape: Shape, stride: Shape) -> list[int]:
    """Return the dimensions from the outermost to the innermost. Of equal strides, dimensions of size 1 come last."""
    return sorted(range(len(shape)), key=lambda d: (-stride[d], shape[d] == 1, d))


def view(shape: Shape, stride: Shape) -> tuple[Shape, str] | None:
    """Return the shape of a contiguous tensor, and the view of it with ``shape`` and ``stride``, or None without
    one.
    """
    if stride == contiguous(shape):
        return shape, ""
    if 0 in shape:
        return None
    return _expanded(shape, stride) or _permuted(shape, stride)


def memory_format(shape: Shape, stride: Shape) -> str | None:
    """The name of the memory format in which a dense tensor has these strides, None if it has none."""
    permuted = _permuted(shape, stride)
    if permuted is None or stride == contiguous(shape) or len(shape) not in _FORMATS or min(shape) < 2:
        return None
    name, order = _FORMATS[len(shape)]
    return name if permuted[0] == tuple(shape[d] for d in order) else None


def _permuted(shape: Shape, stride: Shape) -> tuple[Shape, str] | None:
    order = memory_order(shape, stride)
    source = tuple(shape[d] for d in order)
    if tuple(stride[d] for d in order) != contiguous(source):
        return None
    back = tuple(order.index(d) for d in range(len(shape)))
    if len(shape) == 2:
        return source, ".t()"
    if back == (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2):
        return source, ".mT"
    return source, f".permute({', '.join(map(repr, back))})"


def _expanded(shape: Shape, stride: Shape) -> tuple[Shape, str] | None:
    source = tuple(1 if step == 0 and size > 1 else size for size, step in zip(shape, stride, strict=True))
    kept = tuple(
        0 if step == 0 and size > 1 else c for size, step, c in zip(shape, stride, contiguous(source), strict=True)
    )
    if source == shape or kept != stride:
        return None
    while source and source[0] == 1 and shape[len(shape) - len(source)] > 1:
        source = source[1:]
    return source, f".expand({', '.join(map(repr, shape))})"
