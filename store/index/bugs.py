"""The bugs of an index: captures of one backend that fail in the same way.

Divergences, hangs and failures for lack of memory have few signatures. Once minified, they are the same bug only if
their smallest graphs call the same operators. So such a capture moves to another bug when its minification has
ended. Captures without a signature are the same bug if their texts are equal.

People may declare two bugs to be the same (`fxminify.store.index.triage`). Then captures of the first, also new
ones, are counted under the second, and each capture remembers its own bug.

A bug has its counters, so that a listing reads no captures. The transactions that store captures and count their
occurrences update them. Another count is kept per capture, day and installed versions: the *sightings*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    delete,
    false,
    func,
    or_,
    select,
    tuple_,
    union,
    union_all,
    update,
)
from sqlalchemy.orm import Session, load_only

from .. import codec
from ..document.case import Json
from ..document.decode import InvalidDocument, parse_value
from ..errors import ForeignValue, UnreadableRow
from ..failure import ALIKE, Failure
from ..signature import signature
from ..text import printable
from ..versions import at_least
from . import bug_labels, events, queue
from .database import Database, insert, now, update_each
from .documents import digest, dumps, loads
from .tables import (
    ArtifactRow,
    BugRow,
    BugSightingRow,
    BugStatus,
    CaptureRow,
    EnvironmentRow,
    MergedRow,
    ReductionRow,
    ReproRow,
    SightingRow,
    State,
    TriageRow,
)

#: The kind of the artifact with the lines of the program that the case of the script comes from.
COMES_FROM = "comes-from"
#: The most captures of a bug whose ids are listed.
LISTED = 50
#: A bug with more captures gets a query of its own, so that its captures are not all read.
_OWN_QUERY_CAPTURES = 500
#: The most backends, and labels, that are named to choose from.
BACKENDS = LABELS = 100
#: In the order of scripts, the size of one whose size is not known.
_UNKNOWN = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class BugInfo:
    """A bug as listings show it.

    * ``ids`` are its first captures, at most `LISTED` of ``captures``. ``states`` counts the captures by state. The
      first capture gives the ``headline``.
    * ``nodes_before`` is the smallest and the largest captured graph, ``nodes_after`` the smallest minified one, or
      None. ``calls`` are the operators that the smallest minified graph calls.
    * ``comes_from`` are the lines of the program that fail, if they are known.
    * ``status`` is the decision of a person or a retest. A duplicate has no captures, because they are counted
      under the bug ``duplicate_of``; ``merged`` are the duplicates of this bug.
    * ``fixed_in`` has the oldest known versions with which a retest found it fixed.
    * ``labels`` are the labels of the bug and of its duplicates, sorted.
    """

    id: int
    kind: str
    phase: str
    backend: str
    signature: str
    headline: str
    operators: str
    captures: int
    occurrences: int
    created: str
    last_seen: str
    ids: tuple[int, ...]
    states: Mapping[State, int]
    nodes_before: tuple[int, int] | None
    nodes_after: int | None
    comes_from: str
    calls: str = ""
    status: BugStatus = BugStatus.OPEN
    duplicate_of: int | None = None
    merged: tuple[int, ...] = ()
    fixed_in: Mapping[str, str] | None = None
    labels: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """The fields as JSON values, as `minify list --json` prints them."""
        return codec.dump(self)


class BugOrder(StrEnum):
    """The order of a list of bugs."""

    SEEN = "seen"  # the latest occurrence first
    NEW = "new"  # the newest first capture first
    OFTEN = "often"  # the most occurrences first


@dataclass(frozen=True, slots=True)
class BugFilter:
    """The conditions of a list of bugs. A bug must fulfil all that are set.

    ``text`` is a part of the headline, of the backend, of the operators or of the signature, or ``#7`` for bug 7. A
    bug has the ``state`` of any of its captures. Without ``statuses`` all bugs but duplicates are listed. A bug
    must have each of ``labels``.
    """

    text: str = ""
    kind: str = ""
    backend: str = ""
    state: State | None = None
    statuses: Sequence[BugStatus] = ()
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BugList:
    """A page of a list of bugs.

    ``before`` and ``after`` are the keys at which the previous and the next page begin, empty at an end of the
    list.
    """

    bugs: Sequence[BugInfo]
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """The occurrences of a bug on one ``day`` (UTC, ISO) with these ``versions``."""

    day: str
    versions: Mapping[str, str]
    count: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of bugs with captures by status, and of their captures and occurrences."""

    bugs: Mapping[BugStatus, int]
    captures: int
    occurrences: int


