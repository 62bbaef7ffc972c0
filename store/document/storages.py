"""The bytes of storages, piece by piece, so that the weights of a model are not in memory twice.

Storages are mappings of keys to bytes. Those that may be large are `StorageReader`: their bytes can be read in pieces,
and their size is known without that. `size` and `pieces` take any mapping.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from .case import Blobs

#: Bytes of a piece.
PIECE = 4 << 20
#: A part of a storage.
Piece = bytes | memoryview


class StorageReader(Mapping[str, bytes]):
    """Storages by key. An item is all bytes of a storage, in memory of its own."""

    @abstractmethod
    def size(self, key: str) -> int:
        """The number of bytes of a storage. Raises `KeyError`."""

    @abstractmethod
    def pieces(self, key: str) -> Iterator[Piece]:
        """The bytes of a storage in order. A piece is valid until the next one is asked for. Raises `KeyError`."""

    def file(self, key: str) -> Path | None:
        """A file with the bytes of a storage and nothing else, which can be mapped into memory. No process writes
        to it. None without such a file.
        """
        return None

    def __getitem__(self, key: str) -> bytes:
        return b"".join(self.pieces(key))

    def __contains__(self, key: object) -> bool:
        return any(key == known for known in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Joined(StorageReader):
    """The storages of several mappings. Of those with one key, the first counts."""

    def __init__(self, *parts: Blobs) -> None:
        self._parts = parts

    def size(self, key: str) -> int:
        return size(self._of(key), key)

    def pieces(self, key: str) -> Iterator[Piece]:
        return pieces(self._of(key), key)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key for part in self._parts for key in part))

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self._parts)

    def _of(self, key: str) -> Blobs:
        for part in self._parts:
            if key in part:
                return part
        raise KeyError(key)


def size(blobs: Blobs, key: str) -> int:
    """The number of bytes of a storage. Raises `KeyError`."""
    return blobs.size(key) if isinstance(blobs, StorageReader) else len(blobs[key])


def pieces(blobs: Blobs, key: str) -> Iterator[Piece]:
    """The bytes of a storage in order. Raises `KeyError`."""
    if isinstance(blobs, StorageReader):
        yield from blobs.pieces(key)
    else:
        view = memoryview(blobs[key])
        for begin in range(0, len(view), PIECE):
            yield view[begin : begin + PIECE]


def digest(parts: Iterable[Piece]) -> str:
    """The key of a storage with these bytes."""
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()


def read(path: Path) -> Iterator[Piece]:
    """The bytes of the file ``path``."""
    with path.open("rb") as stream:
        while part := stream.read(PIECE):
            yield part


def write(path: Path, parts: Iterable[Piece], seen: Callable[[Piece], object] = lambda part: None) -> int:
    """Write ``parts`` to the file ``path``. ``seen`` is called with each. Returns the number of bytes."""
    with path.open("wb") as stream:
        total = 0
        for part in parts:
            seen(part)
            total += stream.write(part)
        return total
