"""The tables of the index, and the check that a row from a file has the types that fxminify writes.

SQLite stores any type in any column, so a file from elsewhere may have text instead of a number: every value is checked
when it is read, of whole rows and of single columns. Case documents and storages are content-addressed. Plain columns
have what a listing shows, so that it opens no document.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar, cast

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Text, event
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from ..errors import ForeignValue

_T = TypeVar("_T")

#: The newest revision under ``migrations/versions``. Revisions are numbers, so that they can be compared.
SCHEMA = "0011"
#: The oldest schema that was released.
FIRST = "0011"


class State(StrEnum):
    """The state of a capture on its way to a verified script."""

    PENDING = "pending"  #: captured, not minified yet
    REDUCING = "reducing"  #: being minified now
    VERIFIED = "verified"  #: a script was written, and runs of it showed the failure
    UNVERIFIED = "unverified"  #: a script was written, but no run of it showed the failure
    NOT_REPRODUCED = "not_reproduced"  #: the replay of the capture itself did not fail
    EAGER_REFUSES = "eager_refuses"  #: eager mode raises for the captured graph, too; the reason says what
    UNSUPPORTED = "unsupported"  #: the graph could not be stored; the reason says which node
    BLOCKED = "blocked"  #: something must be done first (a module to install...); the reason says what


class DeliveryState(StrEnum):
    """The state of a notification."""

    WAITING = "waiting"  #: to be sent, or to be tried again
    SENDING = "sending"  #: a process is sending it
    SENT = "sent"
    FAILED = "failed"  #: it was refused, or tried too often; the answer says why
    UNKNOWN = "unknown"  #: its process ended while it was sending, or no answer came: it is not sent again


class TaskState(StrEnum):
    """The state of a task on its way through the workers of `minify work`. The first three are open."""

    QUEUED = "queued"  #: the next free worker takes it
    LEASED = "leased"  #: a driver works on it
    WAITING = "waiting"  #: for an environment, for trust, or to be tried again; the reason says which
    DONE = "done"  #: a verified script is there
    FAILED = "failed"  #: it ran to its end, and there is no verified script; the reason says why
    CANCELLED = "cancelled"  #: by a person
    QUARANTINED = "quarantined"  #: its drivers ended without an answer too often


class BugStatus(StrEnum):
    """The decision of people about a bug, or of its retests. An open bug has no row."""

    OPEN = "open"
    IGNORED = "ignored"  # for good, or until a number of further occurrences
    OBSOLETE = "obsolete"  # until it occurs again
    FIXED = "fixed"  # a retest of it passed, until it occurs with the same versions or newer ones
    REGRESSED = "regressed"  # it was fixed, and occurred again with the same versions or newer ones
    DUPLICATE = "duplicate"  # its captures, also those to come, are counted under another bug


class RetestResult(StrEnum):
    """The result of a minimal case that was run again."""

    FAILING = "still failing"  #: it shows the captured failure
    FIXED = "fixed"  #: every run passed
    CHANGED = "changed"  #: it shows another failure
    CANNOT_RUN = "cannot run"  #: it did not come to the compiler: a module is missing, eager refuses...


class _Checked(TypeDecorator[_T]):
    """A column whose values must have the type of its declaration, also in a file from elsewhere."""

    kind: type
    #: The table and the column, for the sentence.
    where = "a result"

    @property
    def python_type(self) -> type[_T]:
        return self.kind

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], _T | None]:
        kind, other = self.kind, self.other

        def checked(value: Any) -> _T | None:
            if value is None or type(value) is kind:
                return cast(_T | None, value)
            return other(value)

        return checked

    def other(self, value: Any) -> _T:
        """Return a value of another type as one of this type, or raise `ForeignValue`."""
        raise ForeignValue(f"{type(value).__name__} in {self.where}")


class Clean(_Checked[str]):
    """Text of any origin: lone surrogates and NUL, which databases refuse, are written as escapes."""

    impl = Text
    cache_ok = True
    kind = str

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class Name(_Checked[str]):
    """Text of ours with a length: a digest, a state, a URL."""

    impl = String
    cache_ok = True
    kind = str


class Number(_Checked[int]):
    impl = Integer
    cache_ok = True
    kind = int

    def other(self, value: Any) -> int:
        if isinstance(value, Decimal) and value == int(value):  # PostgreSQL's sum of large numbers
            return int(value)
        return super().other(value)


class LargeNumber(Number):
    impl = BigInteger
    cache_ok = True


class Seconds(_Checked[float]):
    """A point in time or a duration, in seconds."""

    impl = Float
    cache_ok = True
    kind = float

    def other(self, value: Any) -> float:
        return value if type(value) is int else super().other(value)


class Data(_Checked[bytes]):
    impl = LargeBinary
    cache_ok = True
    kind = bytes


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Clean, int: Number, bytes: Data, float: Seconds}  # noqa: RUF012 - SQLAlchemy's own form

    def to(self, kind: type[_T], **others: Any) -> _T:
        """A dataclass ``kind`` with the columns that have the names of its fields. ``others`` has the other fields."""
        own = {column.key for column in self.__table__.columns} - others.keys()
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind) if f.name in own}, **others)  # type: ignore[arg-type]


class DocumentRow(Base):
    """A case document: canonical JSON, zlib-compressed, named by the sha256 of the text."""

    __tablename__ = "documents"

    digest: Mapped[str] = mapped_column(Name(64), primary_key=True)
    size: Mapped[int] = mapped_column(LargeNumber)
    data: Mapped[bytes]


class BlobRow(Base):
    """A storage, named by the sha256 of its bytes.

    ``data`` is NULL if the bytes lie beside the file, or in the bucket at the URL ``place``.
    """

    __tablename__ = "blobs"

    digest: Mapped[str] = mapped_column(Name(64), primary_key=True)
    size: Mapped[int] = mapped_column(LargeNumber)
    codec: Mapped[str] = mapped_column(Name(8))
    stored: Mapped[int] = mapped_column(LargeNumber)
    data: Mapped[bytes | None]
    place: Mapped[str | None]


class DocumentBlobRow(Base):
    """A storage that a document needs."""

    __tablename__ = "document_blobs"

    document: Mapped[str] = mapped_column(ForeignKey("documents.digest", ondelete="CASCADE"), primary_key=True)
    blob: Mapped[str] = mapped_column(ForeignKey("blobs.digest"), primary_key=True, index=True)


class BugRow(Base):
    """Captures that are one bug: see `fxminify.store.index.bugs`. ``captures`` and ``occurrences`` count them."""

    __tablename__ = "bugs"

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(Name(64), unique=True)
    kind: Mapped[str] = mapped_column(Name(16))
    phase: Mapped[str] = mapped_column(Name(16))
    backend: Mapped[str] = mapped_column(index=True)
    signature: Mapped[str] = mapped_column(Name(32), index=True)
    headline: Mapped[str]
    operators: Mapped[str]
    captures: Mapped[int]
    occurrences: Mapped[int] = mapped_column(LargeNumber)
    created: Mapped[str] = mapped_column(Name(32))
    last_seen: Mapped[str] = mapped_column(Name(32), index=True)


class TriageRow(Base):
    """The triage status of a bug: see `fxminify.store.index.triage`.

    An ignored bug is open again after ``until`` occurrences in all, unless it is NULL. The captures of a duplicate
    are counted under the bug ``duplicate_of``. ``versions`` is canonical JSON: the versions with which a bug was
    fixed.
    """

    __tablename__ = "triage"

    bug: Mapped[int] = mapped_column(ForeignKey("bugs.id"), primary_key=True)
    status: Mapped[str] = mapped_column(Name(16))
    until: Mapped[int | None] = mapped_column(LargeNumber)
    duplicate_of: Mapped[int | None] = mapped_column(ForeignKey("bugs.id"), index=True)
    actor: Mapped[str]
    at: Mapped[str] = mapped_column(Name(32))
    versions: Mapped[str | None]


class BugLabelRow(Base):
    """A label that people have put on a bug: see `fxminify.store.index.bug_labels`."""

    __tablename__ = "labels"

    bug: Mapped[int] = mapped_column(ForeignKey("bugs.id"), primary_key=True)
    label: Mapped[str] = mapped_column(Name(50), primary_key=True, index=True)


class MergedRow(Base):
    """A capture that is counted under the bug that its own ``bug`` was merged into."""

    __tablename__ = "merged"

    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"), primary_key=True)
    bug: Mapped[int] = mapped_column(ForeignKey("bugs.id"), index=True)


class CaptureRow(Base):
    """A failure of a program. ``identity`` makes (backend, graph, signature) unique."""

    __tablename__ = "captures"

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(Name(64), unique=True)
    parent: Mapped[int | None] = mapped_column(ForeignKey("captures.id"))
    bug: Mapped[int | None] = mapped_column(ForeignKey("bugs.id"))
    state: Mapped[str] = mapped_column(Name(16), index=True)
    reason: Mapped[str]
    kind: Mapped[str] = mapped_column(Name(16))
    phase: Mapped[str] = mapped_column(Name(16))
    backend: Mapped[str]
    headline: Mapped[str]
    signature: Mapped[str] = mapped_column(Name(32), index=True)
    signature_parts: Mapped[str | None]
    failure: Mapped[str | None]
    provenance: Mapped[str]
    graph_hash: Mapped[str] = mapped_column(Name(64))
    graph_text: Mapped[str]
    document: Mapped[str | None] = mapped_column(ForeignKey("documents.digest"), index=True)
    nodes_before: Mapped[int | None]
    inputs_before: Mapped[int | None]
    occurrences: Mapped[int]
    created: Mapped[str] = mapped_column(Name(32))
    last_seen: Mapped[str] = mapped_column(Name(32), index=True)

    __table_args__ = (
        Index("ix_captures_bug_state", "bug", "state"),
        Index("ix_captures_bug_id", "bug", "id"),
        Index("ix_captures_bug_nodes_before", "bug", "nodes_before"),
    )


class EnvironmentRow(Base):
    """The versions with which failures were seen, as canonical JSON, named by the sha256 of the text."""

    __tablename__ = "environments"

    digest: Mapped[str] = mapped_column(Name(64), primary_key=True)
    versions: Mapped[str]


class SightingRow(Base):
    """The occurrences of a capture on one day (UTC, ISO) with the same versions."""

    __tablename__ = "sightings"

    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"), primary_key=True)
    day: Mapped[str] = mapped_column(Name(10), primary_key=True)
    environment: Mapped[str] = mapped_column(ForeignKey("environments.digest"), primary_key=True)
    count: Mapped[int] = mapped_column(LargeNumber)


class BugSightingRow(Base):
    """The occurrences of a bug on one day with the same versions: sums over its captures."""

    __tablename__ = "bug_sightings"

    bug: Mapped[int] = mapped_column(ForeignKey("bugs.id"), primary_key=True)
    day: Mapped[str] = mapped_column(Name(10), primary_key=True)
    environment: Mapped[str] = mapped_column(ForeignKey("environments.digest"), primary_key=True)
    count: Mapped[int] = mapped_column(LargeNumber)


class LeaseRow(Base):
    """The process that works on a capture: see `fxminify.store.index.leases`. ``until`` is a Unix time."""

    __tablename__ = "leases"

    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"), primary_key=True)
    fence: Mapped[int] = mapped_column(LargeNumber)
    holder: Mapped[str]
    until: Mapped[float]


class TaskRow(Base):
    """An automatic task about a capture: see `fxminify.store.index.tasks`.

    ``open`` names the kind and the bug while the task is open, so that a bug has one open task. ``until`` is a Unix
    time: the end of the lease of a leased task, or the next attempt of a waiting one. ``attempts`` counts the
    drivers that ended without an answer. ``worker`` is the last one that took it; that worker's row may be gone.
    """

    __tablename__ = "tasks"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(Name(16))
    open: Mapped[str | None] = mapped_column(Name(48), unique=True)
    bug: Mapped[int] = mapped_column(ForeignKey("bugs.id"), index=True)
    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"), index=True)
    config: Mapped[str]
    needs: Mapped[str]
    priority: Mapped[int]
    state: Mapped[str] = mapped_column(Name(16))
    why: Mapped[str]
    attempts: Mapped[int]
    fence: Mapped[int] = mapped_column(LargeNumber)
    holder: Mapped[str]
    until: Mapped[float]
    worker: Mapped[int | None]
    budget: Mapped[float | None]
    created: Mapped[str] = mapped_column(Name(32))
    started: Mapped[str | None] = mapped_column(Name(32))
    finished: Mapped[str | None] = mapped_column(Name(32))

    __table_args__ = (
        Index("ix_tasks_state_needs_priority", "state", "needs", "priority", "id"),
        Index("ix_tasks_state_until", "state", "until"),
    )


class WorkerRow(Base):
    """A `minify work` that is running, or was. ``can`` has the labels of what it serves, ``seen`` is a Unix time."""

    __tablename__ = "workers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    holder: Mapped[str]
    can: Mapped[str]
    seen: Mapped[float]


class InstallationRow(Base):
    """Versions of torch and of the package of a backend that a worker had: see `fxminify.store.index.installations`."""

    __tablename__ = "installations"

    backend: Mapped[str] = mapped_column(Name(100), primary_key=True)
    environment: Mapped[str] = mapped_column(ForeignKey("environments.digest"), primary_key=True)
    at: Mapped[str] = mapped_column(Name(32))


class TargetRow(Base):
    """A receiver of notifications. Events up to the number ``event`` have become deliveries."""

    __tablename__ = "targets"

    name: Mapped[str] = mapped_column(Name(100), primary_key=True)
    event: Mapped[int]


class DeliveryRow(Base):
    """A notification for a target, and its result: see `fxminify.store.index.deliveries`.

    ``once`` names target, bug and event, so that it is sent once. ``until`` is a Unix time before which it is not
    tried again, ``holder`` the process that sends it, ``message`` the first delivery of the same message.
    """

    __tablename__ = "deliveries"

    id: Mapped[int] = mapped_column(primary_key=True)
    target: Mapped[str] = mapped_column(ForeignKey("targets.name"))
    what: Mapped[str] = mapped_column(Name(16))
    bug: Mapped[int] = mapped_column(index=True)
    text: Mapped[str]
    once: Mapped[str] = mapped_column(Name(250), unique=True)
    state: Mapped[str] = mapped_column(Name(16))
    attempts: Mapped[int]
    until: Mapped[float]
    holder: Mapped[str]
    message: Mapped[int | None]
    answer: Mapped[str]
    created: Mapped[str] = mapped_column(Name(32))
    sent: Mapped[str | None] = mapped_column(Name(32))

    __table_args__ = (Index("ix_deliveries_target_state", "target", "state"),)


class TokenRow(Base):
    """An access token of a server: see `fxminify.store.index.tokens`.

    ``digest`` is the sha256 of the secret, ``proof`` proves the row (`fxminify.store.index.rights`).
    """

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(Name(64))
    scopes: Mapped[str]
    created: Mapped[str] = mapped_column(Name(32))
    revoked: Mapped[str | None] = mapped_column(Name(32))
    proof: Mapped[str | None] = mapped_column(Name(64))


class SessionRow(Base):
    """A browser that is signed in with a token ``until`` a Unix time: see `fxminify.store.index.sessions`."""

    __tablename__ = "sessions"

    id: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[int] = mapped_column(ForeignKey("tokens.id"), index=True)
    until: Mapped[int] = mapped_column(LargeNumber)
    proof: Mapped[str] = mapped_column(Name(64))


class UploadRow(Base):
    """An upload under a ``key`` of its sender, so that it counts once: see `fxminify.store.index.uploads`.

    ``body`` is the digest of the upload.
    """

    __tablename__ = "uploads"

    key: Mapped[str] = mapped_column(Name(64), primary_key=True)
    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"))
    day: Mapped[str] = mapped_column(Name(10), index=True)
    body: Mapped[str | None] = mapped_column(Name(64))


class EventRow(Base):
    """An event: see `fxminify.store.index.events`. ``at`` is a Unix time."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    kind: Mapped[str] = mapped_column(Name(32))
    text: Mapped[str]
    actor: Mapped[str]
    bug: Mapped[int | None]
    capture: Mapped[int | None]
    task: Mapped[int | None]


