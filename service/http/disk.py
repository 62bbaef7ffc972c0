"""The space that is left for an index and for uploads: enough, low, or so little that nothing is written any more."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

#: Seconds between two looks, and for which nothing is written after the disk was full.
_LOOK, _PAUSE = 2.0, 15.0
_GIB = 1 << 30


class DiskState(StrEnum):
    OK = "ok"
    LOW = "low"
    FULL = "full"


class Disk:
    """The disks of some ``folders``. Below ``low`` free bytes it is low, below ``least`` full."""

    def __init__(self, folders: Iterable[Path], low: int, least: int) -> None:
        self._folders = tuple(folders)
        self._low, self._least = max(low, least), least
        self._lock = threading.Lock()
        self._looked = self._full_until = float("-inf")
        self._free = 0

    def state(self) -> DiskState:
        with self._lock:
            clock = time.monotonic()
            if clock >= self._looked + _LOOK:
                self._free, self._looked = min(map(_free, self._folders)), clock
            if self._free < self._least or clock < self._full_until:
                return DiskState.FULL
            return DiskState.LOW if self._free < self._low else DiskState.OK

    def was_full(self) -> None:
        """Record that a write failed because no space was left. A database server reports it in no other way."""
        with self._lock:
            self._full_until = time.monotonic() + _PAUSE

    def sentence(self) -> str:
        """Describe what to do about missing space. Empty if there is enough."""
        state = self.state()
        left = f"{self._free / _GIB:.1f} GiB"
        if state is DiskState.FULL:
            return f"no space is left for captures ({left}): nothing is taken until there is more; senders keep theirs"
        return f"little space is left for captures ({left}): make some soon" if state is DiskState.LOW else ""


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free