#: No duplicates, as a list of bugs is without a filter.
EVERY_BUG = BugFilter()


class Bugs:
    """``index.bugs``: what the captures of an index have in common."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, *, after: int = 0, limit: int | None = None, wanted: BugFilter = EVERY_BUG) -> list[BugInfo]:
        """At most ``limit`` of the bugs that are ``wanted`` above the id ``after``, by id: the next page begins after
        the last of this one."""
        chosen = _chosen(select(BugRow.id), wanted).where(BugRow.id > after).order_by(BugRow.id).limit(limit)
        with self._database.reading() as session:
            ids = session.scalars(chosen).all()
        return self._read(ids)

    def ranked(
        self, wanted: BugFilter, order: BugOrder = BugOrder.SEEN, *, key: str = "", back: bool = False, limit: int
    ) -> BugList:
        """At most ``limit`` of the bugs that are ``wanted``, in this order: those after the ``key`` of another list of
        the same order, or with ``back`` those before it. Raises `ValueError` for what is no key."""
        columns = {BugOrder.SEEN: BugRow.last_seen, BugOrder.NEW: BugRow.id, BugOrder.OFTEN: BugRow.occurrences}
        column: Any = columns[order]
        place = tuple_(column, BugRow.id)
        chosen = _chosen(select(column, BugRow.id), wanted)
        if key:
            value, id = _parsed(key, text=order is BugOrder.SEEN)
            chosen = chosen.where(place > (value, id) if back else place < (value, id))
        chosen = chosen.order_by(*((column, BugRow.id) if back else (column.desc(), BugRow.id.desc())))
        with self._database.reading() as session:
            rows = session.execute(chosen.limit(limit + 1)).all()
        keys = [f"{value} {id}" for value, id in rows[:limit]]
        ids = [id for _, id in rows[:limit]]
        more = len(rows) > limit
        if back:
            keys.reverse()
            ids.reverse()
        first, last = (keys[0], keys[-1]) if keys else ("", "")
        return BugList(
            self._read(ids), before=first if (more if back else bool(key)) else "", after=last if more or back else ""
        )

    def _read(self, ids: Sequence[int]) -> list[BugInfo]:
        try:
            with self._database.reading() as session:
                return _infos(session, ids)
        except UnreadableRow:  # one of them is, or a capture of one
            return [self._alone(id) for id in ids]

    def backends(self) -> list[str]:
        """The backends of bugs, sorted, at most `BACKENDS`."""
        found = select(BugRow.backend).distinct().order_by(BugRow.backend).limit(BACKENDS)
        with self._database.reading() as session:
            return list(session.scalars(found))

    def labels(self) -> list[str]:
        """The labels that bugs have, sorted, at most `LABELS`."""
        with self._database.reading() as session:
            return bug_labels.used(session, limit=LABELS)

    def get(self, id: int) -> BugInfo:
        """Return the bug ``id``. Raises `StoreError` if it does not exist."""
        with self._database.reading() as session:
            self._database.need(session, BugRow, id)
            return _infos(session, [id])[0]

    def with_script(self, id: int) -> int | None:
        """Return the capture of a bug that has the smallest verified script, or None without such a script."""
        tried = _tried([id])
        scripts = (
            select(ReproRow.capture)
            .join(tried, tried.c.id == ReproRow.capture)
            .where(ReproRow.format == "script", ReproRow.verified > 0)
            .order_by(func.coalesce(ReproRow.nodes, _UNKNOWN), ReproRow.capture)
            .limit(1)
        )
        with self._database.reading() as session:
            self._database.need(session, BugRow, id)
            return session.scalar(scripts)

    def totals(self) -> Totals:
        """Counts of all bugs. Reads no captures."""
        query = (
            select(TriageRow.status, func.count(), func.sum(BugRow.captures), func.sum(BugRow.occurrences))
            .select_from(BugRow)
            .outerjoin(TriageRow, TriageRow.bug == BugRow.id)
            .where(BugRow.captures > 0)
            .group_by(TriageRow.status)
        )
        with self._database.reading() as session:
            rows = session.execute(query).all()
        counted: Counter[BugStatus] = Counter()
        for status, bugs, _, _ in rows:
            counted[_status_or_open(status)] += bugs
        return Totals(dict(counted), sum(int(row[2]) for row in rows), sum(int(row[3]) for row in rows))

    def _alone(self, id: int) -> BugInfo:
        """Return a bug, or a row that explains why it cannot be read."""
        try:
            return self.get(id)
        except UnreadableRow as error:
            of_it = select(CaptureRow.id).where(CaptureRow.bug == id).order_by(CaptureRow.id)
            with self._database.reading() as session:
                captures = session.scalars(of_it).all()
            return BugInfo(
                id=id, kind="", phase="", backend="", signature="", headline=f"cannot be read: {error}", operators="",
                captures=len(captures), occurrences=0, created="", last_seen="", ids=tuple(captures[:LISTED]),
                states={State.BLOCKED: max(len(captures), 1)}, nodes_before=None, nodes_after=None, comes_from="",
            )  # fmt: skip

    def sightings(self, id: int) -> list[Sighting]:
        """When a bug was seen, and with which versions, by day."""
        query = (
            select(BugSightingRow.day, EnvironmentRow.versions, BugSightingRow.count)
            .join(EnvironmentRow, EnvironmentRow.digest == BugSightingRow.environment)
            .where(BugSightingRow.bug == id)
            .order_by(BugSightingRow.day, EnvironmentRow.versions)
        )
        with self._database.reading() as session:
            self._database.need(session, BugRow, id)
            return [
                Sighting(_day(day), versions_of(versions), count) for day, versions, count in session.execute(query)
            ]


def _day(text: str) -> str:
    """A day as ``2026-11-26``. Raises `ForeignValue` for another text."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as exc:
        raise ForeignValue(f"a day on which a bug was seen that cannot be read: {exc}") from exc