class ReductionRow(Base):
    """A minification of a capture under one configuration. ``finished`` is NULL while it may be resumed.

    ``operators`` are the operators that ``best`` calls, ``origin`` is its tag: see
    `fxminify.store.index.trust.origin_tag`.
    """

    __tablename__ = "reductions"

    id: Mapped[int] = mapped_column(primary_key=True)
    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"))
    config: Mapped[str]
    config_digest: Mapped[str] = mapped_column(Name(64))
    best: Mapped[str | None] = mapped_column(ForeignKey("documents.digest"), index=True)
    accepted: Mapped[int]
    queries: Mapped[int]
    nodes_before: Mapped[int | None]
    nodes_after: Mapped[int | None]
    inputs_after: Mapped[int | None]
    seconds: Mapped[float]
    started: Mapped[str] = mapped_column(Name(32))
    finished: Mapped[str | None] = mapped_column(Name(32), index=True)
    origin: Mapped[str | None]
    operators: Mapped[str | None]

    __table_args__ = (Index("ix_reductions_capture_config_digest", "capture", "config_digest"),)


class VerdictRow(Base):
    """A query to the oracle. The row is written before the query; ``outcome`` is NULL until the answer."""

    __tablename__ = "verdicts"

    reduction: Mapped[int] = mapped_column(ForeignKey("reductions.id"), primary_key=True)
    key: Mapped[str] = mapped_column(Name(128), primary_key=True)
    pass_name: Mapped[str]
    asks: Mapped[int]
    outcome: Mapped[str | None] = mapped_column(Name(16))
    signature: Mapped[str | None] = mapped_column(Name(32))
    seconds: Mapped[float]
    detail: Mapped[str]


