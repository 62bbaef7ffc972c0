"""Whether another failure is the same bug in another dtype."""

from __future__ import annotations

import re

#: The names of dtypes in the messages of compilers: torch, C++, LLVM and MLIR, ONNX.
_DTYPE = re.compile(
    r"(?<![A-Za-z0-9])(?:torch\.)?(?:"
    r"b?float(?:8_?\w{0,8}|16|32|64)?|double|half|bf16|[fiu](?:8|16|32|64)|s?u?int(?:8|16|32|64)?(?:_t)?|s[iu](?:8|16|32|64)|"
    r"long|short|char|byte|bool|complex(?:64|128|32|float|double|half)?|cfloat|cdouble"
    r")(?=Tensor|Type|Impl|[^A-Za-z0-9]|$)",
    re.IGNORECASE,
)


def is_same_but_for_dtypes(one: str, other: str) -> bool:
    """True if two headlines of failures differ in the names of dtypes at most."""
    return bool(one) and _masked(one) == _masked(other)


def _masked(headline: str) -> str:
    return _DTYPE.sub("<dtype>", headline)