def columns(capture: Mapping[str, Any], operators: str = "") -> dict[str, Any]:
    """The columns of the bug of a capture with these columns, but for the counters."""
    own = operators if capture["kind"] in ALIKE else ""
    headline = capture["headline"] or capture["reason"]
    text = "" if capture["signature"] else headline
    same = [capture["backend"], capture["signature"], capture["kind"], text, own]
    return {
        "identity": digest(dumps(same).encode()),
        "headline": headline,
        "operators": own,
        **{name: capture[name] for name in ("kind", "phase", "backend", "signature", "created", "last_seen")},
    }


def environment(provenance: Json) -> tuple[str, str]:
    """The digest and the text of the versions with which a failure was seen."""
    text = dumps({name: str(provenance[name])[:100] for name in ("python", "torch") if provenance.get(name)})
    return digest(text.encode()), text


@dataclass(frozen=True, slots=True)
class TimesMet:
    """A capture that occurred ``times`` times, with the versions in its ``provenance``."""

    capture: int
    provenance: Json
    times: int


@dataclass(slots=True)
class BugCount:
    """A bug that a transaction has locked: its stored counters, and the new occurrences for `count`.

    The captures of the bug are counted under the bug ``root``. ``status`` is its triage status. An ``empty`` bug
    was created by this transaction.
    """

    id: int
    root: int
    occurrences: int
    captures_before: int
    said: TriageRow | None
    empty: bool
    captures: int = 0
    seen: list[TimesMet] = field(default_factory=list)

    @property
    def times(self) -> int:
        return sum(one.times for one in self.seen)


