"""The part of the index that a reduction writes: its questions, its best case so far, and the rendered files.

A question is logged before it is asked and its answer as soon as it is there, each in a transaction of its own, so
that after ``kill -9`` the next run repeats nothing. The best case replaces the one before it; storages that only the
old one needed are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import delete, exists, func, insert, select
from sqlalchemy.orm import Session

from ..document.case import Blobs, Case, Json
from ..document.decode import InvalidDocument, validate
from ..errors import ForeignValue, StoreError
from .blobs import INLINE_LIMIT, BlobStore, Packed
from .database import Database
from .documents import digest, dumps, loads, pack, unpack
from .tables import CaptureRow, DocumentBlobRow, DocumentRow, ReductionRow, ReproRow, RoundRow, StepRow, VerdictRow
from .trust import origin_tag, script_tag

_Row = TypeVar("_Row", CaptureRow, ReductionRow, RoundRow)


@dataclass(frozen=True, slots=True)
class ReductionInfo:
    """One reduction. ``seconds`` is wall time, ``accepted`` the number of steps taken so far."""

    id: int
    capture: int
    config: Json
    resumed: bool
    finished: bool
    accepted: int
    queries: int
    nodes_before: int | None
    nodes_after: int | None
    inputs_after: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """One answered question. ``outcome`` is a value of `fxminify.minifier.oracle.verdict.Outcome`."""

    key: str
    pass_name: str
    outcome: str
    signature: str | None
    seconds: float
    detail: str
    asks: int


@dataclass(frozen=True, slots=True)
class ReproInfo:
    """One rendered file; ``verified`` of ``runs`` fresh processes showed the signature."""

    capture: int
    format: str
    text: str
    verified: int
    runs: int
    log: str
    created: str


class Reductions:
    """What `fxminify.store.index.Index` can do for one reduction. Needs an open database."""

    def __init__(self, database: Database, inline_limit: int = INLINE_LIMIT) -> None:
        self._database = database
        self._blobs = BlobStore(database, inline_limit)

    @property
    def name(self) -> str:
        """The file or URL as the user gave it (no password)."""
        return self._database.name

    def begin_reduction(self, capture_id: int, config: Json) -> ReductionInfo:
        """Resume the unfinished reduction of this capture with the same ``config``, or start one."""
        text = dumps(config)
        key = digest(text.encode())
        with self._database.writing() as session:
            self._need(session, CaptureRow, capture_id)
            row = session.scalars(
                select(ReductionRow)
                .where(ReductionRow.capture == capture_id, ReductionRow.config_digest == key)
                .where(ReductionRow.finished.is_(None))
                .order_by(ReductionRow.id.desc())
                .limit(1)
            ).one_or_none()
            resumed = row is not None
            if row is None:
                row = ReductionRow(
                    capture=capture_id,
                    config=text,
                    config_digest=key,
                    accepted=0,
                    queries=0,
                    seconds=0.0,
                    started=now(),
                )
                session.add(row)
                session.flush()
            return reduction_info(row, resumed=resumed)

    def asked(self, reduction_id: int, key: str, pass_name: str) -> None:
        """Log a question before it is asked. Asking again counts: it was left unanswered, or asked twice."""
        with self._database.writing() as session:
            row = session.get(VerdictRow, (reduction_id, key))
            if row is not None:
                row.asks = VerdictRow.asks + 1
                return
            self._need(session, ReductionRow, reduction_id)
            session.add(
                VerdictRow(reduction=reduction_id, key=key, pass_name=pass_name, asks=1, seconds=0.0, detail="")
            )

    def answered(
        self, reduction_id: int, key: str, outcome: str, signature: str | None, seconds: float, detail: str
    ) -> None:
        """Log the answer to a question that was `asked`."""
        with self._database.writing() as session:
            row = session.get(VerdictRow, (reduction_id, key))
            if row is None:
                raise ValueError(f"question {key!r} of reduction {reduction_id} was never asked")
            row.outcome, row.signature, row.seconds, row.detail = str(outcome), signature, float(seconds), detail

    def verdicts(self, reduction_id: int) -> dict[str, StoredVerdict]:
        """Every answered question of a reduction."""
        with self._database.reading() as session:
            rows = session.scalars(
                select(VerdictRow).where(VerdictRow.reduction == reduction_id, VerdictRow.outcome.is_not(None))
            ).all()
        return {
            r.key: StoredVerdict(r.key, r.pass_name, r.outcome or "", r.signature, r.seconds, r.detail, r.asks)
            for r in rows
        }

    def accept(self, reduction_id: int, case: Case, blobs: Blobs, *, step: int | None = None) -> None:
        """Make ``case`` the best of this reduction so far; ``step`` is the number of a step that keeps it, too."""
        key, size, data = pack(case)
        staged = self._blobs.stage(case.storages, blobs)
        try:
            with self._database.writing() as session:
                row = self._need(session, ReductionRow, reduction_id)
                old = row.best
                self._insert_document(session, DocumentRow(digest=key, size=size, data=data), case, staged, blobs)
                row.best, row.origin = key, origin_tag(case)
                row.nodes_after, row.inputs_after = case.graph.count, len(case.inputs)
                if step is not None and (kept := session.get(StepRow, (reduction_id, step))) is not None:
                    kept.document = key
                session.flush()
                dropped = [] if old is None or old == key else self._drop_document(session, old)
        except BaseException:
            self._discard(staged)
            raise
        self._blobs.sweep(dropped)

    def finish_reduction(
        self,
        reduction_id: int,
        *,
        queries: int,
        nodes_before: int,
        nodes_after: int,
        seconds: float,
        finished: bool = True,
    ) -> None:
        """Write down the figures of a reduction; ``finished`` closes it, and it is never resumed again."""
        with self._database.writing() as session:
            row = self._need(session, ReductionRow, reduction_id)
            row.queries, row.nodes_before, row.nodes_after = queries, nodes_before, nodes_after
            row.seconds, row.finished = float(seconds), now() if finished else row.finished

    def save_repro(self, capture_id: int, format: str, text: str, *, verified: int, runs: int, log: str) -> None:
        """Keep a rendered file; it replaces the one of the same format. A text that was there keeps its origin."""
        with self._database.writing() as session:
            self._need(session, CaptureRow, capture_id)
            row = session.get(ReproRow, (capture_id, format))
            if row is None:
                row = ReproRow(capture=capture_id, format=format)
                session.add(row)
            if row.text != text:
                row.origin = script_tag(text)
            row.text, row.log, row.verified, row.runs, row.created = text, log, verified, runs, now()

    def repro(self, capture_id: int, format: str = "script") -> ReproInfo | None:
        """The rendered file of that format, None when there is none yet."""
        with self._database.reading() as session:
            self._need(session, CaptureRow, capture_id)
            row = session.get(ReproRow, (capture_id, format))
        if row is None:
            return None
        return ReproInfo(row.capture, row.format, row.text, row.verified, row.runs, row.log, row.created)

    def _insert_document(
        self, session: Session, document: DocumentRow, case: Case, staged: Iterable[Packed], blobs: Blobs
    ) -> None:
        if session.scalar(select(exists().where(DocumentRow.digest == document.digest))):
            return
        self._blobs.insert(session, case.storages, staged, blobs)
        links = [{"document": document.digest, "blob": key} for key in sorted(case.storages)]
        session.add(document)
        session.flush()
        if links:
            session.execute(insert(DocumentBlobRow), links)

    def _drop_document(self, session: Session, key: str) -> list[str]:
        """Drop a document nothing refers to any more; the keys of the storages that went with it."""
        for column in (CaptureRow.document, ReductionRow.best, StepRow.document):
            if session.scalar(select(exists().where(column == key))):
                return []
        blobs = session.scalars(select(DocumentBlobRow.blob).where(DocumentBlobRow.document == key)).all()
        session.execute(delete(DocumentBlobRow).where(DocumentBlobRow.document == key))
        session.execute(delete(DocumentRow).where(DocumentRow.digest == key))
        return self._blobs.forget(session, blobs)

    def _discard(self, staged: Iterable[Packed]) -> None:
        """Remove the files of a capture that was not stored, above all when the disk is full."""
        try:
            self._blobs.sweep([item.digest for item in staged if item.data is None])
        except StoreError:
            return  # the first error is on its way to the user; a file nobody names does no harm

    def _load_case(self, key: str, what: str) -> Case:
        with self._database.reading() as session:
            row = session.get(DocumentRow, key)
            if row is None:
                raise ForeignValue(f"{what} without its document")
            doc = unpack(row.digest, row.size, row.data)
        try:
            return validate(doc)
        except InvalidDocument as exc:
            raise StoreError(f"{self.name}: {what} is not a valid case ({exc}); capture the failure again") from exc

    def _need(self, session: Session, table: type[_Row], key: int) -> _Row:
        row = session.get(table, key) if 0 < key < 1 << 63 else None
        if row is None:
            noun = table.__tablename__.removesuffix("s")
            near = session.scalars(select(table.id).order_by(func.abs(table.id - min(key, 1 << 32))).limit(1)).first()
            nearest = "" if near is None else f"; the nearest is {near}"
            raise StoreError(f"{self.name} has no {noun} {key}: `minify list {self.name}` shows what it has{nearest}")
        return row


def reduction_info(row: ReductionRow, *, resumed: bool) -> ReductionInfo:
    """What is said of a reduction."""
    return ReductionInfo(
        id=row.id,
        capture=row.capture,
        config=loads(row.config),
        resumed=resumed,
        finished=row.finished is not None,
        accepted=row.accepted,
        queries=row.queries,
        nodes_before=row.nodes_before,
        nodes_after=row.nodes_after,
        inputs_after=row.inputs_after,
        seconds=float(row.seconds),
    )


def precedence(row: ReductionRow) -> tuple[bool, str, int]:
    """The reduction of a capture for which this is greatest stands for it: the one that was finished last, as one may
    be resumed after another was begun, or else the last one."""
    return row.finished is not None, row.finished or "", row.id


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
