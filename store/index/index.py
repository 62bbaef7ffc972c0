"""The index: every captured failure is a row of one file.

`Index` is the whole public face of the store on disk. A capture is one transaction: its case document, its storages
and its row are all there or none is. Two captures of one (backend, graph, signature) are one row whose
``occurrences`` grows, whichever process or thread adds them; the first case is kept. Nothing in a file is executed
by reading it, see `fxminify.store.index.sqlite` and `fxminify.store.document.decode`.

An `Index` may be shared by threads but not across a fork: open it where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, Self

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, load_only

from ..document.case import Blobs, Case, Json
from ..errors import ForeignValue, StoreError
from ..failure import Failure, Signature
from . import trust
from .blobs import INLINE_LIMIT, BlobView
from .claims import Claims
from .database import check_place, open_database
from .documents import digest, dumps, graph_hash, loads, pack, plain
from .reductions import ReductionInfo, ReproInfo, StoredVerdict, now, precedence
from .retests import Retest, Retests
from .steps import StepInfo, Steps
from .tables import CaptureRow, DocumentRow, ReductionRow, ReproRow, RetestResult, State

__all__ = [
    "CaptureInfo",
    "Index",
    "ReductionInfo",
    "ReproInfo",
    "Retest",
    "RetestResult",
    "State",
    "StepInfo",
    "StoreError",
    "StoredVerdict",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """What a listing shows of a capture; reading it opens no case document.

    ``signature`` is the digest. ``nodes_after``, ``inputs_after`` and ``queries`` are of the last finished reduction,
    or of the running one. ``verified`` of ``runs`` fresh processes showed the failure with the script.
    ``failure`` is None for what was never seen to fail, ``nodes_before`` for a graph that could not be stored.
    """

    id: int
    parent: int | None
    state: State
    kind: str
    phase: str
    backend: str
    signature: str
    occurrences: int
    nodes_before: int | None
    nodes_after: int | None
    inputs_before: int | None
    inputs_after: int | None
    queries: int
    verified: int
    runs: int
    headline: str
    reason: str
    created: str
    last_seen: str
    failure: Failure | None
    provenance: Json
    graph_text: str

    def to_json(self) -> Json:
        return asdict(self)


class Index(Steps, Retests):
    """An open index. Every method raises `StoreError` with one sentence for the terminal."""

    @classmethod
    def open(
        cls,
        path_or_url: str,
        *,
        create: bool = False,
        readonly: bool = False,
        inline_limit: int = INLINE_LIMIT,
        timeout: float = 30.0,
    ) -> Self:
        """Open a file, or a server by URL.

        ``create`` makes a missing or empty file, ``readonly`` never changes anything and works on read-only files and
        directories. Storages above ``inline_limit`` bytes lie beside the file. ``timeout`` is in seconds, for a file
        another process is writing to.
        """
        database = open_database(str(path_or_url), create=create and not readonly, readonly=readonly, timeout=timeout)
        return cls(database, inline_limit)

    @classmethod
    def check(cls, path_or_url: str, *, timeout: float = 30.0) -> None:
        """Raise `StoreError` if nothing can be stored there; makes nothing."""
        check_place(str(path_or_url), timeout=timeout)

    def claims(self) -> Claims:
        """What this process works on, so that no other process takes it up meanwhile."""
        return Claims(self._database)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(
        self,
        *,
        case: Case | None,
        blobs: Blobs,
        failure: Failure | None,
        signature: Signature | None,
        provenance: Json,
        parent: int | None = None,
        graph_text: str = "",
        reason: str = "",
    ) -> int:
        """Store a capture, or count one more occurrence of a known one; its id either way.

        Without a case the state is ``UNSUPPORTED`` and ``reason`` says why; ``provenance["backend"]`` then names the
        backend. Of ``blobs`` only what the case needs is stored. Raises `ValueError` for a case that contradicts
        its blobs or is too large.
        """
        row = _row(case, failure, signature, provenance, parent, graph_text, reason)
        known = self._seen_again(row.identity)
        if known is not None:
            return known
        if case is None:
            document, staged = None, []
        else:
            key, size, data = pack(case)
            document = DocumentRow(digest=key, size=size, data=data)
            row.document = key
            staged = self._blobs.stage(case.storages, blobs)
        try:
            with self._database.writing() as session:
                known = _count(session, row.identity)
                if known is not None:
                    return known
                if case is not None and document is not None:
                    self._insert_document(session, document, case, staged, blobs)
                if parent is not None:
                    self._need(session, CaptureRow, parent)
                session.add(row)
                session.flush()
                return row.id
        except BaseException as exc:
            self._discard(staged)
            # Only on a server, where another writer may come between look-up and insertion.
            if isinstance(exc.__cause__, IntegrityError):
                known = self._seen_again(row.identity)
                if known is not None:
                    return known
            raise

    def captures(self, ids: Sequence[int] = (), states: Sequence[State] = ()) -> list[CaptureInfo]:
        """The captures with these ids and states (empty: all), by id. Raises `StoreError` for an unknown id."""
        query = select(CaptureRow).order_by(CaptureRow.id)
        reductions = select(ReductionRow).order_by(ReductionRow.id)
        repros = (
            select(ReproRow).options(load_only(ReproRow.verified, ReproRow.runs)).where(ReproRow.format == "script")
        )
        if ids:
            possible = [id for id in ids if 0 < id < 1 << 63]
            query = query.where(CaptureRow.id.in_(possible))
            reductions = reductions.where(ReductionRow.capture.in_(possible))
            repros = repros.where(ReproRow.capture.in_(possible))
        with self._database.reading() as session:
            rows = session.scalars(query).all()
            scripts = {row.capture: row for row in session.scalars(repros)}
            last = _last_reductions(session.scalars(reductions))
            found = {row.id for row in rows}
            for wanted in ids:
                if wanted not in found:
                    self._need(session, CaptureRow, wanted)
            infos = [_info(row, last.get(row.id), scripts.get(row.id)) for row in rows]
        return [info for info in infos if not states or info.state in states]

    def capture(self, id: int) -> CaptureInfo:
        """One capture. Raises `StoreError` when there is none with this id."""
        return self.captures([id])[0]

    def case(self, id: int) -> Case:
        """The case of a capture, validated. Raises `StoreError` when it could not be stored, saying why."""
        with self._database.reading() as session:
            row = self._need(session, CaptureRow, id)
        if row.document is None:
            raise StoreError(f"capture {id} of {self.name} has no graph that can be run: {row.reason or 'not stored'}")
        return self._load_case(row.document, f"capture {id}")

    def failure(self, id: int) -> Failure | None:
        """The failure of a capture, None where none was seen."""
        return self.capture(id).failure

    def signature(self, id: int) -> Signature | None:
        """The signature of a capture with all its parts."""
        with self._database.reading() as session:
            row = self._need(session, CaptureRow, id)
            return None if row.signature_parts is None else _signature(loads(row.signature_parts))

    def best(self, of: ReductionInfo | CaptureInfo) -> Case | None:
        """The smallest case so far of a reduction, or of the last reduction of a capture. No bare id: whose is it?"""
        with self._database.reading() as session:
            if isinstance(of, ReductionInfo):
                row: ReductionRow | None = self._need(session, ReductionRow, of.id)
            elif isinstance(of, CaptureInfo):
                row = self._last_best(session, of.id)
            else:
                raise TypeError(f"best() takes a ReductionInfo or a CaptureInfo, not {of!r}")
        return None if row is None or row.best is None else self._load_case(row.best, f"the best of reduction {row.id}")

    def is_ours(self, id: int) -> bool:
        """Whether this user made all that running a capture, its minimal case or its script executes."""
        info, case = self.capture(id), self.case(id)
        with self._database.reading() as session:
            reduction = self._last_best(session, id)
            script = session.get(ReproRow, (id, "script"))
        best = self.best(info)
        return (
            trust.is_ours(case, info.provenance.get("origin"))
            and (best is None or (reduction is not None and trust.is_ours(best, reduction.origin)))
            and (script is None or trust.is_our_script(script.text, script.origin))
        )

    def blobs(self, keys: Iterable[str]) -> Blobs:
        """Storages by key, each read and verified when it is asked for."""
        return BlobView(self._blobs, keys)

    def set_state(self, id: int, state: State, reason: str = "") -> None:
        with self._database.writing() as session:
            row = self._need(session, CaptureRow, id)
            row.state, row.reason = State(state).value, reason

    def seen_again(self, id: int, times: int = 1) -> None:
        """Count ``times`` more occurrences of a capture."""
        with self._database.writing() as session:
            row = self._need(session, CaptureRow, id)
            row.occurrences = CaptureRow.occurrences + times
            row.last_seen = now()

    def _seen_again(self, identity: str) -> int | None:
        with self._database.writing() as session:
            return _count(session, identity)


def _count(session: Session, identity: str) -> int | None:
    """Count one more occurrence of a known capture; its id, None when it is new."""
    row = session.scalars(select(CaptureRow).where(CaptureRow.identity == identity)).one_or_none()
    if row is None:
        return None
    row.occurrences = CaptureRow.occurrences + 1
    row.last_seen = now()
    return row.id


def _row(
    case: Case | None,
    failure: Failure | None,
    signature: Signature | None,
    provenance: Json,
    parent: int | None,
    graph_text: str,
    reason: str,
) -> CaptureRow:
    shape = digest(dumps([graph_text, reason]).encode()) if case is None else graph_hash(case)
    backend = plain({"name": provenance.get("backend", "")} if case is None else case.backend)
    name = backend.get("name") or ":".join(str(backend[k]) for k in ("module", "attr") if backend.get(k))
    own = {k: v for k, v in backend.items() if k != "search_path"}  # where it lies, not what it is
    known = signature.digest if signature is not None else ""
    kind = failure.kind.value if failure is not None else signature.kind if signature is not None else ""
    phase = failure.phase.value if failure is not None else signature.phase if signature is not None else ""
    return CaptureRow(
        identity=digest(dumps([own, shape, known]).encode()),
        parent=parent,
        state=(State.UNSUPPORTED if case is None else State.PENDING).value,
        reason=reason,
        kind=kind,
        phase=phase,
        backend=str(name),
        headline=failure.headline() if failure is not None else reason,
        signature=known,
        signature_parts=None if signature is None else dumps(plain(signature.to_json())),
        failure=None if failure is None else dumps(plain(failure.to_json())),
        provenance=dumps(plain(provenance)),
        graph_hash=shape,
        graph_text=graph_text,
        nodes_before=None if case is None else case.graph.count,
        inputs_before=None if case is None else len(case.inputs),
        occurrences=1,
        created=now(),
        last_seen=now(),
    )


def _last_reductions(rows: Iterable[ReductionRow]) -> dict[int, ReductionRow]:
    """For each capture the reduction that stands for it."""
    last: dict[int, ReductionRow] = {}
    for row in rows:
        if row.capture not in last or precedence(row) > precedence(last[row.capture]):
            last[row.capture] = row
    return last


def _info(row: CaptureRow, reduction: ReductionRow | None, script: ReproRow | None) -> CaptureInfo:
    try:
        state = State(row.state)
        failure = None if row.failure is None else Failure.from_json(loads(row.failure))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ForeignValue(f"a state or a failure of capture {row.id} that cannot be read: {exc}") from exc
    info = CaptureInfo(
        id=row.id,
        parent=row.parent,
        state=state,
        kind=row.kind,
        phase=row.phase,
        backend=row.backend,
        signature=row.signature,
        occurrences=row.occurrences,
        nodes_before=row.nodes_before,
        nodes_after=None,
        inputs_before=row.inputs_before,
        inputs_after=None,
        queries=0,
        verified=0 if script is None else script.verified,
        runs=0 if script is None else script.runs,
        headline=row.headline,
        reason=row.reason,
        created=row.created,
        last_seen=row.last_seen,
        failure=failure,
        provenance=loads(row.provenance),
        graph_text=row.graph_text,
    )
    if reduction is None:
        return info
    return replace(
        info, nodes_after=reduction.nodes_after, inputs_after=reduction.inputs_after, queries=reduction.queries
    )


def _signature(doc: Json) -> Signature:
    parts: dict[str, Any] = {k: v for k, v in doc.items() if k != "version"}
    if not all(type(v) is str for v in parts.values()) or type(doc.get("version")) is not int:
        raise ForeignValue("a signature that cannot be read")
    try:
        return Signature.from_json(doc)
    except KeyError as exc:
        raise ForeignValue(f"a signature without {exc}") from exc
