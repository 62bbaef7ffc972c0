"""Plainer layouts of tensors: strides, storage offsets, storages that several tensors share.

A new layout reads the elements of a tensor in their order and writes them to a storage of its own, as raw bytes, so it
works for every dtype. The plainest layout that still fails is kept: contiguous, other strides without gaps, the
recorded strides. A storage stays shared only if the failure needs that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...repro_templates.source.elements import COMPLEX, numbers, raw, strided
from ...store.document.case import Case, TensorSpec
from ...store.document.names import table
from ...store.document.strides import contiguous, memory_order
from ..candidate.graph_view import Storages
from .candidates import Candidates, Edit, data_tensors, own_key, together, with_tensor

if TYPE_CHECKING:
    from ...repro_templates.source.elements import Array

Shape = tuple[int, ...]


def plain_layouts(case: Case, storages: Storages) -> Candidates:
    """Lay every tensor out contiguously in a storage of its own; else without gaps, unshared, from offset 0."""
    for layout in (_contiguous, _gapless, _alone):
        case = yield from together(case, [_laid_out(i, layout, storages) for i in data_tensors(case)])
    return (yield from together(case, [_trimmed(key, storages) for key in sorted(case.storages)]))


def gapless(shape: Shape, stride: Shape) -> Shape:
    """Strides without gaps for ``shape``, with the order of dimensions of ``stride``. Strides of 0 stay."""
    order = memory_order(shape, stride)
    repeated = [stride[d] == 0 and shape[d] > 1 for d in range(len(shape))]
    packed = contiguous(tuple(1 if repeated[d] else shape[d] for d in order))
    return tuple(0 if repeated[d] else packed[order.index(d)] for d in range(len(shape)))


def elements(spec: TensorSpec, storages: Storages) -> Array:
    """The raw elements of a recorded tensor, in its shape."""
    return strided(_cells(spec, storages), spec.shape, spec.stride, spec.offset)


def recorded(spec: TensorSpec, cells: Array, stride: Shape, of: object, storages: Storages) -> TensorSpec:
    """``spec`` with the raw elements and the shape of ``cells``, at ``stride``, in a new storage in ``storages``."""
    import numpy as np

    shape = tuple(cells.shape)
    span = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if cells.size else 0
    flat = np.zeros(span, dtype=cells.dtype)
    if cells.size:
        steps = tuple(step * cells.itemsize for step in stride)
        np.lib.stride_tricks.as_strided(flat, shape, steps)[...] = cells
    data = flat.tobytes()
    key = own_key(data, of)
    storages.put({key: data})
    return replace(spec, shape=shape, stride=stride, offset=0, storage=key)


def sharers(case: Case, key: str | None) -> list[int]:
    """Return the indices of the tensors in the storage ``key``. The list is empty if ``key`` is None."""
    return [i for i, spec in enumerate(case.tensors) if spec.storage == key and key is not None]


def _contiguous(spec: TensorSpec) -> Shape:
    return contiguous(spec.shape)


def _gapless(spec: TensorSpec) -> Shape:
    return gapless(spec.shape, spec.stride)


def _alone(spec: TensorSpec) -> Shape:
    return spec.stride


def _laid_out(index: int, layout: Callable[[TensorSpec], Shape], storages: Storages) -> Edit:
    def edit(case: Case) -> Case:
        spec = case.tensors[index]
        stride = layout(spec)
        if spec.storage is None:
            return with_tensor(case, index, replace(spec, stride=stride, offset=0))
        lazy = spec.conj or spec.neg
        alone = len(sharers(case, spec.storage)) == 1
        if alone and not spec.offset and spec.stride == stride and not (lazy and layout is _contiguous):
            return case
        cells = elements(spec, storages)
        if lazy and layout is _contiguous:
            spec, cells = replace(spec, conj=False, neg=False), _resolved(spec, cells)
        return with_tensor(case, index, recorded(spec, cells, stride, index, storages))

    return edit


def _resolved(spec: TensorSpec, cells: Array) -> Array:
    """``cells`` with the pending conjugation or negation of ``spec`` applied."""
    import numpy as np

    values = numbers(spec.dtype, np.ascontiguousarray(cells).tobytes())
    values = np.conj(values) if spec.conj and spec.dtype in COMPLEX else values
    values = -values if spec.neg else values
    return np.frombuffer(raw(spec.dtype, values), dtype=cells.dtype).reshape(cells.shape)


def _trimmed(key: str, storages: Storages) -> Edit:
    """An edit that moves the tensors of a shared storage to its start."""

    def edit(case: Case) -> Case:
        lying = sharers(case, key)
        kinds = {case.tensors[i].dtype for i in lying}
        start = min((case.tensors[i].offset for i in lying), default=0)
        if len(lying) < 2 or len(kinds) != 1 or not start:
            return case
        data = storages[key][start * table().dtypes[kinds.pop()] :]
        fresh = own_key(data, key)
        storages.put({fresh: data})
        tensors = list(case.tensors)
        for i in lying:
            tensors[i] = replace(tensors[i], storage=fresh, offset=tensors[i].offset - start)
        return replace(case, tensors=tuple(tensors))

    return edit


def _cells(spec: TensorSpec, storages: Storages) -> Any:
    import numpy as np

    size = table().dtypes[spec.dtype]
    data = storages[str(spec.storage)]
    return np.frombuffer(data[: len(data) // size * size], dtype=f"V{size}")
