"""Measure a mismatch that `torch.testing.assert_close` found in a script: which values differ, and by how much.

The numbers come from the run itself: the largest absolute difference of the compiled result from eager's, the place
of it, and both values there.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.testing._comparison import get_tolerances
from torch.utils._pytree import tree_leaves

#: The largest results that are measured, in elements, and results of which all values are given.
_MOST_ELEMENTS, _LISTED_ELEMENTS = 1 << 24, 8

#: One result that differs: see `measure`.
Row = dict[str, Any]


def of_traceback(trace: TracebackType | None) -> list[Row]:
    """`measure` for the call of `assert_close` that raised. Empty where there was none."""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code is torch.testing.assert_close.__code__:
            given = frame.f_locals
            options = {name: given.get(name) for name in ("rtol", "atol")}
            return measure(given["actual"], given["expected"], equal_nan=bool(given.get("equal_nan")), **options)
        trace = trace.tb_next
    return []


def measure(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False
) -> list[Row]:
    """The results with other values, as rows.

    Each has its ``item``, its position among all results; ``elements`` that differ ``of`` all; ``error``, the largest
    absolute difference; ``at``, the index of that element; ``actual`` and ``expected``, its values as texts; and for
    small results all values, ``all_actual`` and ``all_expected``.
    """
    rows = []
    for item, (a, e) in enumerate(zip(tree_leaves(actual), tree_leaves(expected), strict=False)):
        row = _row(_tensor(a), _tensor(e), rtol, atol, equal_nan)
        if row is not None:
            rows.append({"item": item, **row})
    return rows


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, bool | int | float | complex):
        return torch.tensor(value)
    if not isinstance(value, torch.Tensor) or value.device.type == "meta" or value.numel() > _MOST_ELEMENTS:
        return None
    value = value.detach().cpu()
    dense: torch.Tensor = value.dequantize() if value.is_quantized else value
    return dense if dense.layout is torch.strided else dense.to_dense()


def _row(
    a: torch.Tensor | None, e: torch.Tensor | None, rtol: float | None, atol: float | None, equal_nan: bool
) -> Row | None:
    if a is None or e is None or a.shape != e.shape:
        return None
    relative, absolute = get_tolerances(a, e, rtol=rtol, atol=atol)
    dtype = torch.promote_types(a.dtype, e.dtype)
    dtype = dtype if dtype.is_complex or dtype.is_floating_point else torch.int64
    differs = ~torch.isclose(a.to(dtype), e.to(dtype), rtol=relative, atol=absolute, equal_nan=equal_nan)
    if not bool(differs.any()):
        return None
    wide = torch.complex128 if dtype.is_complex else torch.float64
    distance = (a.to(wide) - e.to(wide)).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    worst = int(torch.where(differs, distance, -1.0).argmax())
    at = [int(i) for i in torch.unravel_index(torch.tensor(worst), a.shape)] if a.dim() else []
    row: Row = {
        "elements": int(differs.sum()), "of": a.numel(), "error": repr(float(distance.flatten()[worst])), "at": at,
        "actual": _text(a.flatten()[worst]), "expected": _text(e.flatten()[worst]),
    }  # fmt: skip
    if 1 < a.numel() <= _LISTED_ELEMENTS:
        row |= {"all_actual": _texts(a), "all_expected": _texts(e)}
    return row


def _texts(t: torch.Tensor) -> str:
    return f"[{', '.join(_text(value) for value in t.flatten())}]"


def _text(value: torch.Tensor) -> str:
    number = value.item()
    return f"{number:.6g}" if isinstance(number, float | complex) else str(number)