def counted(
    session: Session, ids: Collection[int], new: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[int, BugCount], dict[str, BugCount]]:
    """Lock the bugs under which captures are counted. Return them by id, and the own bug of each new capture by
    key.

    ``ids`` are the bugs of known captures. ``new`` maps keys to `columns`, from which a missing bug is created. No
    other transaction merges or counts these bugs before this one ends.
    """
    identities = {columns["identity"]: columns for columns in new.values()}
    rows = _lock(session, or_(BugRow.id.in_(ids), BugRow.identity.in_(identities)) if new else BugRow.id.in_(ids))
    there = {row.identity for row in rows}
    missing = [columns for identity, columns in sorted(identities.items()) if identity not in there]
    if missing:
        insert(session, BugRow, [{**columns, "captures": 0, "occurrences": 0} for columns in missing])
        rows += _lock(session, BugRow.identity.in_([columns["identity"] for columns in missing]))
    said = _said(session, [row.id for row in rows])
    roots = {row.id: root(session, row.id) for row in rows if row.id in said and said[row.id].duplicate_of is not None}
    others = set(roots.values()) - {row.id for row in rows}
    if others:
        rows += _lock(session, BugRow.id.in_(others))
        said |= _said(session, others)
    found = {
        row.id: BugCount(
            row.id, roots.get(row.id, row.id), row.occurrences, row.captures, said.get(row.id),
            empty=row.identity not in there and not row.captures,
        )
        for row in rows
    }  # fmt: skip
    own = {row.identity: found[row.id] for row in rows}
    return found, {key: own[columns["identity"]] for key, columns in new.items()}


def _lock(session: Session, which: ColumnElement[bool]) -> list[BugRow]:
    """These bugs, locked in the order of their ids."""
    counters = load_only(BugRow.identity, BugRow.captures, BugRow.occurrences)
    chosen = select(BugRow).options(counters).where(which).order_by(BugRow.id).with_for_update()
    return list(session.scalars(chosen, execution_options={"populate_existing": True}))


def _said(session: Session, ids: Collection[int]) -> dict[int, TriageRow]:
    """Return the triage rows of these bugs. A writer of a triage row holds the lock of the bug, as we do."""
    chosen = select(TriageRow).where(TriageRow.bug.in_(ids))
    return {row.bug: row for row in session.scalars(chosen, execution_options={"populate_existing": True})}


def belongs(session: Session, capture: int, own: int, shown: int) -> None:
    """A capture of the bug ``own`` is counted under the bug ``shown``."""
    session.execute(delete(MergedRow).where(MergedRow.capture == capture))
    if own != shown:
        insert(session, MergedRow, [{"capture": capture, "bug": own}])


def root(session: Session, id: int) -> int:
    """The bug that a bug was merged into, or that one was merged into, and so on; a bug itself if it was not."""
    met = {id}
    while (into := session.scalar(select(TriageRow.duplicate_of).where(TriageRow.bug == id))) is not None:
        if into in met:
            raise ForeignValue(f"bug {into}, which is a duplicate of itself")
        met.add(into)
        id = into
    return id


def count(session: Session, counts: Sequence[BugCount]) -> None:
    """Count what was seen of these bugs now."""
    counts = sorted((bug for bug in counts if bug.seen or bug.captures), key=lambda bug: bug.id)
    _sight(session, counts)
    update_each(session, BugRow, [
        {"id": bug.id, "captures": bug.captures_before + bug.captures, "occurrences": bug.occurrences + bug.times,
         "last_seen": now()}
        for bug in counts
    ])  # fmt: skip
    queue.seen(session, {bug.id: (bug.occurrences, bug.occurrences + bug.times) for bug in counts if not bug.empty})
    for bug in counts:
        if bug.said is not None:
            _met_again(session, bug, bug.said)


