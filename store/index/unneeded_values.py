"""`minify gc --values`: removes values of captured graphs whose smallest graph was verified without them.

A captured graph may hold the weights of a whole model. Once the script of a smaller graph has shown the failure, they
serve only those who want to minify the captured graph again. Seeded numbers of the same range replace them, as in a
capture made with ``--data none``, and the row says so. Storages that another case needs stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy
from sqlalchemy import exists, select
from sqlalchemy.orm import Session, aliased

from .. import codec
from ..document.case import Case, Json, TensorSpec
from ..document.storages import Joined, StorageReader
from ..failure import METADATA
from . import signing
from .blobs import BlobStore
from .cases import CaseStore, StagedCase
from .database import Database
from .documents import dumps, loads
from .tables import BlobRow, CaptureRow, DocumentBlobRow, ReductionRow, ReproRow, State, StepRow
from .trust import is_ours, origin_tag

#: Smaller storages stay.
LEAST = 64 << 10
#: Bytes of a storage that are looked at.
_SAMPLE = 4 << 20
_FLOATS: dict[str, Any] = {"float16": numpy.float16, "float32": numpy.float32, "float64": numpy.float64}
_INTEGERS: dict[str, Any] = {
    name: numpy.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemovedValues:
    """The number of captures whose values were removed, or would be, and of bytes."""

    captures: int
    bytes: int

    def to_json(self) -> Json:
        return codec.dump(self)


class UnneededValues:
    """``index.unneeded_values``."""

    def __init__(self, database: Database, cases: CaseStore, blobs: BlobStore) -> None:
        self._database, self._cases, self._blobs = database, cases, blobs

    def remove(self, *, dry_run: bool = False) -> RemovedValues:
        """Remove the values. With ``dry_run`` only say how much that is."""
        captures = size = 0
        for id, document in self._verified():
            sizes = self._own(document)
            case = self._cases.load(document, f"capture {id}")
            smaller = without_values(case, sizes, self._blobs.view(sizes))
            gone = case.storages - smaller.storages
            if gone and (dry_run or self._replace(id, document, case, smaller)):
                captures, size = captures + 1, size + sum(sizes[key] for key in gone)
        return RemovedValues(captures, size)

    def _verified(self) -> list[tuple[int, str]]:
        """Captures that have a verified script, and their documents that nothing else has."""
        other = aliased(CaptureRow)
        used = [
            exists().where(column == CaptureRow.document)
            for column in (ReductionRow.best, ReproRow.document, StepRow.document)
        ]
        used.append(exists().where(other.document == CaptureRow.document, other.id != CaptureRow.id))
        wanted = select(CaptureRow.id, CaptureRow.document).where(
            CaptureRow.state == State.VERIFIED.value, *(~each for each in used)
        )
        with self._database.reading() as session:
            found = session.execute(wanted.where(CaptureRow.document.is_not(None)).order_by(CaptureRow.id))
            return [(id, document) for id, document in found if document is not None]

    def _own(self, document: str) -> dict[str, int]:
        """The sizes of the large storages that only this document needs, by key."""
        other = aliased(DocumentBlobRow)
        shared = exists().where(other.blob == DocumentBlobRow.blob, other.document != document)
        wanted = select(BlobRow.digest, BlobRow.size).join(DocumentBlobRow, DocumentBlobRow.blob == BlobRow.digest)
        with self._database.reading() as session:
            found = session.execute(wanted.where(DocumentBlobRow.document == document, BlobRow.size >= LEAST, ~shared))
            return {row.digest: row.size for row in found}

    def _replace(self, id: int, document: str, case: Case, smaller: Case) -> bool:
        """Store the case of a capture without values. False if the capture has changed meanwhile."""
        kept = self._blobs.view(smaller.storages)
        with self._cases.staged(smaller, Joined(kept)) as staged:
            dropped = self._database.write(lambda session: self._exchange(session, id, document, staged))
        if dropped is None:
            return False
        self._cases.sweep(dropped)
        return True

    def _exchange(self, session: Session, id: int, document: str, staged: StagedCase) -> list[str] | None:
        row = session.scalar(select(CaptureRow).where(CaptureRow.id == id).with_for_update())
        if row is None or row.document != document:
            return None
        provenance = loads(row.provenance)
        tag = provenance.get("origin")
        if signing.signer(tag):
            return None  # only the server that signed it may change it
        if is_ours(document, row.identity, tag):
            provenance["origin"] = origin_tag(staged.key, row.identity)
        self._cases.insert(session, [staged])
        row.document = staged.key
        row.provenance = dumps({**provenance, "data": METADATA, "left_out": "removed by minify gc --values"})
        session.flush()
        return self._cases.drop(session, document)


def without_values(case: Case, keys: Collection[str], blobs: StorageReader) -> Case:
    """``case`` with seeded numbers in the place of the storages ``keys``, as far as one tensor alone lies in each."""
    users: dict[str, list[int]] = {}
    for index, spec in enumerate(case.tensors):
        if spec.storage in keys:
            users.setdefault(str(spec.storage), []).append(index)
    parts = {part for spec in case.tensors for part in spec.parts}
    alone = [i for indices in users.values() if len(indices) == 1 for i in indices if i not in parts]
    made = {i: init for i in alone if (init := _recipe(case.tensors[i], blobs)) is not None}
    tensors = tuple(
        replace(spec, storage=None, init=made[i], offset=0, conj=False, neg=False) if i in made else spec
        for i, spec in enumerate(case.tensors)
    )
    return replace(case, tensors=tensors)


def _recipe(spec: TensorSpec, blobs: StorageReader) -> Json | None:
    """Numbers of the range of a stored tensor (`fxminify.store.live.synthesis`); None for other dtypes and layouts."""
    key = str(spec.storage)
    repeats = any(step == 0 and size > 1 for size, step in zip(spec.shape, spec.stride, strict=True))
    if spec.layout != "strided" or repeats:
        return None
    if spec.dtype in _INTEGERS:
        bounds = [(int(part.min()), int(part.max())) for part in _read(blobs, key, _INTEGERS[spec.dtype]) if part.size]
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        return {"fn": "full", "value": low} if low == high else {"fn": "randint", "low": low, "high": high + 1}
    if spec.dtype == "bool":
        return {"fn": "randint", "low": 0, "high": 2}
    if spec.dtype in _FLOATS or spec.dtype == "bfloat16":
        return _normal(next(_read(blobs, key, _FLOATS.get(spec.dtype)), numpy.zeros(0)))
    return {"fn": "randn"} if spec.dtype.startswith("complex") else None


def _read(blobs: StorageReader, key: str, dtype: Any) -> Iterator[Any]:
    """The numbers of a storage, piece by piece, read as bfloat16 if ``dtype`` is None."""
    for part in blobs.pieces(key):
        if dtype is None:
            words = numpy.frombuffer(part[: len(part) // 2 * 2], numpy.uint16)
            yield (words.astype(numpy.uint32) << 16).view(numpy.float32)
        else:
            size = numpy.dtype(dtype).itemsize
            yield numpy.frombuffer(part[: len(part) // size * size], dtype)


def _normal(values: Any) -> Json:
    with numpy.errstate(all="ignore"):
        wide = values[: _SAMPLE // 4].astype(numpy.float64)
        spread = float(wide.std()) if wide.size else 0.0
    return {"fn": "randn", "std": float(f"{spread:.2g}")} if 0 < spread < 1e30 else {"fn": "randn"}
