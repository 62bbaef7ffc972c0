"""The index: every captured failure is a row of one database.

``from fxminify.store.index import Index`` is all that a caller needs. The names that `fxminify.store.index.index`
exports are imported when they are first used: its modules import SQLAlchemy, which takes longer than the rest of
fxminify together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .index import *  # noqa: F403


def __getattr__(name: str) -> object:
    if name.startswith("_") or name not in (index := import_module(".index", __name__)).__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(index, name)