def _sight(session: Session, counts: Sequence[BugCount]) -> None:
    """Count sightings today, for captures and for their bugs."""
    environments: dict[str, str] = {}
    of_captures: Counter[tuple[int, str]] = Counter()
    of_bugs: Counter[tuple[int, str]] = Counter()
    for bug in counts:
        for one in bug.seen:
            key, environments[key] = environment(one.provenance)
            of_captures[one.capture, key] += one.times
            of_bugs[bug.id, key] += one.times
    insert(session, EnvironmentRow, [{"digest": key, "versions": text} for key, text in sorted(environments.items())])
    day = now()[:10]
    for table, name, found in ((SightingRow, "capture", of_captures), (BugSightingRow, "bug", of_bugs)):
        rows = [
            {name: id, "day": day, "environment": key, "count": times} for (id, key), times in sorted(found.items())
        ]
        insert(session, table, rows, lambda more, table=table: {"count": table.count + more["count"]})  # type: ignore[misc]


def _met_again(session: Session, bug: BugCount, said: TriageRow) -> None:
    """Update the triage status of a bug that occurred again: reopen it, or mark it as regressed."""
    status, last = status_of(said.status), bug.seen[-1]
    enough = status is BugStatus.IGNORED and said.until is not None and said.until <= bug.occurrences + bug.times
    if enough or status is BugStatus.OBSOLETE:
        session.delete(said)
        session.flush()
        events.note(
            session, "bug", f"open again: it was {status}, and occurred again", bug=bug.id, capture=last.capture
        )
    elif status is BugStatus.FIXED:
        fixed = versions_of(said.versions)
        for one in bug.seen:
            versions = {name: str(one.provenance[name]) for name in ("torch", "python") if one.provenance.get(name)}
            if at_least(versions, fixed):
                regress(session, said, fixed, versions, one.capture)
                return


def regress(session: Session, said: TriageRow, fixed: Mapping[str, str], seen: Mapping[str, str], capture: int) -> None:
    """A bug that was ``fixed`` with some versions was ``seen`` with the same or newer ones."""
    said.status, said.at = BugStatus.REGRESSED.value, now()
    session.flush()
    text = f"it was fixed with {in_words(fixed)}, and fails again with {in_words(seen)}"
    events.note(session, events.REGRESSED, text, bug=said.bug, capture=capture)


def in_words(versions: Mapping[str, str]) -> str:
    """``torch 2.14.0 and onnxruntime 1.20``."""
    names = sorted(versions, key=lambda name: (name != "torch", name))
    return printable(" and ".join(f"{name} {versions[name]}" for name in names))


def reassign(session: Session, capture: CaptureRow, operators: str) -> None:
    """Count a capture, whose smallest case calls ``operators``, under the bug that it turned out to be."""
    known = {name: getattr(capture, name) for name in _OF_CAPTURE}
    bug = columns({**known, "signature": _diagnosed(capture) or capture.signature}, operators)
    _, found = counted(session, (), {"": bug})
    own, new, old = found[""].id, found[""].root, capture.bug
    belongs(session, capture.id, own, new)
    if new == old:
        return
    capture.bug = new
    move_sightings(session, CaptureRow.id == capture.id, old, new)
    for id, sign in sorted([(old, -1), (new, 1)]):  # in one order, so that two processes do not wait for each other
        more = {"captures": BugRow.captures + sign, "occurrences": BugRow.occurrences + sign * capture.occurrences}
        session.execute(update(BugRow).where(BugRow.id == id).values(more))


def retitle(session: Session, bug: int) -> None:
    """Give a bug the headline of its first capture, which may be another one since a script of it was run."""
    first = select(CaptureRow.headline).where(CaptureRow.bug == bug, CaptureRow.headline != "")
    headline = session.scalar(first.order_by(CaptureRow.id).limit(1))
    if headline:
        session.execute(update(BugRow).where(BugRow.id == bug).values(headline=headline))


