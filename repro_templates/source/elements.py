"""The content of strided tensors: bytes as numbers, and the shortest source of a number.

numpy has most dtypes. bfloat16 and float8 dtypes are converted to float32, which represents each of their values
exactly. Other dtypes (packed and quantized ones) have no numbers here, see `is_numeric`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_NUMPY = {
    "bool": "?", "uint8": "<u1", "int8": "<i1", "uint16": "<u2", "int16": "<i2", "uint32": "<u4", "int32": "<i4",
    "uint64": "<u8", "int64": "<i8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8",
    "complex128": "<c16",
}  # fmt: skip
#: dtype -> (bits of the exponent, bits of the mantissa, bias, has infinities, negative zero is its only NaN)
_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, False, False),
    "float8_e4m3fnuz": (4, 3, 8, False, True),
    "float8_e5m2": (5, 2, 15, True, False),
    "float8_e5m2fnuz": (5, 2, 16, False, True),
}
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
COMPLEX = frozenset({"complex64", "complex128"})
INTEGERS = frozenset(name for name, code in _NUMPY.items() if code[-2:-1] in ("u", "i"))


def is_numeric(dtype: str) -> bool:
    return dtype in _NUMPY or dtype in _FLOAT8 or dtype in ("bfloat16", "float8_e8m0fnu")


def numbers(dtype: str, data: bytes) -> Array:
    """The elements of a storage as a one-dimensional array; bfloat16 and float8 as equal float32 numbers."""
    import numpy as np

    array: Array
    if dtype == "bool":
        array = np.frombuffer(data, dtype="u1") != 0
    elif dtype in _NUMPY:
        array = np.frombuffer(data, dtype=_NUMPY[dtype])
    elif dtype == "bfloat16":
        array = (np.frombuffer(data, dtype="<u2").astype("<u4") << 16).view("<f4")
    else:
        array = np.array(_float8(dtype), dtype="<f4")[np.frombuffer(data, dtype="u1")]
    return array


def raw(dtype: str, array: Array) -> bytes:
    """The bytes of a storage of these numbers, each rounded to ``dtype``. Raises `ValueError` for float8 and the like.

    A number that does not fit wraps or becomes infinite, as in numpy. A real dtype keeps the real part of a number.
    """
    import numpy as np

    if np.iscomplexobj(array) and dtype not in COMPLEX:
        array = array.real
    with np.errstate(all="ignore"):
        if dtype in _NUMPY:
            return array.astype(_NUMPY[dtype]).tobytes()
        if dtype != "bfloat16":
            raise ValueError(f"{dtype} has no numbers to round to")
        bits = np.ascontiguousarray(array.astype("<f4")).view("<u4").astype("u8")
    rounded = np.where(np.isnan(array), bits | 0x400000, bits + 0x7FFF + ((bits >> 16) & 1))
    return (rounded >> 16).astype("<u2").tobytes()


def strided(array: Array, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> Array:
    """The elements of a tensor, in its shape. Raises `ValueError` if it reaches outside of its storage."""
    import numpy as np

    if all(shape):
        reach = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        if offset < 0 or reach >= len(array) or any(step < 0 for step in stride):
            raise ValueError(f"a tensor of shape {shape} reaches outside its storage of {len(array)} elements")
    else:
        return np.empty(shape, dtype=array.dtype)
    steps = tuple(step * array.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(array[offset:], shape, steps, writeable=False)


def element(dtype: str, value: Any) -> str:
    """The shortest source of one element: ``1e+30``, ``-0.0``, ``inf``, ``True``, ``1+2j``."""
    if dtype == "bool":
        return repr(bool(value))
    if dtype in INTEGERS:
        return repr(int(value))
    if dtype in COMPLEX:
        real, imag = (_shortest("float32" if dtype == "complex64" else "float64", p) for p in (value.real, value.imag))
        plain = math.isfinite(value.real) and math.isfinite(value.imag) and "-0.0" not in (real, imag)
        return f"{real}{'' if imag[0] == '-' else '+'}{imag}j" if plain else f"complex({real}, {imag})"
    return _shortest(dtype, value)


def _shortest(dtype: str, value: Any) -> str:
    number = float(value)
    if not math.isfinite(number) or dtype == "float64" or dtype.startswith("float8"):
        return repr(number)
    for digits in range(1, 10):
        candidate = float(f"{number:.{digits}g}")
        if _rounded(dtype, candidate) == number and math.copysign(1, candidate) == math.copysign(1, number):
            return repr(candidate)
    return repr(number)


def _rounded(dtype: str, number: float) -> float:
    """The element of a tensor of ``dtype`` that torch makes of ``number``. It rounds narrow floats via float32."""
    import numpy as np

    with np.errstate(over="ignore"):
        single = np.float32(number)
        if dtype == "float32":
            return float(single)
        if dtype == "float16":
            return float(np.float16(single))
    bits = int(single.view("u4"))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(np.array(bits, dtype="u4").view("f4"))


@cache
def _float8(dtype: str) -> tuple[float, ...]:
    """The values of the 256 bytes of a float8 dtype."""
    if dtype == "float8_e8m0fnu":
        return (*(2.0 ** (code - 127) for code in range(255)), math.nan)
    exponent_bits, mantissa_bits, bias, infinities, unsigned_zero = _FLOAT8[dtype]
    top = (1 << exponent_bits) - 1
    values = []
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        fraction = mantissa / (1 << mantissa_bits)
        value = sign * (fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias))
        if unsigned_zero:
            value = math.nan if code == 0x80 else value
        elif exponent == top and infinities:
            value = math.nan if mantissa else sign * math.inf
        elif exponent == top and mantissa == (1 << mantissa_bits) - 1:
            value = math.nan
        values.append(value)
    return tuple(values)
