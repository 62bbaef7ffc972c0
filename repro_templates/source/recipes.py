"""Simpler tensors to try instead of recorded values: constants, sequences and seeded random numbers.

A script should have no data that it does not need. The minifier asks the oracle which of these still show the failure.
They are printed as one short call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...store.document.case import Json, TensorSpec
from ...store.document.strides import contiguous
from .elements import COMPLEX, FLOATS, INTEGERS, is_numeric, numbers, strided

if TYPE_CHECKING:
    from .elements import Array

_ARANGE = FLOATS | {"int64", "int32", "int16", "int8", "uint8"}


def recipes(spec: TensorSpec, data: bytes) -> list[TensorSpec]:
    """Propose generated tensors like ``spec``, whose storage has ``data``, the simplest first.

    Shape, dtype, strides (unless elements overlap) and autograd state stay. Integer bounds come from the real
    values, so an index stays in range. For a constant tensor, its exact value is proposed first.
    """
    if not is_numeric(spec.dtype) or spec.layout != "strided" or spec.parts or spec.extra or spec.storage is None:
        return []
    values = strided(numbers(spec.dtype, data), spec.shape, spec.stride, spec.offset)
    if any(step == 0 and size > 1 for size, step in zip(spec.shape, spec.stride, strict=True)):
        spec = replace(spec, stride=contiguous(spec.shape))  # a generator cannot write one element for several
    found: list[TensorSpec] = []
    for init in _inits(spec, values):
        candidate = replace(spec, storage=None, init=init, offset=0)
        if candidate not in found:
            found.append(candidate)
    return found


def zeros_and_ones(spec: TensorSpec) -> list[TensorSpec]:
    """``spec`` with all elements 0, and with all elements 1."""
    if not is_numeric(spec.dtype):
        return []
    number = _Number(spec.dtype)
    return [replace(spec, storage=None, init=_full(number(value)), offset=0) for value in (0, 1)]


def _inits(spec: TensorSpec, values: Array) -> Iterator[Json]:
    if values.size == 0:
        yield _full(0.0 if spec.dtype in FLOATS else 0)
        return
    flat = values.reshape(-1)
    number = _Number(spec.dtype)
    if bool((flat == flat[0]).all()):
        yield _full(number(flat[0]))
    yield _full(number(0))
    yield _full(number(1))
    if spec.dtype == "bool":
        yield {"fn": "randint", "low": 0, "high": 2}
        return
    if spec.dtype in _ARANGE and not (spec.dtype in INTEGERS and spec.numel - 1 > _bounds(flat)[1]):
        yield {"fn": "arange"}
    if spec.dtype in FLOATS | COMPLEX:
        yield {"fn": "randn"}
        yield {"fn": "rand"}
    elif spec.dtype in INTEGERS:
        low, high = _bounds(flat)
        if high < 2**63 - 1:
            yield {"fn": "randint", "low": low, "high": high + 1}
    yield from (_full(number(v)) for v in _extremes(spec.dtype, flat))


class _Number:
    """Makes a tagged value of a number, of the kind of the tensor."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __call__(self, value: Any) -> Any:
        if self.dtype == "bool":
            return bool(value)
        if self.dtype in INTEGERS:
            return int(value)
        if self.dtype in COMPLEX:
            return {"complex": [_float(complex(value).real), _float(complex(value).imag)]}
        return _float(float(str(value)))  # the shortest text that rounds to it, not all its float64 digits


def _float(value: float) -> Any:
    if value != value:
        return {"float": "nan"}
    return {"float": "inf" if value > 0 else "-inf"} if value in (float("inf"), float("-inf")) else value


def _full(value: Any) -> Json:
    return {"fn": "full", "value": value}


def _bounds(flat: Array) -> tuple[int, int]:
    return int(flat.min()), int(flat.max())


def _extremes(dtype: str, flat: Array) -> list[Any]:
    """The values that a failure may need: NaN, the infinities, the largest and the smallest number."""
    import numpy as np

    if dtype == "bool":
        return []
    if dtype in COMPLEX:
        return [flat[np.abs(flat).argmax()]]
    special = [v for v in (float("nan"), float("inf"), float("-inf"))
               if flat.dtype.kind == "f" and (np.isnan(flat) if v != v else flat == v).any()]  # fmt: skip
    finite = flat[np.isfinite(flat)]
    return [*special, *([finite.max(), finite.min()] if finite.size else [])]
