"""Storages on disk, so that the values that `fxminify.reduce` records do not use up the memory.

They are in one unlinked temporary file, which is deleted with the object or at the end of the process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping


class Spill(Mapping[str, bytes]):
    """Storages by key, in a file under ``TMPDIR``. Each read returns a new copy."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="fxminify-", buffering=0)  # noqa: SIM115  the file stays open as long as this object
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0

    def put(self, blobs: Mapping[str, bytes]) -> None:
        """Store those storages that are not stored yet."""
        for key, data in blobs.items():
            if key not in self._places:
                self.write(key, data)

    def write(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key`` and replace earlier data. Raises `OSError` if the disk is full."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.pwrite(self._file.fileno(), rest, self._end + len(data) - len(rest)) :]
        self._places[key] = self._end, len(data)
        self._end += len(data)

    def __getitem__(self, key: str) -> bytes:
        start, length = self._places[key]
        parts = []
        while length:  # one read returns two gigabytes at most
            parts.append(os.pread(self._file.fileno(), length, start))
            start, length = start + len(parts[-1]), length - len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
