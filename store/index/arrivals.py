"""Store failures in an index. One transaction stores and counts any number of them.

A server receives many at a time. A transaction for each would need thirty statements; here the number of statements
hardly depends on the number of failures. Failures that are the same capture become one row with a count, even if
two transactions store them at the same time.

All writers lock rows in one order, so that no deadlock can arise: known captures, storages, bugs, and within a kind
by key. A transaction that has locked a bug is the only one that inserts captures of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from ..document.case import Json
from . import bugs, events, queue, uploads
from .bugs import BugCount
from .cases import CaseStore, StagedCase
from .database import Database, insert, now, table_of, update_each
from .tables import CaptureRow, MergedRow
from .uploads import Sent


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCapture:
    """A new failure: the ``columns`` of its row; its case, if there is one, and the labels that a worker needs for it.

    If it is no bug, because eager has it as well or the backend was not installed, nothing is queued, and no one is
    notified.
    """

    columns: Mapping[str, Any]
    staged: StagedCase | None
    needs: str
    is_bug: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A failure that occurred ``times`` times, with the versions in its ``provenance``.

    ``identity`` comes from `fxminify.store.recording`. Without ``new`` the failure is counted only if its capture
    is known. A ``key`` that arrived before is neither stored nor counted again. ``body`` is the digest of the
    upload with that key. ``actor`` is the sender.
    """

    identity: str
    provenance: Json
    times: int = 1
    key: str = ""
    body: str = ""
    actor: str = ""
    new: NewCapture | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The capture of a failure and its number of occurrences. ``bug`` is None for a capture of an upgraded index.

    In a ``conflict`` the key belongs to another upload, and nothing was stored or counted.
    """

    capture: int
    bug: int | None
    occurrences: int
    conflict: bool = False


@dataclass(slots=True)
class _Capture:
    """A capture, its occurrences before this transaction, and its new arrivals."""

    id: int
    bug: int | None
    before: int
    arrivals: list[Arrival] = field(default_factory=list)

    @property
    def occurrences(self) -> int:
        return self.before + sum(one.times for one in self.arrivals)


def store(database: Database, cases: CaseStore, arrivals: Sequence[Arrival]) -> list[Stored | None]:
    """Store or count these failures in one transaction. Returns what each is, None for one that is not known.

    Raises `StoreError`, and then none of them is stored.
    """
    return database.write(lambda session: _write(session, database, cases, arrivals))


def _write(session: Session, database: Database, cases: CaseStore, arrivals: Sequence[Arrival]) -> list[Stored | None]:
    done = uploads.known(session, [one.key for one in arrivals if one.key])
    fresh = _once(arrivals, done)
    known = _known(session, sorted({one.identity for one in fresh}))
    firsts: dict[str, Arrival] = {}
    for one in fresh:
        if one.new is not None and one.identity not in known:
            firsts.setdefault(one.identity, one)
    new = {identity: one.new for identity, one in firsts.items() if one.new is not None}
    for parent in {capture.columns["parent"] for capture in new.values()} - {None}:
        database.need(session, CaptureRow, parent)
    cases.insert(session, [capture.staged for capture in new.values() if capture.staged is not None])
    ids = {capture.bug for capture in known.values() if capture.bug is not None}
    counts, own = bugs.counted(session, ids, {key: bugs.columns(one.columns) for key, one in new.items()})
    captures = known | _insert(session, new, own)
    for one in fresh:
        if one.identity in captures:
            captures[one.identity].arrivals.append(one)
    _count(session, captures, counts, new)
    made = [(captures[identity], identity) for identity in new]
    tasks = [
        (capture.bug, capture.id, new[identity].needs)
        for capture, identity in made
        if capture.bug is not None and new[identity].staged is not None and new[identity].is_bug
    ]
    met = {bug.id: bug.occurrences + bug.times for bug in counts.values()}
    queue.put_first(session, tasks, met, [bug.id for bug in counts.values() if bug.empty])
    sent = {
        one.key: Sent(captures[one.identity].id, one.body or None)
        for one in fresh if one.key and one.identity in captures
    }  # fmt: skip
    uploads.note(session, sent)
    told = [
        {"kind": "capture", "text": new[identity].columns["headline"], "actor": firsts[identity].actor,
         "bug": capture.bug, "capture": capture.id}
        for capture, identity in made
        if new[identity].is_bug
    ]  # fmt: skip
    events.note_all(session, told)
    return _stored(session, arrivals, captures, done | sent)


def _once(arrivals: Iterable[Arrival], done: Collection[str]) -> list[Arrival]:
    """Drop the arrivals whose keys are in ``done``, and all but the first arrival with the same key."""
    keys, found = set(done), []
    for one in arrivals:
        if not one.key or one.key not in keys:
            found.append(one)
            keys.add(one.key)
    return found


def _known(session: Session, identities: Sequence[str]) -> dict[str, _Capture]:
    """The captures that there are of these, locked."""
    wanted = (
        select(CaptureRow)
        .options(load_only(CaptureRow.identity, CaptureRow.bug, CaptureRow.occurrences))
        .where(CaptureRow.identity.in_(identities))
        .order_by(CaptureRow.id)
        .with_for_update()
    )
    return {row.identity: _Capture(row.id, row.bug, row.occurrences) for row in session.scalars(wanted)}


def _insert(session: Session, new: Mapping[str, NewCapture], own: Mapping[str, BugCount]) -> dict[str, _Capture]:
    """Store the rows of new captures, each of its ``own`` bug, and counted under the one that this was merged into."""
    if not new:
        return {}
    rows = [
        {**one.columns, "document": None if one.staged is None else one.staged.key, "bug": own[identity].root}
        for identity, one in new.items()  # no other transaction has these bugs, and so none of these captures
    ]
    table = table_of(CaptureRow)
    found = session.execute(table.insert().returning(table.c.identity, table.c.id, table.c.bug), rows)
    captures = {identity: _Capture(id, bug, 0) for identity, id, bug in found}
    merged = [(captures[key].id, bug.id) for key, bug in sorted(own.items()) if bug.id != bug.root]
    insert(session, MergedRow, [{"capture": capture, "bug": bug} for capture, bug in merged])
    return captures


def _count(
    session: Session, captures: Mapping[str, _Capture], counts: Mapping[int, BugCount], new: Collection[str]
) -> None:
    """Count what has arrived, for its captures and its bugs."""
    update_each(session, CaptureRow, [
        {"id": one.id, "occurrences": one.occurrences, "last_seen": now()}
        for one in sorted(captures.values(), key=lambda one: one.id) if one.arrivals
    ])  # fmt: skip
    for identity, capture in captures.items():
        bug = counts.get(capture.bug) if capture.bug is not None else None
        if bug is not None:
            bug.captures += identity in new
            bug.seen += [bugs.TimesMet(capture.id, one.provenance, one.times) for one in capture.arrivals]
    bugs.count(session, list(counts.values()))


def _stored(
    session: Session, arrivals: Sequence[Arrival], captures: Mapping[str, _Capture], done: Mapping[str, Sent]
) -> list[Stored | None]:
    """Return the result of each arrival. ``done`` maps keys to uploads, earlier ones and new ones."""
    found = {one.id: Stored(one.id, one.bug, one.occurrences) for one in captures.values()}
    identities = {capture.id: identity for identity, capture in captures.items()}
    keys = {one.key for one in arrivals}
    others = sorted({sent.capture for key, sent in done.items() if sent.capture not in found and key in keys})
    if others:
        columns = select(CaptureRow).options(
            load_only(CaptureRow.identity, CaptureRow.bug, CaptureRow.occurrences)
        )  # fmt: skip
        rows = session.scalars(columns.where(CaptureRow.id.in_(others))).all()
        found |= {row.id: Stored(row.id, row.bug, row.occurrences) for row in rows}
        identities |= {row.id: row.identity for row in rows}
    stored: list[Stored | None] = []
    for one in arrivals:
        sent = done.get(one.key)
        if sent is None:
            capture = captures.get(one.identity)
            stored.append(None if capture is None else found[capture.id])
        elif (known := found.get(sent.capture)) is not None:
            is_same = sent.is_same(one.body) and identities[sent.capture] == one.identity
            stored.append(known if is_same else replace(known, conflict=True))
        else:
            stored.append(None)
    return stored
