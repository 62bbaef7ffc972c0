"""Tolerances by dtype: ``float32=1e-4,bfloat16=2e-2``.

``T`` for a dtype allows a compiled value of it to differ by ``T * (1 + |value|)``: it is the relative and the absolute
tolerance of `torch.testing.assert_close`. Other dtypes keep the tolerances of `assert_close`. Integers and booleans are
exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex128", "complex64", "complex32", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz",
)  # fmt: skip
GRAMMAR = f"DTYPE=T with a comma between them (float32=1e-4,bfloat16=2e-2), DTYPE one of {', '.join(DTYPES)}"


def parse(asked: str | Mapping[str, float]) -> dict[str, float]:
    """Tolerance by name of dtype; of a mapping the same, checked. Raises `ValueError` that gives the grammar."""
    pairs: Iterable[tuple[str, object]]
    if isinstance(asked, str):
        pairs = [(t.partition("=")[0], t.partition("=")[2]) for t in asked.split(",")] if asked.strip() else []
    else:
        pairs = asked.items()
    out: dict[str, float] = {}
    for written, text in pairs:
        name = written.strip()
        try:
            value = float(str(text))
        except (TypeError, ValueError):
            value = math.nan
        if name not in DTYPES or name in out or not is_tolerance(value):
            raise ValueError(f"{asked!r} gives no tolerances: write {GRAMMAR}; T is a number of 0 or more")
        out[name] = value
    return out


def is_tolerance(value: object) -> bool:
    """Whether it is a finite float of 0 or more."""
    return type(value) is float and math.isfinite(value) and value >= 0
