"""Measure a mismatch that `torch.testing.assert_close` found in a script: which values differ, and by how much.

The numbers come from the run itself: the largest absolute difference of the compiled result from eager's, the place
of it, and some values of both with all their digits.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch.testing._comparison import get_tolerances
from torch.utils._pytree import tree_leaves

#: The largest results that are measured, in elements.
_MOST_ELEMENTS = 1 << 24
#: Values of a result that are given: all of a small result, those that differ most of a larger one.
MOST_VALUES = 8
#: The classes of numpy whose text has as many digits as the dtype needs. Shorter dtypes are shown as float32.
_SHORTEST = {torch.float16: np.float16, torch.float64: np.float64, torch.complex128: np.complex128}

#: One result that differs: see `measure`.
Row = dict[str, Any]


def of_traceback(trace: TracebackType | None) -> list[Row]:
    """`measure` for the call of `assert_close` that raised. Empty where there was none."""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code is torch.testing.assert_close.__code__:
            given = frame.f_locals
            options: dict[str, Any] = {name: given.get(name) for name in ("rtol", "atol", "equal_nan", "check_dtype")}
            return measure(given["actual"], given["expected"], **options)
        trace = trace.tb_next
    return []


def measure(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = False,
) -> list[Row]:
    """The results that differ, as rows.

    Each has its ``item``, its position among all results, and ``of``, the number of its elements. A row of tensors has
    the ``dtype`` and the ``shape`` of the actual result, and ``expected_dtype`` and ``expected_shape``. Where values
    differ, it has ``elements``, how many; ``error``, the largest absolute difference; ``at``, the index of that
    element; ``actual`` and ``expected``, its values as texts; and ``values``, at most `MOST_VALUES` elements with all
    their digits.
    """
    rows = []
    for item, (a, e) in enumerate(zip(tree_leaves(actual), tree_leaves(expected), strict=False)):
        form = {}
        if isinstance(a, torch.Tensor) and isinstance(e, torch.Tensor):
            form = {"dtype": _name(a), "expected_dtype": _name(e), "shape": [*a.shape], "expected_shape": [*e.shape]}
        row = _row(_tensor(a), _tensor(e), rtol, atol, bool(equal_nan))
        has_form = form and ((check_dtype and a.dtype != e.dtype) or a.shape != e.shape)
        if row is not None or has_form:
            rows.append({"item": item, **form, **(row or {"of": a.numel()})})
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
    flat, other = a.flatten(), e.flatten()
    if a.numel() <= MOST_VALUES:
        places = [*range(a.numel())]
    else:
        places = torch.where(differs, distance, -1.0).flatten().topk(MOST_VALUES).indices.tolist()
        places = sorted(place for place in places if bool(differs.flatten()[place]))
    return {
        "elements": int(differs.sum()), "of": a.numel(), "error": repr(float(distance.flatten()[worst])),
        "at": _index(worst, a), "actual": _text(flat[worst]), "expected": _text(other[worst]),
        "values": [{"at": _index(i, a), "actual": _exact(flat[i]), "expected": _exact(other[i])} for i in places],
    }  # fmt: skip


def _name(of: torch.Tensor) -> str:
    return str(of.dtype).removeprefix("torch.")


def _index(place: int, of: torch.Tensor) -> list[int]:
    """The index of the element at a place of the flattened tensor."""
    return [int(i) for i in torch.unravel_index(torch.tensor(place), of.shape)] if of.dim() else []


def _text(value: torch.Tensor) -> str:
    number = value.item()
    return f"{number:.6g}" if isinstance(number, float | complex) else str(number)


def _exact(value: torch.Tensor) -> str:
    """The shortest text from which the value can be read back."""
    number = value.item()
    if not isinstance(number, float | complex):
        return str(number)
    usual = np.complex64 if isinstance(number, complex) else np.float32
    return str(_SHORTEST.get(value.dtype, usual)(number))
