"""The index: every captured failure is a row of one database.

``from fxminify.store.index import Index`` is all that a caller needs. The names below are imported when they are
first used: the modules behind them import SQLAlchemy, which takes longer than the rest of fxminify together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .index import (
        CaptureInfo,
        Index,
        ReductionInfo,
        ReproInfo,
        Retest,
        RetestResult,
        State,
        StepInfo,
        StoredVerdict,
        StoreError,
    )

__all__ = [
    "CaptureInfo", "Index", "ReductionInfo", "ReproInfo", "Retest", "RetestResult", "State", "StepInfo", "StoreError",
    "StoredVerdict",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import index

    return getattr(index, name)