class StepRow(Base):
    """An accepted step of a reduction: see `fxminify.store.index.reductions`.

    ``key`` is the key of its query. ``origin`` is the tag of ``document``: see
    `fxminify.store.index.trust.origin_tag`.
    """

    __tablename__ = "steps"

    reduction: Mapped[int] = mapped_column(ForeignKey("reductions.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    pass_name: Mapped[str]
    key: Mapped[str] = mapped_column(Name(128))
    nodes: Mapped[int]
    inputs: Mapped[int]
    queries: Mapped[int]
    seconds: Mapped[float]
    difference: Mapped[str]
    document: Mapped[str | None] = mapped_column(ForeignKey("documents.digest"), index=True)
    at: Mapped[str] = mapped_column(Name(32))
    origin: Mapped[str | None]


class ReproRow(Base):
    """A rendered file of a capture. The signature appeared in ``verified`` of ``runs`` fresh processes.

    ``document`` is the case of a script, ``nodes`` and ``inputs`` are its size; NULL for other formats. ``origin``
    is the tag of `fxminify.store.index.trust.script_tag`.
    """

    __tablename__ = "repros"

    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"), primary_key=True)
    format: Mapped[str] = mapped_column(Name(32), primary_key=True)
    text: Mapped[str]
    log: Mapped[str]
    verified: Mapped[int]
    runs: Mapped[int]
    created: Mapped[str] = mapped_column(Name(32))
    origin: Mapped[str | None]
    document: Mapped[str | None] = mapped_column(ForeignKey("documents.digest"), index=True)
    nodes: Mapped[int | None]
    inputs: Mapped[int | None]


class ArtifactRow(Base):
    """A JSON document that explains a capture: see `fxminify.store.index.artifacts`."""

    __tablename__ = "artifacts"

    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(Name(32), primary_key=True)
    content: Mapped[str]
    created: Mapped[str] = mapped_column(Name(32))


class RoundRow(Base):
    """A run of `minify retest`. ``finished`` is NULL while it may be resumed."""

    __tablename__ = "rounds"

    id: Mapped[int] = mapped_column(primary_key=True)
    config: Mapped[str]
    config_digest: Mapped[str] = mapped_column(Name(64), index=True)
    started: Mapped[str] = mapped_column(Name(32))
    finished: Mapped[str | None] = mapped_column(Name(32))


class RetestRow(Base):
    """A minimal case that was run again: the backend, the versions and the result."""

    __tablename__ = "retests"

    id: Mapped[int] = mapped_column(primary_key=True)
    round: Mapped[int | None] = mapped_column(ForeignKey("rounds.id"), index=True)
    capture: Mapped[int] = mapped_column(ForeignKey("captures.id"), index=True)
    backend: Mapped[str]
    result: Mapped[str] = mapped_column(Name(16))
    message: Mapped[str]
    signature: Mapped[str] = mapped_column(Name(32))
    shown: Mapped[int]
    runs: Mapped[int]
    seconds: Mapped[float]
    versions: Mapped[str]
    at: Mapped[str] = mapped_column(Name(32))


@event.listens_for(Base, "load", propagate=True)
def _check_loaded(row: Any, context: Any) -> None:
    _check(row)


@event.listens_for(Base, "refresh", propagate=True)
def _check_refreshed(row: Any, context: Any, names: Any) -> None:
    _check(row)


def _check(row: Any) -> None:
    """Raise `ForeignValue` if a column that is never empty is."""
    for column in row.__table__.columns:
        if not column.nullable and row.__dict__.get(column.key, column) is None:
            raise ForeignValue(f"nothing in {row.__table__.name}.{column.key}")


for _column in (column for table in Base.metadata.tables.values() for column in table.columns):
    _column.type = copy(_column.type)  # columns without a type of their own share one
    _column.type.where = f"{_column.table.name}.{_column.key}"  # type: ignore[attr-defined]
