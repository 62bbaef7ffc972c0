"""Change the dtype, the shape or the layout of a tensor and keep its values as far as possible. No torch.

A generated tensor stays generated. The elements of a recorded tensor are read, changed and written contiguously to a
new storage. A larger shape repeats them.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ...repro_templates.source.elements import COMPLEX, FLOATS, INTEGERS, is_numeric, numbers, raw, strided
from ...store.document.case import Blobs, TensorSpec
from ...store.document.strides import contiguous

if TYPE_CHECKING:
    from ...repro_templates.source.elements import Array

#: The largest tensor that is changed, in elements.
MOST = 1 << 20
#: The dtypes that values can be converted to.
_WRITTEN = FLOATS | COMPLEX | {"bool", "uint8", "int8", "int16", "int32", "int64"}

#: The largest number of a dtype.
_LARGEST = {
    "float16": 65504.0, "bfloat16": 3e38, "float32": 3e38, "complex64": 3e38, "uint8": 255, "int8": 127, "int16": 32767,
    "int32": 2**31 - 1, "int64": 2**63 - 1, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0,
}  # fmt: skip

#: A tensor, and its storage by key where it needs a new one.
Made = tuple[TensorSpec, dict[str, bytes]]


def plain(spec: TensorSpec) -> bool:
    """Whether ``spec`` can be changed: a strided tensor of numbers with at most `MOST` elements."""
    return (
        spec.layout == "strided" and not spec.parts and not spec.extra and not spec.conj and not spec.neg
        and spec.numel <= MOST and (spec.init is not None or (spec.storage is not None and is_numeric(spec.dtype)))
    )  # fmt: skip


def cast(spec: TensorSpec, dtype: str, blobs: Blobs) -> Made | None:
    """``spec`` in another dtype. None where that cannot hold its values."""
    if not plain(spec) or dtype not in _WRITTEN:
        return None
    if spec.init is None:
        return _written(spec, _elements(spec, blobs), dtype)
    init = dict(spec.init)
    whole = dtype in INTEGERS or dtype == "bool"
    if init["fn"] == "full":
        value = init["value"]
        if isinstance(value, dict) and (whole or "complex" in value):
            return None
        if not isinstance(value, dict) and abs(value) > _LARGEST.get(dtype, abs(value)):
            return None
        if not isinstance(value, dict):
            init["value"] = bool(value) if dtype == "bool" else int(value) if whole else float(value)
    elif dtype not in {"randn": FLOATS | COMPLEX, "rand": FLOATS | COMPLEX}.get(init["fn"], INTEGERS | FLOATS):
        return None
    return replace(spec, dtype=dtype, init=init, requires_grad=spec.requires_grad and not whole), {}


def resize(spec: TensorSpec, shape: tuple[int, ...], blobs: Blobs) -> Made | None:
    """``spec`` in another shape with as many dimensions. Values are cut off or repeated."""
    if not plain(replace(spec, shape=shape)) or 0 in spec.shape:
        return None
    if spec.init is not None:
        dense = spec.stride == contiguous(spec.shape)
        return replace(spec, shape=shape, stride=contiguous(shape) if dense else spec.stride), {}
    if all(new <= old for new, old in zip(shape, spec.shape, strict=True)):
        return replace(spec, shape=shape), {}
    array = _elements(spec, blobs)
    for axis, size in enumerate(shape):
        array = array.take([i % array.shape[axis] for i in range(size)], axis)
    return _written(spec, array, spec.dtype)


def relaid(spec: TensorSpec, stride: tuple[int, ...], blobs: Blobs) -> Made | None:
    """``spec`` with other strides and no offset. A recorded tensor can only be made contiguous, else None."""
    if not plain(spec):
        return None
    if spec.init is not None:
        return replace(spec, stride=stride, offset=0), {}
    return _written(spec, _elements(spec, blobs), spec.dtype) if stride == contiguous(spec.shape) else None


def _elements(spec: TensorSpec, blobs: Blobs) -> Array:
    data = blobs[spec.storage or ""]
    return strided(numbers(spec.dtype, data), spec.shape, spec.stride, spec.offset)


def _written(spec: TensorSpec, array: Array, dtype: str) -> Made | None:
    """``spec`` with a new storage that holds only ``array``. None where complex values would become real."""
    if spec.dtype in COMPLEX and dtype not in COMPLEX:
        return None
    data = raw(dtype, array)
    key = hashlib.sha256(data).hexdigest()
    made = replace(spec, dtype=dtype, shape=tuple(array.shape), stride=contiguous(tuple(array.shape)), offset=0)
    whole = dtype in INTEGERS or dtype == "bool"
    return replace(made, storage=key, requires_grad=spec.requires_grad and not whole), {key: data}
