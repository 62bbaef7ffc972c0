"""Element types, as torch, NumPy and ONNX name them. An ONNX number is that of ``onnx.TensorProto.DataType``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

ONNX: dict[torch.dtype, int] = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7, torch.bool: 9,
    torch.float16: 10, torch.float64: 11, torch.bfloat16: 16,
}  # fmt: skip

#: bfloat16 has no NumPy type, so it cannot travel in a batch of OrtValues.
NUMPY: dict[torch.dtype, Any] = {
    torch.float32: np.float32, torch.uint8: np.uint8, torch.int8: np.int8, torch.int16: np.int16,
    torch.int32: np.int32, torch.int64: np.int64, torch.bool: np.bool_, torch.float16: np.float16,
    torch.float64: np.float64,
}  # fmt: skip


def of_value(value: Any) -> torch.dtype:
    """The element type of what an FX node holds: a tensor, or a number that becomes a tensor without dimensions."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    return torch.int64 if isinstance(value, int | torch.SymInt) else torch.float64
