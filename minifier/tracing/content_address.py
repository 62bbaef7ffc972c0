"""Content addresses: the sha256 of its bytes names each storage of a finished case, as in the index.

During a reduction the key of a traced value is ``<node>@<version>``, so that a candidate has the same keys in every run
(`fxminify.minifier.candidate.trace`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from ...store.document import storages
from ...store.document.case import Blobs, Case
from ...store.document.storages import Piece, StorageReader

#: Zero bytes at the end distinguish a storage from another one with equal content.
_PADDING = 64


def content_addressed(case: Case, blobs: Blobs) -> tuple[Case, StorageReader]:
    """``case`` with every storage named by the sha256 of its bytes, and these storages, which are still read from
    ``blobs``. Unused ones are left out.

    Two storages with equal bytes stay two storages, see ``docs/format.md``.
    """
    addressed = _Addressed(blobs)
    names = {key: addressed.add(key) for key in sorted(case.storages)}
    tensors = tuple(t if t.storage is None else replace(t, storage=names[t.storage]) for t in case.tensors)
    return replace(case, tensors=tensors), addressed


class _Addressed(StorageReader):
    """Storages under other names, some with zero bytes at the end."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        #: The former name of each storage, and the number of zero bytes.
        self._former: dict[str, tuple[str, int]] = {}

    def add(self, key: str) -> str:
        """Name a storage. Returns its name."""
        padding = 0
        while (name := storages.digest(self._padded(key, padding))) in self._former:
            padding += _PADDING  # with one key the two storages would become one
        self._former[name] = key, padding
        return name

    def size(self, key: str) -> int:
        former, padding = self._former[key]
        return storages.size(self._blobs, former) + padding

    def pieces(self, key: str) -> Iterator[Piece]:
        return self._padded(*self._former[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._former)

    def __contains__(self, key: object) -> bool:
        return key in self._former

    def _padded(self, key: str, padding: int) -> Iterator[Piece]:
        return chain(storages.pieces(self._blobs, key), [bytes(padding)] if padding else [])