def move_sightings(session: Session, captures: ColumnElement[bool], old: int | None, new: int | None) -> None:
    """The sightings of these captures are no longer counted for the bug ``old``, but for ``new``, if that is given.

    Both are locked.
    """
    count = func.sum(SightingRow.count)
    query = select(SightingRow.day, SightingRow.environment, count).join(
        CaptureRow, CaptureRow.id == SightingRow.capture
    )
    sums = session.execute(query.where(captures).group_by(SightingRow.day, SightingRow.environment)).all()
    for id, sign in ((old, -1), (new, 1)):
        if id is not None:
            rows = [
                {"bug": id, "day": day, "environment": environment, "count": sign * int(number)}
                for day, environment, number in sorted(sums)
            ]
            insert(session, BugSightingRow, rows, lambda more: {"count": BugSightingRow.count + more["count"]})
    if old is not None:
        session.execute(delete(BugSightingRow).where(BugSightingRow.bug == old, BugSightingRow.count <= 0))


def _diagnosed(capture: CaptureRow) -> str:
    """The digest of the signature with what the compiler printed, which a replay may have shown after the capture, of a
    failure whose message is the same for every bug; empty for any other."""
    failure = codec.load(loads(capture.failure), Failure) if capture.failure is not None else None
    told = failure is not None and bool(capture.signature) and failure.is_generic() and bool(failure.diagnostics)
    return signature(failure).digest if failure is not None and told else ""


_OF_CAPTURE = ("kind", "phase", "backend", "signature", "headline", "reason", "created", "last_seen")


def _chosen(query: Select[Any], wanted: BugFilter) -> Select[Any]:
    """``query`` of bugs, without those that are not ``wanted``."""
    if BugStatus.DUPLICATE not in wanted.statuses:
        query = query.where(BugRow.captures > 0)
    if wanted.statuses:
        said = select(TriageRow.bug).where(TriageRow.status.in_([one.value for one in wanted.statuses]))
        is_open = BugRow.id.not_in(select(TriageRow.bug)) if BugStatus.OPEN in wanted.statuses else false()
        query = query.where(or_(BugRow.id.in_(said), is_open))
    for label in wanted.labels:
        query = query.where(BugRow.id.in_(bug_labels.bugs_with(label)))
    if wanted.kind:
        query = query.where(BugRow.kind == wanted.kind)
    if wanted.backend:
        query = query.where(BugRow.backend == wanted.backend)
    if wanted.state is not None:
        has = select(CaptureRow.id).where(CaptureRow.bug == BugRow.id, CaptureRow.state == wanted.state.value)
        query = query.where(has.exists())
    return query.where(_says(wanted.text)) if wanted.text else query


def _says(text: str) -> ColumnElement[bool]:
    """Whether a bug has this text, or this number."""
    number = text.removeprefix("#")
    if text.startswith("#") and number.isascii() and number.isdecimal() and len(number) < 19:
        return BugRow.id == int(number)
    columns = (BugRow.headline, BugRow.backend, BugRow.operators, BugRow.signature)
    calling = (
        select(CaptureRow.bug)
        .join(ReductionRow, ReductionRow.capture == CaptureRow.id)
        .where(ReductionRow.operators.icontains(text, autoescape=True))
    )
    return or_(*(column.icontains(text, autoescape=True) for column in columns), BugRow.id.in_(calling))


def _parsed(key: str, *, text: bool) -> tuple[str | int, int]:
    """The value and the id in a key of a list."""
    value, _, id = key.rpartition(" ")
    if not re.fullmatch(r"[0-9]{1,18}", id) or not re.fullmatch(r"[0-9:.TZ+-]{1,40}" if text else "[0-9]{1,18}", value):
        raise ValueError(f"{key!r:.80} is no key of a list of bugs")
    return value if text else int(value), int(id)


