"""The status of bugs: ignored, obsolete, fixed, or the same as another; and their labels.

An ignored bug is open again after a number of further occurrences, an obsolete one after the next occurrence. The
transaction that counts the occurrence changes the status (`fxminify.store.index.bugs.count`). A bug that did not
occur for a long time becomes obsolete.

Only a retest makes a bug fixed, with the versions that it ran with. The bug has *regressed* when it occurs, or a
retest fails, with these versions or newer ones. An occurrence with older versions changes nothing.

Merging moves the captures of a bug to another, and its open task. The bug itself stays, as a duplicate without
captures: a later capture of it is found by the same identity and follows (`fxminify.store.index.bugs.counted`).
Each moved capture remembers its own bug, so splitting gives back exactly the captures that merging took, and the
later ones. A duplicate may have duplicates: they move, and come back, with it. A bug shows the labels of its
duplicates with its own (`fxminify.store.index.bug_labels`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, literal, select, update
from sqlalchemy.orm import Session

from ..errors import ForeignValue, StoreError
from ..versions import at_least
from . import bug_labels, bugs, events, queue
from .database import Database, now
from .documents import dumps
from .tables import (
    BugLabelRow,
    BugRow,
    BugStatus,
    CaptureRow,
    MergedRow,
    RetestResult,
    RetestRow,
    State,
    TaskRow,
    TaskState,
    TriageRow,
)
from .tasks import Tasks


@dataclass(frozen=True, slots=True)
class Regrouped:
    """The captures and occurrences of the bug ``bug`` that are, or would be, counted under ``into`` now."""

    bug: int
    into: int
    captures: int
    occurrences: int


#: Days without an occurrence after which a bug is obsolete.
OBSOLETE = 180
#: Bugs that become so in one transaction.
_BATCH = 500
#: What a bug may be that a retest finds fixed.
_FIXABLE = (BugStatus.OPEN, BugStatus.REGRESSED, BugStatus.OBSOLETE)


class Triage:
    """``index.triage``."""

    def __init__(self, database: Database, tasks: Tasks) -> None:
        self._database = database
        self._tasks = tasks

    def set(self, bug: int, status: BugStatus, *, more: int | None = None, actor: str = "") -> None:
        """Set the status of a bug to ignored, obsolete or open. With ``more``, ignore it for that many occurrences.

        Raises `StoreError` for a duplicate, for the status of a duplicate, which `merge` sets, and for a status
        that only `retested` sets.
        """
        if status is BugStatus.DUPLICATE:
            raise StoreError(f"bug {bug} becomes a duplicate by merging it into another one")
        if status in (BugStatus.FIXED, BugStatus.REGRESSED):
            raise StoreError(f"bug {bug} becomes {status} by a retest")

        def write(session: Session) -> None:
            row = self._database.need(session, BugRow, bug, lock=True)
            _need_no_duplicate(session, bug)
            session.execute(delete(TriageRow).where(TriageRow.bug == bug))
            until = row.occurrences + more if more is not None and status is BugStatus.IGNORED else None
            if status is not BugStatus.OPEN:
                session.add(TriageRow(bug=bug, status=status.value, until=until, actor=actor, at=now()))
                session.flush()
            said = status.value + (f" until it occurs {more} more times" if until is not None else "")
            events.note(session, "bug", said, actor=actor, bug=bug)

        self._database.write(write)

    def label(
        self, bug: int, *, add: Collection[str] = (), remove: Collection[str] = (), actor: str = ""
    ) -> tuple[str, ...]:
        """Put labels on a bug, and take others off it and its duplicates. Returns those that it has now, sorted.

        Where that is so already, nothing changes. Raises `StoreError` for what is no label, for a duplicate, and where
        a bug would get more than `fxminify.store.index.bug_labels.MOST`.
        """
        new, old = bug_labels.named(add), bug_labels.named(remove)
        if both := sorted(new & old):
            raise StoreError(f"the label {both[0]} cannot be put on bug {bug} and taken off it at once")

        def write(session: Session) -> tuple[str, ...]:
            self._database.need(session, BugRow, bug, lock=True)
            _need_no_duplicate(session, bug)
            before = bug_labels.of_bugs(session, [bug])[bug]
            added, removed = sorted(new.difference(before)), sorted(old.intersection(before))
            left = sorted({*before, *added}.difference(removed))
            if added and len(left) > bug_labels.MOST:
                raise StoreError(
                    f"bug {bug} would have {len(left)} labels, and {bug_labels.MOST} is the most: remove others first"
                )
            inside = _with_duplicates(session, bug)
            session.execute(delete(BugLabelRow).where(BugLabelRow.bug.in_(inside), BugLabelRow.label.in_(removed)))
            session.add_all(BugLabelRow(bug=bug, label=label) for label in added)
            session.flush()
            if added or removed:
                events.note(session, "bug", bug_labels.in_words(added, removed), actor=actor, bug=bug)
            return tuple(left)

        return self._database.write(write)

    def retested(self, capture: int, versions: Mapping[str, str], *, fixed: bool) -> BugStatus:
        """A retest of a capture passed, or showed the failure, with these versions. Returns the status of its bug now.

        What people said of it, that it is to be ignored, stays. Raises `LeaseLost`.
        """

        def write(session: Session) -> BugStatus:
            self._database.check_lease(session, capture)
            bug = self._database.need(session, CaptureRow, capture).bug
            if bug is None:
                raise ForeignValue(f"capture {capture} without a bug")
            self._database.need(session, BugRow, bug, lock=True)
            said = session.get(TriageRow, bug, populate_existing=True)
            status = bugs.status_of(said.status if said is not None else None)
            if said is not None and status is BugStatus.FIXED:
                before = bugs.versions_of(said.versions)
                if fixed and at_least(before, versions):
                    said.versions = dumps(dict(versions))
                elif not fixed and at_least(versions, before):
                    bugs.regress(session, said, before, versions, capture)
                    return BugStatus.REGRESSED
            elif fixed and status in _FIXABLE:
                new = {"status": BugStatus.FIXED.value, "versions": dumps(dict(versions)), "actor": "", "at": now()}
                session.merge(TriageRow(bug=bug, **new))
                session.flush()
                text = f"its script and its graph pass with {bugs.in_words(versions)}"
                events.note(session, events.FIXED, text, bug=bug, capture=capture)
                return BugStatus.FIXED
            return status

        return self._database.write(write)

    def retire(self, days: int = OBSOLETE) -> int:
        """Bugs that were open, and neither met nor seen by a retest for so many days, are obsolete. Returns how many
        that are."""
        before = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
        failing = (
            select(CaptureRow.bug)
            .join(RetestRow, RetestRow.capture == CaptureRow.id)
            .where(RetestRow.result == RetestResult.FAILING.value, RetestRow.at >= before, CaptureRow.bug.is_not(None))
        )
        unseen = (
            select(BugRow)
            .where(BugRow.last_seen < before, BugRow.captures > 0, BugRow.id.not_in(select(TriageRow.bug)))
            .where(BugRow.id.not_in(failing))
            .order_by(BugRow.id)
            .limit(_BATCH)
            .with_for_update()
        )

        def write(session: Session) -> int:
            ids = [row.id for row in session.scalars(unseen)]
            for id in ids:
                session.add(TriageRow(bug=id, status=BugStatus.OBSOLETE.value, actor="", at=now()))
            session.flush()
            for id in ids:
                events.note(session, "bug", f"obsolete: it was not met for {days} days", bug=id)
            return len(ids)

        done = found = self._database.write(write)
        while found == _BATCH:
            found = self._database.write(write)
            done += found
        return done

    def merge(self, bug: int, into: int, *, preview: bool = False, actor: str = "") -> Regrouped:
        """Count the captures of a bug, also those to come, under the bug ``into``. With ``preview`` only say how many.

        Of their open tasks one stays, or none if there is a verified script. ``into`` shows the labels of both. Raises
        `StoreError` if one of them is a duplicate already.
        """
        if bug == into:
            raise StoreError(f"bug {bug} cannot be merged into itself")

        def write(session: Session) -> Regrouped:
            of_it = CaptureRow.bug == bug
            self._lock(session, of_it, bug, into)
            for id in (bug, into):
                _need_no_duplicate(session, id)
            found = Regrouped(bug, into, *_counts(session, of_it))
            if preview:
                return found
            unmoved = select(CaptureRow.id, literal(bug)).where(of_it, CaptureRow.id.not_in(select(MergedRow.capture)))
            session.execute(insert(MergedRow).from_select(["capture", "bug"], unmoved))
            _move(session, of_it, bug, into)
            session.execute(delete(TriageRow).where(TriageRow.bug == bug))
            session.add(TriageRow(bug=bug, status=BugStatus.DUPLICATE.value, duplicate_of=into, actor=actor, at=now()))
            tasks = session.scalars(select(TaskRow).where(TaskRow.bug == bug).with_for_update()).all()
            self._keep_one(session, tasks, into, actor)
            session.flush()
            events.note(session, "bug", f"merged into bug {into}", actor=actor, bug=bug)
            return found

        return self._database.write(write)

    def split(self, bug: int, *, preview: bool = False, actor: str = "") -> Regrouped:
        """Make a duplicate a bug of its own again, with the captures that are its own. With ``preview`` only say how
        many. Raises `StoreError` if it is no duplicate."""

        def write(session: Session) -> Regrouped:
            self._database.need(session, BugRow, bug)
            if (root := bugs.root(session, bug)) == bug:
                raise StoreError(f"bug {bug} is no duplicate of another one: there is nothing to split")
            inside = _with_duplicates(session, bug)
            own = CaptureRow.id.in_(select(MergedRow.capture).where(MergedRow.bug.in_(inside)))
            self._lock(session, own, bug, root)
            found = Regrouped(bug, bug, *_counts(session, own))
            if preview:
                return found
            moved = session.scalars(select(CaptureRow.id).where(own)).all()
            _move(session, own, root, bug)
            session.execute(delete(MergedRow).where(MergedRow.bug == bug))
            session.execute(delete(TriageRow).where(TriageRow.bug == bug))
            for task in session.scalars(select(TaskRow).where(TaskRow.bug == root).with_for_update()):
                if task.capture in moved:
                    task.bug = bug
                    if task.open is not None:
                        task.open = queue.key_of(task.kind, bug, task.capture, task.needs)
            session.flush()
            events.note(session, "bug", f"split from bug {root}", actor=actor, bug=bug)
            return found

        found = self._database.write(write)
        if not preview:
            self._tasks.follow(bug)
        return found

    def _lock(self, session: Session, captures: ColumnElement[bool], *ids: int) -> None:
        """Lock these captures, then these bugs: in the order of those who count occurrences."""
        session.execute(select(CaptureRow.id).where(captures).order_by(CaptureRow.id).with_for_update()).all()
        for id in sorted(ids):
            self._database.need(session, BugRow, id, lock=True)

    def _keep_one(self, session: Session, tasks: Sequence[TaskRow], into: int, actor: str) -> None:
        """Give ``tasks`` to the bug ``into``, and cancel open ones that minify of which there are too many now."""
        minify = (TaskRow.kind == queue.MINIFY, TaskRow.bug == into, TaskRow.open.is_not(None))
        others = session.scalars(select(TaskRow).where(*minify).with_for_update()).all()
        open_ = [*others, *(task for task in tasks if task.open is not None and task.kind == queue.MINIFY)]
        verified = select(CaptureRow.id).where(CaptureRow.bug == into, CaptureRow.state == State.VERIFIED.value)
        kept = [task for task in open_ if task.state == TaskState.LEASED.value] or open_
        if session.scalar(verified.limit(1)) is not None:
            kept = []
        for task in tasks:
            task.bug = into
        for task in open_:
            if task not in kept[:1]:
                task.state, task.open, task.finished = TaskState.CANCELLED.value, None, now()
                task.why = f"bug {into} has another task, or a script, since bugs were merged"
        session.flush()
        for task in kept[:1]:
            task.open = queue.open_key(into)
        session.flush()
        for task in open_:
            if task not in kept[:1]:
                about: dict[str, Any] = {"bug": into, "capture": task.capture, "task": task.id}
                events.note(session, "task", f"{task.state}: {task.why}", actor=actor, **about)


def _duplicate_of(session: Session, bug: int) -> int | None:
    return session.scalar(select(TriageRow.duplicate_of).where(TriageRow.bug == bug))


def _need_no_duplicate(session: Session, bug: int) -> None:
    if (other := _duplicate_of(session, bug)) is not None:
        raise StoreError(f"bug {bug} is a duplicate of bug {other}: split it from that one first")


def _with_duplicates(session: Session, bug: int) -> list[int]:
    """A bug, its duplicates, theirs, and so on."""
    found, new = [bug], [bug]
    while new:
        below = session.scalars(select(TriageRow.bug).where(TriageRow.duplicate_of.in_(new))).all()
        new = [id for id in below if id not in found]
        found += new
    return found


def _counts(session: Session, captures: ColumnElement[bool]) -> tuple[int, int]:
    query = select(func.count(), func.coalesce(func.sum(CaptureRow.occurrences), 0)).where(captures)
    number, occurrences = session.execute(query).one()
    return int(number), int(occurrences)


def _move(session: Session, captures: ColumnElement[bool], old: int, new: int) -> None:
    """Count these captures of the bug ``old`` under the bug ``new``."""
    number, occurrences = _counts(session, captures)
    times = select(func.min(CaptureRow.created), func.max(CaptureRow.last_seen)).where(captures)
    first, last = session.execute(times).one()
    bugs.move_sightings(session, captures, old, new)
    session.execute(
        update(CaptureRow).where(captures).values(bug=new), execution_options={"synchronize_session": False}
    )
    for id, sign in ((old, -1), (new, 1)):
        row = session.get_one(BugRow, id, populate_existing=True)
        row.captures += sign * number
        row.occurrences += sign * occurrences
        if sign > 0 and number:
            row.created, row.last_seen = min(row.created, first), max(row.last_seen, last)
