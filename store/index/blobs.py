"""Storages by content: the key is the SHA-256 of the bytes, so equal storages are stored once.

Small storages are in the ``blobs`` table. Large ones of a SQLite file are files, ``<db>.blobs/<2 hex>/<digest>``. A
file is written under another name and then renamed, so a file with its final name is complete. It is written before the
row that names it and removed after that row; a crash leaves at worst a file without a row. Large ones of a server are
objects where ``FXMINIFY_BLOBS`` says (`fxminify.store.index.buckets`), and without it rows as well. Reading checks the
length before decompressing and the digest after it.
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from .. import outputs
from ..document import storages
from ..document.storages import PIECE, Piece, StorageReader
from ..errors import ForeignValue, StoreError
from .buckets import bucket
from .database import Database, insert
from .documents import digest, inflate
from .sqlite import MAX_VALUE
from .tables import Base, BlobRow, DocumentBlobRow

#: Storages of more bytes are files beside the index, or objects in a bucket.
INLINE_LIMIT, BUCKET_LIMIT = 8 << 20, 64 << 10
#: Storages of more bytes are not compressed, so no compressed one may expand to more.
EXPAND_LIMIT = 1 << 30

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_SAMPLE = 64 << 10
#: So many bytes are few.
_FEW = 64 << 10
_BATCH = 500
_WORTHWHILE = 0.9


@dataclass(frozen=True, slots=True)
class Packed:
    """A storage that is ready to be inserted. ``data`` is None if it is a file, or an object in a bucket: ``place``."""

    digest: str
    size: int
    codec: str
    stored: int
    data: bytes | None
    place: str | None = None


class BlobStore:
    """The storages of one index."""

    def __init__(self, database: Database, inline_limit: int = INLINE_LIMIT) -> None:
        self._database = database
        self._inline_limit = min(inline_limit, MAX_VALUE)
        self._folder = None if database.path is None else Path(f"{database.path}.blobs")
        #: Where new large storages go on a server.
        self._bucket = os.environ.get("FXMINIFY_BLOBS", "") if database.path is None else ""

    def stage(self, keys: Iterable[str], blobs: Mapping[str, bytes], *, quick: bool = False) -> list[Packed]:
        """Prepare storages that are not stored yet, and write large ones to files. Call it before the transaction.

        With ``quick``, few bytes may be prepared although they are stored: that is sooner done than asked for.
        """
        wanted = sorted(keys)
        if wanted and not (quick and are_few(wanted, blobs)):
            with self._database.reading() as session:
                there = _stored(session, wanted)
            wanted = [key for key in wanted if key not in there]
        return [self._pack(key, blobs) for key in wanted]

    def insert(self, session: Session, wanted: Mapping[str, Mapping[str, bytes]], staged: Iterable[Packed]) -> None:
        """Store what is ``wanted``, each key with the storages that it is among. Some of them were staged. In a file
        ``session`` holds the write lock, so `sweep` waits."""
        ready = {item.digest: item for item in staged}
        there = _stored(session, wanted)
        rows = []
        for key in sorted(wanted.keys() - there):
            item = ready.get(key)
            if item is None or (item.data is None and item.place is None and not self._file(key).exists()):
                item = self._pack(key, wanted[key])  # removed by another process since it was staged
            rows.append({c.key: getattr(item, c.key) for c in BlobRow.__table__.columns})
        insert_data(session, BlobRow, rows)

    def forget(self, session: Session, digests: Iterable[str]) -> list[str]:
        """Delete the rows of those ``digests`` that no document needs. Pass the result to `sweep` after the commit."""
        gone = []
        for name in digests:
            if not session.scalar(select(exists().where(DocumentBlobRow.blob == name))):
                session.execute(delete(BlobRow).where(BlobRow.digest == name))
                gone.append(name)
        return gone

    def sweep(self, digests: Iterable[str]) -> None:
        """Remove the files of those ``digests`` that have no row. A name that is no digest has no file."""
        named = [name for name in digests if _DIGEST.match(str(name))] if self._folder is not None else []
        files = [(name, self._file(name)) for name in named]
        files = [(name, file) for name, file in files if file.exists()]
        if not files:
            return
        with self._database.writing() as session:
            for name, file in files:
                if not _stored(session, [name]):
                    file.unlink(missing_ok=True)

    def orphans(self, before: float) -> list[str]:
        """Storages that no case has: rows, and files beside the index that were written before that Unix time and have
        no row. Objects in buckets are not looked for."""
        needed = exists().where(DocumentBlobRow.blob == BlobRow.digest)
        with self._database.reading() as session:
            rows = list(session.scalars(select(BlobRow.digest).where(~needed)))
            return rows + [name for name in self._files_before(before) if not _stored(session, [name])]

    def clean(self, before: float) -> int:
        """Remove `orphans`. Returns how many those were."""
        names = self.orphans(before)
        for begin in range(0, len(names), _BATCH):
            batch = names[begin : begin + _BATCH]
            self._database.write(lambda session: self.forget(session, batch))  # noqa: B023
            self.sweep(batch)
        return len(names)

    def _files_before(self, before: float) -> list[str]:
        found = [] if self._folder is None else sorted(self._folder.glob("??/*"))
        files = [file for file in found if _DIGEST.match(file.name) and not file.is_symlink()]
        return [file.name for file in files if file.stat().st_mtime < before]

    def read(self, key: str) -> bytes:
        """The bytes of one storage. Raises `StoreError` if they are missing or do not match the key."""
        row = self._row(key)
        with self._database.explained():
            data = row.data if row.data is not None else self._read_large(row)
            if len(data) != row.stored:
                raise ForeignValue(f"storage {key[:12]} is not as long as declared")
            if row.codec == "zlib" and row.size <= EXPAND_LIMIT:
                data = inflate(data, row.size)
            elif row.codec != "raw":
                raise ForeignValue(f"storage {key[:12]} in an unknown encoding")
            if len(data) != row.size or digest(data) != key:
                raise ForeignValue(f"storage {key[:12]} does not match its digest")
        return data

    def size(self, key: str) -> int:
        """The number of bytes of one storage, as its row says. Raises `StoreError` if it is missing."""
        return self._row(key).size

    def pieces(self, key: str) -> Iterator[Piece]:
        """The bytes of one storage, piece by piece. Raises `StoreError` as `read` does, also after the last piece."""
        row = self._row(key)
        if row.data is not None or row.place is not None or row.codec != "raw":
            yield self.read(key)
            return
        made = hashlib.sha256()
        with self._database.explained():
            with self._opened(key, row.stored) as stream:
                while part := stream.read(PIECE):
                    made.update(part)
                    yield part
            if row.size != row.stored or made.hexdigest() != key:
                raise ForeignValue(f"storage {key[:12]} does not match its digest")

    def view(self, keys: Iterable[str]) -> BlobView:
        """The storages by key, each read and verified when it is asked for."""
        return BlobView(self, keys)

    def _pack(self, key: str, blobs: Mapping[str, bytes]) -> Packed:
        if key not in blobs:
            raise ValueError(f"the case needs storage {key[:12]}, which did not come with it")
        if self._folder is not None and storages.size(blobs, key) > self._inline_limit:
            with self._database.explained():
                return self._write_file(key, blobs)
        raw = bytes(blobs[key])
        if digest(raw) != key:
            raise _wrongly_named(key)
        codec, data = _compress(raw)
        if not self._bucket or len(data) <= BUCKET_LIMIT:
            return Packed(key, len(raw), codec, len(data), data)
        place = bucket(self._bucket)
        place.write(key, data)
        return Packed(key, len(raw), codec, len(data), None, place.url)

    def _write_file(self, key: str, blobs: Mapping[str, bytes]) -> Packed:
        """Write a large storage to a file in pieces, or return it for the table if it becomes small."""
        file, size = self._file(key), storages.size(blobs, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        with outputs.draft(file) as temporary:
            codec, stored = "zlib", size
            if _worth_a_try(bytes(next(storages.pieces(blobs, key))[:_SAMPLE]), size):
                stored = storages.write(temporary, _compressed(_checked(key, blobs)))
            if stored <= self._inline_limit:
                return Packed(key, size, codec, stored, temporary.read_bytes())
            if stored >= _WORTHWHILE * size:
                codec, stored = "raw", storages.write(temporary, _checked(key, blobs))
            os.replace(temporary, file)
        return Packed(key, size, codec, stored, None)

    def _file(self, name: str) -> Path:
        if self._folder is None or not _DIGEST.match(name):
            raise ForeignValue(f"a storage named {name[:80]!r}")
        return self._folder / name[:2] / name

    def _row(self, key: str) -> BlobRow:
        with self._database.reading() as session:
            row = session.get(BlobRow, key)
        if row is None:
            raise StoreError(f"{self._database.name} has no storage {key[:12]}: capture the failure again")
        return row

    def _read_large(self, row: BlobRow) -> bytes:
        if row.place is None:
            with self._opened(row.digest, row.stored) as stream:
                return stream.read(row.stored)
        if self._folder is not None:  # a file may come from anyone, who shall not say what is asked over the network
            raise ForeignValue(f"storage {row.digest[:12]} at an address")
        return bucket(row.place).read(row.digest, row.stored)

    def _opened(self, key: str, size: int) -> BinaryIO:
        """The file of a storage, which has ``size`` bytes."""
        file = self._file(key)
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise ForeignValue(f"storage {key[:12]} as something else than a file")
        try:
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            name = self._database.name
            raise StoreError(
                f"{name} keeps large tensors in {name}.blobs, and {key[:12]} is not there: copy that directory as well"
            ) from None
        if os.fstat(handle).st_size != size:
            os.close(handle)
            raise ForeignValue(f"storage {key[:12]} is not as long as declared")
        return os.fdopen(handle, "rb")


class BlobView(StorageReader):
    """Storages of an index, each read when it is asked for."""

    def __init__(self, store: BlobStore, keys: Iterable[str]) -> None:
        self._store = store
        self._keys = dict.fromkeys(keys)

    def size(self, key: str) -> int:
        return self._store.size(self._known(key))

    def pieces(self, key: str) -> Iterator[Piece]:
        return self._store.pieces(self._known(key))

    def __getitem__(self, key: str) -> bytes:
        return self._store.read(self._known(key))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def _known(self, key: str) -> str:
        if key not in self._keys:
            raise KeyError(key)
        return key


def insert_data(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows with ``data`` whose keys are not there yet, small ones together."""
    large = [row for row in rows if row["data"] is not None and len(row["data"]) > _FEW]
    insert(session, table, [row for row in rows if row not in large])
    for row in large:
        insert(session, table, [row])


