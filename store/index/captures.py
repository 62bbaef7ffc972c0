"""The captures of an index: one row for each failure.

A capture is stored in one transaction: its case document, its storages and its row are all stored or none is. Captures
with the same backend, graph and signature are one row, whose ``occurrences`` counts them, whichever process or thread
adds them. The first case is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, load_only

from .. import codec
from ..document.case import Blobs, Case, Json
from ..errors import ForeignValue, StoreError, UnreadableRow
from ..failure import Failure, FailureKind, Phase
from ..private_values import here
from ..recording import Recording, backend_of, identity_of, shape_of
from ..scrubbing import masked_failure
from ..signature import Signature, signature
from . import bugs, events, queue
from .arrivals import Arrival, NewCapture, Stored, store
from .bugs import COMES_FROM, line
from .cases import CaseStore, is_large
from .database import Database, now
from .documents import dumps, loads, plain
from .reductions import precedence
from .signing import CaptureSigner
from .stored import read as read_stored
from .tables import ArtifactRow, CaptureRow, ReductionRow, ReproRow, State
from .trust import origin_tag, signed_tag


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureInfo:
    """A capture as listings show it. Reading it opens no case document.

    * ``bug`` is the id of its bug (`fxminify.store.index.bugs`), ``signature`` the digest.
    * ``queries`` belong to the last finished reduction, or to the running one. ``nodes_after`` and ``inputs_after``
      belong to its smallest case, or to the case of the verified script.
    * The failure appeared in ``verified`` of ``runs`` runs of the script.
    * ``operators`` are the operators that the smallest case calls, sorted, empty before a reduction.
    * ``comes_from`` are the lines of the program that the case of the script comes from
      (`fxminify.store.document.program_lines`), empty without a script.
    * ``failure`` is None if no failure was seen, ``nodes_before`` is None if the graph could not be stored.
    * If the row cannot be read, only the id is known, and ``problem`` is the reason.
    """

    id: int
    bug: int
    parent: int | None
    state: State
    kind: str
    phase: str
    backend: str
    signature: str
    occurrences: int
    nodes_before: int | None
    nodes_after: int | None = None
    inputs_before: int | None
    inputs_after: int | None = None
    operators: str = ""
    comes_from: str = ""
    queries: int = 0
    verified: int = 0
    runs: int = 0
    headline: str
    reason: str
    created: str
    last_seen: str
    failure: Failure | None
    provenance: Json
    graph_text: str
    problem: str = ""

    def to_show(self) -> Failure:
        """The failure that a script of it is to show, without details where none are stored. Raises `StoreError`."""
        if self.failure is not None:
            return self.failure
        try:
            return Failure(FailureKind(self.kind), Phase(self.phase))
        except ValueError:
            raise StoreError(f"capture {self.id} does not say how it failed: capture the failure again") from None

    def to_json(self) -> Json:
        """The fields as JSON values, as `minify list --json` prints them."""
        return codec.dump(self)


class Captures:
    """``index.captures``: adding, listing and reading captures."""

    def __init__(self, database: Database, cases: CaseStore) -> None:
        self._database = database
        self._cases = cases

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
        ours: bool = False,
        key: str = "",
    ) -> int:
        """Store a capture, or count one more occurrence of a known one. Returns its id.

        Of a capture that is ``ours`` this user made all that running it executes. Without a case the state is
        ``UNSUPPORTED`` and ``reason`` says why; ``provenance["backend"]`` then names the backend. Of ``blobs`` only
        what the case needs is stored. What was added under a ``key`` before is not added again. Raises `ValueError` for
        a case that contradicts its blobs or is too large.
        """
        columns = _row(case, failure, signature, provenance, graph_text, reason) | {"parent": parent}
        return self._add(
            lambda look: self._arriving(columns, case, blobs, provenance, ours=ours, key=key, look=look)
        ).capture

    def record(self, met: Recording) -> int:
        """Store a failure that a program of this user met: with its signature and the tag of its origin, and without
        what is private here."""
        return self.receive(met.masked(), ours=True).capture

    def receive(
        self, met: Recording, *, ours: bool = False, signer: CaptureSigner | None = None, key: str = "", actor: str = ""
    ) -> Stored:
        """`add`, for a failure as a program recorded it: see `arriving`."""
        return self._add(lambda look: self.arriving(met, ours=ours, signer=signer, key=key, actor=actor, look=look))

    def arriving(
        self,
        met: Recording,
        *,
        ours: bool = False,
        signer: CaptureSigner | None = None,
        key: str = "",
        body: str = "",
        actor: str = "",
        look: bool = True,
    ) -> AbstractContextManager[Arrival]:
        """Prepare a recorded failure as an `Arrival`, to `store` inside the block.

        A case with a reason becomes ``BLOCKED``, as does a failure of a backend that was not installed. A failure
        that eager has as well becomes ``EAGER_REFUSES``. Neither causes notifications, and workers skip them.

        Workers that accept the key of a ``signer`` may run the capture. A ``key`` that was stored before is not
        stored again; ``body`` is the digest of its upload (`fxminify.store.index.uploads`), and ``actor`` is the
        sender. With ``look``, a large capture that is known is only counted. If it turns out to be deleted, call
        this again without ``look``. Raises `ValueError` for a case that contradicts its blobs or is too large.
        """
        columns = _row(met.case, met.failure, signature(met.failure), met.provenance, met.graph_text, met.reason)
        if met.failure.refused:
            said = f"eager refuses it, too: {met.failure.refused}\ncaptured: {met.failure.headline()}"
            columns |= {"state": State.EAGER_REFUSES.value, "reason": said}
        elif met.failure.absent:
            columns |= {"state": State.BLOCKED.value, "reason": met.failure.absent}
        elif met.case is not None and met.reason:
            columns["state"] = State.BLOCKED.value
        is_bug = not (met.failure.refused or met.failure.absent)
        return self._arriving(
            columns, met.case, met.blobs, met.provenance,
            ours=ours, signer=signer, key=key, body=body, actor=actor, look=look, is_bug=is_bug,
        )  # fmt: skip

    def store(self, arrivals: Sequence[Arrival]) -> list[Stored | None]:
        """Store or count failures in one transaction. Returns what each is, None for one that is not known.

        Raises `StoreError`, and then none of them is stored.
        """
        return store(self._database, self._cases, arrivals)

    def _add(self, arriving: Callable[[bool], AbstractContextManager[Arrival]]) -> Stored:
        for look in (True, False):
            with arriving(look) as arrival:
                (stored,) = self.store([arrival])
            if stored is not None:
                return stored
        raise AssertionError

    @contextmanager
    def _arriving(
        self,
        columns: Mapping[str, Any],
        case: Case | None,
        blobs: Blobs,
        provenance: Json,
        *,
        ours: bool,
        look: bool,
        signer: CaptureSigner | None = None,
        key: str = "",
        body: str = "",
        actor: str = "",
        is_bug: bool = True,
    ) -> Iterator[Arrival]:
        identity = columns["identity"]
        arrival = Arrival(identity=identity, provenance=provenance, key=key, body=body, actor=actor)
        if case is None:
            yield replace(arrival, new=NewCapture(columns=columns, staged=None, needs="", is_bug=is_bug))
            return
        if look and is_large(case, blobs) and self._is_known(identity):
            yield arrival
            return
        with self._cases.staged(case, blobs) as staged:
            from_ = dict(provenance)
            if signer is not None:
                from_["origin"] = signed_tag(signer, staged.key, identity)
            elif ours:
                from_["origin"] = origin_tag(staged.key, identity)
            needs = queue.needs_of(case, queue.whose(from_, ours=ours))
            columns = {**columns, "provenance": dumps(plain(from_))}
            yield replace(arrival, new=NewCapture(columns=columns, staged=staged, needs=needs, is_bug=is_bug))

    def _is_known(self, identity: str) -> bool:
        with self._database.reading() as session:
            return session.scalar(select(CaptureRow.id).where(CaptureRow.identity == identity)) is not None

    def find(
        self,
        ids: Sequence[int] = (),
        states: Sequence[State] = (),
        *,
        backend: str = "",
        signatures: Sequence[str] = (),
        after: int = 0,
        limit: int | None = None,
    ) -> list[CaptureInfo]:
        """The captures with these ids, states, backend and signatures (empty: all), by id.

        ``signatures`` are digests. Of those above the id ``after`` at most ``limit`` are returned: the next page begins
        after the last id of this one. A row that cannot be read is returned with its ``problem``, if it is not the only
        one that was asked for. Raises `StoreError` for an unknown id, and for an only row that cannot be read.
        """
        chosen = select(CaptureRow.id)
        if ids:
            chosen = chosen.where(CaptureRow.id.in_([id for id in ids if 0 < id < 1 << 63]))
        if states:
            chosen = chosen.where(CaptureRow.state.in_([State(state).value for state in states]))
        if backend:
            chosen = chosen.where(CaptureRow.backend == backend)
        if signatures:
            chosen = chosen.where(CaptureRow.signature.in_(signatures))
        if after:
            chosen = chosen.where(CaptureRow.id > after)
        if limit is not None:
            chosen = chosen.order_by(CaptureRow.id).limit(limit)
        try:
            return self._read(chosen, ids)
        except UnreadableRow as error:
            if len(set(ids)) == 1:
                raise UnreadableRow(f"capture {ids[0]} cannot be read: {error}") from error
        with self._database.reading() as session:
            numbers = session.scalars(select(CaptureRow.id).where(CaptureRow.id.in_(chosen)).order_by(CaptureRow.id))
            found = numbers.all()
        return [self._alone(number) for number in found]

    def _alone(self, id: int) -> CaptureInfo:
        """Return a capture, or a row that explains why it cannot be read."""
        try:
            return self.find([id])[0]
        except UnreadableRow as error:
            return _unreadable(id, str(error))

    def _read(self, chosen: Select[Any], ids: Sequence[int]) -> list[CaptureInfo]:
        """The captures whose ids ``chosen`` selects, among them all of ``ids``."""
        reductions = select(ReductionRow).where(ReductionRow.capture.in_(chosen)).order_by(ReductionRow.id)
        repros = (
            select(ReproRow)
            .options(load_only(ReproRow.verified, ReproRow.runs, ReproRow.nodes, ReproRow.inputs))
            .where(ReproRow.format == "script", ReproRow.capture.in_(chosen))
        )
        places = select(ArtifactRow).where(ArtifactRow.kind == COMES_FROM, ArtifactRow.capture.in_(chosen))
        with self._database.reading() as session:
            rows = session.scalars(select(CaptureRow).where(CaptureRow.id.in_(chosen)).order_by(CaptureRow.id)).all()
            scripts = {row.capture: row for row in session.scalars(repros)}
            last = _last_reductions(session.scalars(reductions))
            lines = {row.capture: line(row.content) for row in session.scalars(places)}
            for missing in set(ids) - {row.id for row in rows}:
                self._database.need(session, CaptureRow, missing)
            return [_info(row, last.get(row.id), scripts.get(row.id), lines.get(row.id, "")) for row in rows]

    def seen_since(self, time: str) -> dict[int, int]:
        """Return the occurrences, by id, of each capture that occurred at ``time`` (ISO, UTC) or later."""
        query = select(CaptureRow).options(load_only(CaptureRow.occurrences)).where(CaptureRow.last_seen >= time)
        with self._database.reading() as session:
            return {row.id: row.occurrences for row in session.scalars(query.order_by(CaptureRow.id))}

    def known(self, signatures: Iterable[str]) -> set[str]:
        """Return the digests among ``signatures`` that some capture has."""
        with self._database.reading() as session:
            return set(session.scalars(select(CaptureRow.signature).where(CaptureRow.signature.in_(list(signatures)))))

    def get(self, id: int) -> CaptureInfo:
        """Return the capture ``id``. Raises `StoreError` if it does not exist."""
        return self.find([id])[0]

    def case(self, id: int) -> Case:
        """The case of a capture, validated. Raises `StoreError`, which says why, if the case could not be stored."""
        with self._database.reading() as session:
            row = self._database.need(session, CaptureRow, id)
        if row.document is None:
            name = self._database.name
            raise StoreError(f"capture {id} of {name} has no graph that can be run: {row.reason or 'not stored'}")
        return self._cases.load(row.document, f"capture {id}")

    def signature(self, id: int) -> Signature | None:
        """The signature of a capture with all its parts."""
        with self._database.reading() as session:
            row = self._database.need(session, CaptureRow, id)
            return None if row.signature_parts is None else _signature(loads(row.signature_parts))

    def set_state(self, id: int, state: State, reason: str = "") -> None:
        """Set the state of a capture, and the reason in one sentence. Private values in the reason are masked.

        A verified script queues the next tasks. Raises `LeaseLost` if another process took the capture over, and
        `StoreError` if the capture does not exist.
        """
        needs = self.known_needs(id) if state is State.VERIFIED else ""

        def write(session: Session) -> None:
            row = self._database.need(session, CaptureRow, id)
            self._database.check_lease(session, id)
            row.state, row.reason = State(state).value, here().mask(reason)
            if state is State.VERIFIED and row.bug is not None:
                session.flush()
                queue.verified(session, row.bug, id, needs)
                events.note(session, events.VERIFIED, row.headline, bug=row.bug, capture=id)

        self._database.write(write)

    def diagnose(self, id: int, shown: Failure) -> None:
        """Keep what the compiler printed when a replay has ``shown`` the failure of a capture, where its message is the
        same for every bug: from now on the capture is counted under the bug of that diagnosis.

        Raises `LeaseLost` if another process took the capture over.
        """

        def write(session: Session) -> None:
            row = self._database.need(session, CaptureRow, id, lock=True)
            self._database.check_lease(session, id)
            known = _failure(row)
            if known is None or not known.is_generic() or known.diagnosis() or not shown.diagnosis():
                return
            told = masked_failure(replace(known, diagnostics=shown.diagnostics), here().mask)
            row.failure, row.headline = dumps(plain(codec.dump(told))), told.headline()
            bugs.reassign(session, row, "")

        self._database.write(write)

    def show_as(self, id: int, shown: Failure) -> None:
        """List a capture, and the bug whose first capture it is, by the failure as its script showed it.

        Raises `LeaseLost` if another process took the capture over.
        """
        headline = here().mask(shown.headline())

        def write(session: Session) -> None:
            row = self._database.need(session, CaptureRow, id, lock=True)
            self._database.check_lease(session, id)
            row.headline = headline
            session.flush()
            if row.bug is not None:
                bugs.retitle(session, row.bug)

        self._database.write(write)

    def needs(self, id: int) -> str:
        """The labels that a worker needs for a capture: see `fxminify.store.index.queue`."""
        found = read_stored(self._database, self._cases, id).captured()
        return queue.needs_of(found.case, queue.whose(self.get(id).provenance, ours=found.ours))

    def known_needs(self, id: int) -> str:
        """`needs`, none of a capture that cannot be read: any worker finds out what is wrong with it."""
        try:
            return self.needs(id)
        except StoreError:
            return ""

    def count_again(self, identity: str, provenance: Json, times: int = 1, *, key: str = "") -> int | None:
        """Count ``times`` more occurrences of the capture with this identity. Return its id, or None if it is
        unknown.

        A ``key`` that was counted before is not counted again.
        """
        (stored,) = self.store([Arrival(identity=identity, provenance=provenance, times=times, key=key)])
        return None if stored is None else stored.capture

    def seen_again(self, id: int, times: int = 1, provenance: Json | None = None, *, key: str = "") -> None:
        """Count ``times`` more occurrences of a capture, with the versions in ``provenance``.

        A ``key`` that was counted before is not counted again.
        """
        with self._database.reading() as session:
            row = self._database.need(session, CaptureRow, id)
        self.count_again(row.identity, loads(row.provenance) if provenance is None else provenance, times, key=key)


def _row(
    case: Case | None,
    failure: Failure | None,
    signature: Signature | None,
    provenance: Json,
    graph_text: str,
    reason: str,
) -> dict[str, Any]:
    """The columns of a new capture but for its document."""
    shape, backend = shape_of(case, graph_text, reason), backend_of(case, provenance)
    name = backend.get("name") or ":".join(str(backend[k]) for k in ("module", "attr") if backend.get(k))
    known = signature.digest if signature is not None else ""
    kind = failure.kind.value if failure is not None else signature.kind if signature is not None else ""
    phase = failure.phase.value if failure is not None else signature.phase if signature is not None else ""
    return {
        "identity": identity_of(backend, shape, known),
        "parent": None,
        "state": (State.UNSUPPORTED if case is None else State.PENDING).value,
        "reason": reason,
        "kind": kind,
        "phase": phase,
        "backend": str(name),
        "headline": failure.headline() if failure is not None else reason,
        "signature": known,
        "signature_parts": None if signature is None else dumps(plain(codec.dump(signature))),
        "failure": None if failure is None else dumps(plain(codec.dump(failure))),
        "provenance": dumps(plain(provenance)),
        "graph_hash": shape,
        "graph_text": graph_text,
        "nodes_before": None if case is None else case.graph.count,
        "inputs_before": None if case is None else len(case.inputs),
        "occurrences": 0,
        "created": now(),
        "last_seen": now(),
    }


def _last_reductions(rows: Iterable[ReductionRow]) -> dict[int, ReductionRow]:
    """For each capture the reduction that represents it."""
    last: dict[int, ReductionRow] = {}
    for row in rows:
        if row.capture not in last or precedence(row) > precedence(last[row.capture]):
            last[row.capture] = row
    return last


def _failure(row: CaptureRow) -> Failure | None:
    """The failure of a capture. Raises `ValueError` for what cannot be read."""
    return None if row.failure is None else codec.load(loads(row.failure), Failure)


def _info(row: CaptureRow, reduction: ReductionRow | None, script: ReproRow | None, comes_from: str) -> CaptureInfo:
    try:
        state, failure = State(row.state), _failure(row)
    except ValueError as exc:
        raise ForeignValue(f"a state or a failure of capture {row.id} that cannot be read: {exc}") from exc
    info = row.to(
        CaptureInfo,
        bug=-row.id if row.bug is None else row.bug,
        state=state,
        failure=failure,
        provenance=loads(row.provenance),
        comes_from=comes_from,
    )
    if reduction is not None:
        info = replace(
            info,
            nodes_after=reduction.nodes_after,
            inputs_after=reduction.inputs_after,
            operators=reduction.operators or "",
            queries=reduction.queries,
        )
    if script is not None:
        info = replace(info, verified=script.verified, runs=script.runs)
        if script.verified and script.nodes is not None:
            info = replace(info, nodes_after=script.nodes, inputs_after=script.inputs)
    return info


def _unreadable(id: int, problem: str) -> CaptureInfo:
    return CaptureInfo(
        id=id, bug=-id, parent=None, state=State.BLOCKED, kind="", phase="", backend="", signature="", occurrences=0,
        nodes_before=None, inputs_before=None, headline="", reason=problem, created="", last_seen="", failure=None,
        provenance={}, graph_text="", problem=problem,
    )  # fmt: skip


def _signature(doc: Json) -> Signature:
    try:
        return codec.load(doc, Signature)
    except ValueError as exc:
        raise ForeignValue(f"a signature that cannot be read: {exc}") from exc
