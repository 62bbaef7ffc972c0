"""A directory shared by the driver and its workers: storages by key, captured output, the workers' current directory.

A storage is a file named by the sha256 of its key. It is written once, under a temporary name first. Tensors reach a
worker through the page cache and not through the zygote, because a fork gets slower with every megabyte it copies.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ...backends.running.foreign_files import open_ordinary
from ...store.document.case import Blobs
from ...store.document.storages import PIECE, Piece, StorageReader, pieces
from ...store.temporary import prefix

#: Captured output beyond this many bytes is cut out of the middle.
OUTPUT_LIMIT = 1 << 16
_DIRECTORIES = ("blobs", "output", "work", "cache")


class Scratch(StorageReader):
    """The directory; as a mapping, the storages in it."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._keys: set[str] = set()

    @classmethod
    def create(cls) -> Scratch:
        """A new private directory; `remove` deletes it."""
        scratch = cls(tempfile.mkdtemp(prefix=prefix("fxminify-")))
        for name in _DIRECTORIES:
            (scratch.root / name).mkdir()
        return scratch

    def clear(self) -> None:
        """Delete all that is in it. No worker may use it meanwhile."""
        self._keys.clear()
        for folder in self.folders:  # themselves they stay: a confined process sees these and no others
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    def put(self, blobs: Blobs) -> None:
        """Write the storages that are not here yet. Safe from several threads and processes at once."""
        for key in blobs:
            if key not in self:
                self._write(key, pieces(blobs, key))
            self._keys.add(key)

    def write(self, key: str, data: bytes) -> None:
        """Write one storage, over an older one of the same key. A reader sees the old bytes or the new."""
        self._write(key, [data])

    def _write(self, key: str, parts: Iterable[Piece]) -> None:
        path = self._path(key)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        fresh.unlink(missing_ok=True)
        try:
            with fresh.open("xb") as file:  # never through a link that foreign code may have put there
                for part in parts:
                    file.write(part)
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        self._keys.add(key)

    def size(self, key: str) -> int:
        with self._opened(key) as file:
            return os.fstat(file.fileno()).st_size

    def pieces(self, key: str) -> Iterator[Piece]:
        with self._opened(key) as file:
            while part := file.read(PIECE):
                yield part

    def file(self, key: str) -> Path:
        return self._path(key)

    def _opened(self, key: str) -> BinaryIO:
        try:
            return open_ordinary(self._path(key))
        except FileNotFoundError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in self._keys or self._path(key).exists())

    def __iter__(self) -> Iterator[str]:
        """The keys this process has put; files written by others are found by key only."""
        return iter(sorted(self._keys))

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def folders(self) -> list[Path]:
        """The directories that workers write to."""
        return [self.root / name for name in _DIRECTORIES]

    @property
    def cache(self) -> Path:
        """Return the cache folder of compilers in confined workers."""
        return self.root / "cache"

    @property
    def work(self) -> Path:
        """The current directory of the workers. Files that a backend leaves behind land here."""
        return self.root / "work"

    def output(self, query: int, stream: str) -> Path:
        """Return the file that captures ``stream`` of ``query``."""
        return self.root / "output" / f"{query}.{stream}"

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def _path(self, key: str) -> Path:
        return self.root / "blobs" / hashlib.sha256(key.encode()).hexdigest()


def read_output(path: Path) -> str:
    """Captured output as text: undecodable bytes replaced, the middle of a long one cut out. Missing is empty."""
    try:
        with open_ordinary(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(OUTPUT_LIMIT if size <= OUTPUT_LIMIT else OUTPUT_LIMIT // 2)
            if size > OUTPUT_LIMIT:
                file.seek(size - OUTPUT_LIMIT // 2)
                data += b"\n[...]\n" + file.read(OUTPUT_LIMIT // 2)
    except FileNotFoundError:
        return ""
    return data.decode(errors="replace")