def _stored(session: Session, names: Collection[str]) -> set[str]:
    """Return the names among ``names`` of storages that have a row."""
    return set(session.scalars(select(BlobRow.digest).where(BlobRow.digest.in_(list(names))))) if names else set()


def are_few(keys: Iterable[str], blobs: Mapping[str, bytes]) -> bool:
    """Whether these storages have few bytes in all."""
    left = _FEW
    for key in keys:
        left -= storages.size(blobs, key) if key in blobs else 0
        if left < 0:
            return False
    return True


def _compress(raw: bytes) -> tuple[str, bytes]:
    """``data`` compressed if a sample of it becomes smaller. Weights rarely do, masks and zeros do."""
    if _worth_a_try(raw[:_SAMPLE], len(raw)):
        data = zlib.compress(raw, 1)
        if len(data) < _WORTHWHILE * len(raw):
            return "zlib", data
    return "raw", raw


def _checked(key: str, blobs: Mapping[str, bytes]) -> Iterator[Piece]:
    """The bytes of a storage. Raises `ValueError` after them if they are not those that its key names."""
    made = hashlib.sha256()
    for part in storages.pieces(blobs, key):
        made.update(part)
        yield part
    if made.hexdigest() != key:
        raise _wrongly_named(key)


def _wrongly_named(key: str) -> ValueError:
    return ValueError(f"storage {key[:12]} is not named by the sha256 of its bytes")


def _compressed(parts: Iterable[Piece]) -> Iterator[bytes]:
    packer = zlib.compressobj(1)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def _worth_a_try(sample: bytes, size: int) -> bool:
    return size <= EXPAND_LIMIT and len(zlib.compress(sample, 1)) < _WORTHWHILE * len(sample)
