"""Cases and their storages in an index: each is stored once, and deleted with the last row that needs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from ..document.case import Blobs, Case
from ..document.decode import InvalidDocument, check_storage, validate
from ..errors import ForeignValue, StoreError
from .blobs import BlobStore, Packed, are_few, insert_data
from .database import Database, insert
from .documents import pack, unpack
from .tables import BlobRow, CaptureRow, DocumentBlobRow, DocumentRow, ReductionRow, ReproRow, StepRow

#: The number of cases in the cache: the case of a capture, and its smallest case.
MOST_READ = 2
#: A graph with more nodes counts as large.
_LARGE_GRAPH_NODES = 200


def is_large(case: Case, blobs: Blobs) -> bool:
    """Whether to pack it takes longer than to ask the index for it."""
    return len(case.graph.nodes) > _LARGE_GRAPH_NODES or not are_few(case.storages, blobs)


class StagedCase:
    """A packed case whose large storages are written. `CaseStore.insert` stores it in a transaction."""

    def __init__(self, case: Case, blobs: Blobs, store: BlobStore) -> None:
        self.key, size, data = pack(case)
        self.row = {"digest": self.key, "size": size, "data": data}
        self.storages, self.blobs = sorted(case.storages), blobs
        self.staged: list[Packed] = store.stage(case.storages, blobs, quick=True)


class CaseStore:
    """The cases of one index."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs
        #: What was read last, by the digests of the documents: a verb asks for the same cases several times.
        self._read: dict[str, Case] = {}

    @contextmanager
    def staged(self, case: Case, blobs: Blobs) -> Iterator[StagedCase]:
        """Prepare ``case`` before a transaction. If the block raises, its files are removed.

        Raises `ValueError` for a case that contradicts its ``blobs`` or is too large.
        """
        ready = StagedCase(case, blobs, self._blobs)
        try:
            yield ready
        except BaseException:
            self._discard(ready)
            raise

    def insert(self, session: Session, staged: Sequence[StagedCase]) -> None:
        """Store the documents and the storages that are not stored yet."""
        ready = {case.key: case for case in sorted(staged, key=lambda case: case.key)}
        if not ready:
            return
        there = set(session.scalars(select(DocumentRow.digest).where(DocumentRow.digest.in_(list(ready)))))
        new = [case for key, case in ready.items() if key not in there]
        wanted = {storage: case.blobs for case in new for storage in case.storages}
        self._blobs.insert(session, wanted, [item for case in new for item in case.staged])
        insert_data(session, DocumentRow, [case.row for case in new])
        links = [{"document": case.key, "blob": blob} for case in new for blob in case.storages]
        insert(session, DocumentBlobRow, links)

    def load(self, key: str, what: str) -> Case:
        """The case of the document ``key``, validated; ``what`` names it in errors. Raises `StoreError`."""
        with self._database.reading() as session:
            row = session.get(DocumentRow, key)
            if row is None:
                raise ForeignValue(f"{what} without its document")
            if (known := self._read.get(key)) is not None:
                return known
            doc = unpack(row.digest, row.size, row.data)
            needed = select(BlobRow.digest, BlobRow.size).join(DocumentBlobRow, DocumentBlobRow.blob == BlobRow.digest)
            of_it = session.execute(needed.where(DocumentBlobRow.document == key))
            sizes: dict[Any, Any] = {row.digest: row.size for row in of_it}
        try:
            case = validate(doc)
            for spec in case.tensors:
                if type(size := sizes.get(spec.storage)) is int:
                    check_storage(spec, size)
        except InvalidDocument as exc:
            name = self._database.name
            raise StoreError(f"{name}: {what} is not a valid case ({exc}); capture the failure again") from exc
        kept = list(self._read.items())[1 - MOST_READ :]
        self._read = {**dict(kept), key: case}  # a new one, because threads share an index
        return case

    def drop(self, session: Session, key: str | None) -> list[str]:
        """Delete the document ``key`` if no row refers to it. Returns the keys of the storages deleted with it.

        Pass them to `sweep` after the commit.
        """
        if key is None or session.get(DocumentRow, key) is None:
            return []
        for column in (CaptureRow.document, ReductionRow.best, ReproRow.document, StepRow.document):
            if session.scalar(select(exists().where(column == key))):
                return []
        blobs = session.scalars(select(DocumentBlobRow.blob).where(DocumentBlobRow.document == key)).all()
        session.execute(delete(DocumentBlobRow).where(DocumentBlobRow.document == key))
        session.execute(delete(DocumentRow).where(DocumentRow.digest == key))
        return self._blobs.forget(session, blobs)

    def sweep(self, storages: list[str]) -> None:
        """Remove the files of ``storages`` that `drop` returned."""
        self._blobs.sweep(storages)

    def _discard(self, ready: StagedCase) -> None:
        try:
            self._blobs.sweep([item.digest for item in ready.staged if item.data is None])
        except StoreError:
            return  # the first error is on its way to the user; a file without a row does no harm
