"""The captures of an index that are new, or were seen again, since a `Changes` was made."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from ..errors import StoreError
from .index import CaptureInfo, Index

_T = TypeVar("_T")

#: How far the clocks of processes that write to one server may be apart.
SKEW = timedelta(hours=1)


class Changes:
    """``place`` is a path or a database URL. The index need not exist yet."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._since = (datetime.now(UTC) - SKEW).isoformat(timespec="seconds")
        self._before = self._seen()

    def ids(self) -> list[int]:
        """The ids of captures that are new or were seen again, sorted."""
        return [id for id, times in self._seen().items() if times != self._before.get(id)]

    def rows(self) -> list[CaptureInfo]:
        """The captures that are new or were seen again, by id."""
        ids = self.ids()
        return self._read(lambda index: index.captures.find(ids), []) if ids else []

    def is_new(self, row: CaptureInfo) -> bool:
        """Whether a capture of `rows` was first met since."""
        return row.created >= self._since and row.id not in self._before

    def _seen(self) -> dict[int, int]:
        return self._read(lambda index: index.captures.seen_since(self._since), {})

    def _read(self, read: Callable[[Index], _T], otherwise: _T) -> _T:
        if "://" not in self._place and not os.path.exists(self._place):
            return otherwise
        try:
            with Index.open(self._place, readonly=True) as index:
                return read(index)
        except StoreError:  # an empty file, or a server without tables: nothing was captured
            return otherwise