def _infos(session: Session, ids: Sequence[int]) -> list[BugInfo]:
    """The bugs with these ids, in this order, in as many queries as there are facts of them."""
    rows = {row.id: row for row in session.scalars(select(BugRow).where(BugRow.id.in_(ids)))}
    captures = {id: rows[id].captures for id in ids}
    first = _first(session, captures)
    if alone := [id for id in ids if not first[id] and captures[id]]:
        raise ForeignValue(f"bug {alone[0]} without its captures")
    states, sizes, tried = _states(session, captures), _sizes(session, ids), _tried(ids)
    bug: Any
    newest = (ReductionRow.finished.is_not(None).desc(), ReductionRow.finished.desc(), ReductionRow.id.desc())
    rank = func.row_number().over(partition_by=ReductionRow.capture, order_by=newest).label("rank")
    ranked = (
        select(tried.c.bug, ReductionRow.id, ReductionRow.nodes_after, ReductionRow.operators, rank)
        .join(tried, tried.c.id == ReductionRow.capture)
        .subquery()
    )
    least_first = (func.coalesce(ranked.c.nodes_after, _UNKNOWN), ranked.c.id)
    order = func.row_number().over(partition_by=ranked.c.bug, order_by=least_first).label("place")
    placed = select(ranked.c.bug, ranked.c.nodes_after, ranked.c.operators, order).where(ranked.c.rank == 1).subquery()
    smallest = select(placed.c.bug, placed.c.nodes_after, placed.c.operators).where(placed.c.place == 1)
    after: dict[int, int | None] = {}
    calls: dict[int, str] = {}
    for bug, nodes, operators in session.execute(smallest):
        after[bug] = None if nodes is None else _size(nodes)
        calls[bug] = printable(operators) if isinstance(operators, str) else ""
    scripts = (
        select(tried.c.bug, func.min(ReproRow.nodes))
        .join(tried, tried.c.id == ReproRow.capture)
        .where(ReproRow.format == "script", ReproRow.verified > 0)
        .group_by(tried.c.bug)
    )
    for bug, nodes in session.execute(scripts):
        sized = [None if nodes is None else _size(nodes), after.get(bug)]
        after[bug] = min((size for size in sized if size is not None), default=None)
    lines = (
        select(tried.c.bug, ArtifactRow.content)
        .join(tried, tried.c.id == ArtifactRow.capture)
        .where(ArtifactRow.kind == COMES_FROM)
        .order_by(tried.c.id.desc())
    )
    places = {bug: text for bug, content in session.execute(lines) if (text := line(content))}
    said = {row.bug: row for row in session.scalars(select(TriageRow).where(TriageRow.bug.in_(ids)))}
    merged: dict[int, list[int]] = {id: [] for id in ids}
    inside = select(TriageRow.duplicate_of, TriageRow.bug).where(TriageRow.duplicate_of.in_(ids))
    for bug, id in session.execute(inside.order_by(TriageRow.bug)):
        merged[bug].append(id)
    labels = bug_labels.of_bugs(session, ids)
    return [
        rows[id].to(
            BugInfo, status=status_of(said[id].status if id in said else None),
            duplicate_of=said[id].duplicate_of if id in said else None,
            fixed_in=(versions_of(said[id].versions) or None) if id in said else None,
            merged=tuple(merged[id]), ids=tuple(first[id]), states=states[id], nodes_after=after.get(id),
            labels=labels[id], comes_from=places.get(id, ""), calls=calls.get(id, ""),
            nodes_before=sizes.get(id),
        )
        for id in ids
    ]  # fmt: skip


def _states(session: Session, captures: Mapping[int, int]) -> dict[int, dict[State, int]]:
    """Count the captures of each bug by state. ``captures`` has the number of captures of each bug.

    Pending captures, which may be very many, are not counted: they are the remainder.
    """
    pending, of_them = State.PENDING.value, CaptureRow.bug.in_(captures)
    columns, keys = (CaptureRow.bug, CaptureRow.state, func.count()), (CaptureRow.bug, CaptureRow.state)
    parts = [
        select(*columns).where(of_them, which).group_by(*keys)
        for which in (CaptureRow.state < pending, CaptureRow.state > pending)  # two parts of an index
    ]
    found: dict[int, dict[State, int]] = {id: {} for id in captures}
    bug: Any
    for bug, state, number in session.execute(union_all(*parts)):
        found[bug][_state(state)] = number
    for id, in_all in captures.items():
        if (left := in_all - sum(found[id].values())) > 0:
            found[id][State.PENDING] = left
    return found


