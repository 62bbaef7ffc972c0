"""The captures of an index that are new, or were seen again, since a `Changes` was made."""

from __future__ import annotations

import os

from ..errors import StoreError
from .index import CaptureInfo, Index


class Changes:
    """``place`` is a path or a database URL. The index need not exist yet."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._before = {row.id: row.occurrences for row in self._captures()}

    def rows(self) -> list[CaptureInfo]:
        """The captures that are new or were seen again, by id."""
        return [row for row in self._captures() if row.occurrences != self._before.get(row.id)]

    def is_new(self, row: CaptureInfo) -> bool:
        return row.id not in self._before

    def _captures(self) -> list[CaptureInfo]:
        if "://" not in self._place and not os.path.exists(self._place):
            return []
        try:
            with Index.open(self._place, readonly=True) as index:
                return index.captures.find()
        except StoreError:  # an empty file, or a server without tables: nothing was captured
            return []