def _sizes(session: Session, ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The nodes of the smallest and of the largest captured graph of each bug: two look-ups in an index."""
    of_bug = CaptureRow.bug == BugRow.id
    least, most = (
        select(of_all(CaptureRow.nodes_before)).where(of_bug).scalar_subquery() for of_all in (func.min, func.max)
    )
    found = session.execute(select(BugRow.id, least, most).where(BugRow.id.in_(ids)))
    return {id: (_size(small), _size(large)) for id, small, large in found if small is not None}


def _first(session: Session, captures: Mapping[int, int]) -> dict[int, list[int]]:
    """The ids of the first captures of each bug, which has so many of them."""
    first: dict[int, list[int]] = {id: [] for id in captures}
    few = [id for id, number in captures.items() if number <= _OWN_QUERY_CAPTURES]
    place = func.row_number().over(partition_by=CaptureRow.bug, order_by=CaptureRow.id).label("place")
    numbered = select(CaptureRow.bug, CaptureRow.id, place).where(CaptureRow.bug.in_(few)).subquery()
    chosen = select(numbered.c.bug, numbered.c.id).where(numbered.c.place <= LISTED).order_by(numbered.c.id)
    for bug, id in session.execute(chosen):
        first[bug].append(id)
    for bug in captures.keys() - set(few):
        of_it = select(CaptureRow.id).where(CaptureRow.bug == bug).order_by(CaptureRow.id).limit(LISTED)
        first[bug] += session.scalars(of_it)
    return first


def _tried(ids: Sequence[int]) -> Subquery:
    """Select ``id`` and ``bug`` of the captures of these bugs whose minification has begun or ended.

    A bug that occurs again and again in other graphs has few of them.
    """
    own, of_them = select(CaptureRow.id, CaptureRow.bug), CaptureRow.bug.in_(ids)
    over = own.where(of_them, CaptureRow.state.in_([each.value for each in State if each is not State.PENDING]))
    begun = own.join(ReductionRow, ReductionRow.capture == CaptureRow.id)
    return union(over, begun.where(ReductionRow.finished.is_(None), of_them)).subquery()


def line(content: str) -> str:
    """The text in an artifact, empty where it holds anything else."""
    try:
        text = parse_value(content)
    except InvalidDocument:
        return ""
    return printable(text) if isinstance(text, str) else ""


def _size(number: Any) -> int:
    """The least of a column, which has no type of its own in SQLite."""
    if type(number) is not int:
        raise ForeignValue(f"{type(number).__name__} as a number of nodes")
    return number


def _state(name: str) -> State:
    try:
        return State(name)
    except ValueError as exc:
        raise ForeignValue(f"a state of a capture that cannot be read: {exc}") from exc


def _status_or_open(name: str | None) -> BugStatus:
    """The status of a bug as a row says it. One that cannot be read hides no other: it counts as open."""
    try:
        return status_of(name)
    except ForeignValue:
        return BugStatus.OPEN


def status_of(name: str | None) -> BugStatus:
    """The status of a bug as a row says it, open without a row. Raises `ForeignValue`."""
    try:
        return BugStatus.OPEN if name is None else BugStatus(name)
    except ValueError as exc:
        raise ForeignValue(f"a status of a bug that cannot be read: {exc}") from exc


def versions_of(text: str | None) -> dict[str, str]:
    """The versions in a column, none of NULL."""
    found = {} if text is None else loads(text)
    return {name: printable(str(version)[:100]) for name, version in list(found.items())[:100]}
