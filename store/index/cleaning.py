"""`minify gc`: remove captures that are not needed any more, with all rows that belong to them, and unused
storages.

A capture is removed if it was tried, has no verified script, and did not occur for a while. The captures of a fixed
bug are removed in the same way. Captures that a process works on, or that were not tried yet, stay. A bug with a
triage status stays without captures, so that it is the same bug when it occurs again. Labels alone keep no bug;
they are removed with it. Each batch is one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Select, delete, func, or_, select, update
from sqlalchemy.orm import Session

from .. import codec
from ..document.case import Json
from .blobs import BlobStore
from .bugs import move_sightings
from .cases import CaseStore
from .database import Database
from .leases import time_of
from .tables import (
    ArtifactRow,
    BugLabelRow,
    BugRow,
    BugSightingRow,
    BugStatus,
    CaptureRow,
    LeaseRow,
    MergedRow,
    ReductionRow,
    ReproRow,
    RetestRow,
    SightingRow,
    State,
    StepRow,
    TaskRow,
    TriageRow,
    UploadRow,
    VerdictRow,
)

#: Days after which captures without a verified script, and captures of fixed bugs, are removed.
UNVERIFIED, FIXED = 14, 90
#: Captures of one transaction.
BATCH = 500
#: States of captures that were tried without success.
_TRIED = tuple(
    state.value
    for state in (
        State.UNVERIFIED, State.NOT_REPRODUCED, State.EAGER_REFUSES, State.UNSUPPORTED, State.BLOCKED,
    )
)  # fmt: skip
_OF_CAPTURE = (ArtifactRow, LeaseRow, MergedRow, ReproRow, RetestRow, SightingRow, TaskRow, UploadRow)
#: Seconds for which a file without a row may belong to a capture that is just being stored.
_FRESH = 86400.0


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The captures, bugs and storages that were removed, or would be removed.

    A dry run counts only the storages that no case uses now.
    """

    captures: int
    bugs: int
    storages: int

    def to_json(self) -> Json:
        return codec.dump(self)


class Cleaner:
    """``index.cleaner``."""

    def __init__(self, database: Database, cases: CaseStore, blobs: BlobStore) -> None:
        self._database, self._cases, self._blobs = database, cases, blobs

    def clean(self, *, unverified: int = UNVERIFIED, fixed: int = FIXED, dry_run: bool = False) -> Cleaned:
        """Remove what was not met for so many days. With ``dry_run`` only say how much that is."""
        with self._database.reading() as session:
            of_no_use = _of_no_use(time_of(session), _before(unverified), _before(fixed))
            if dry_run:
                captures, bugs = session.execute(
                    select(func.count(), func.count(func.distinct(CaptureRow.bug))).where(of_no_use)
                ).one()
                whole = select(CaptureRow.bug).where(~of_no_use, CaptureRow.bug.is_not(None))
                kept = session.scalars(
                    select(func.count(func.distinct(CaptureRow.bug))).where(of_no_use, CaptureRow.bug.in_(whole))
                ).one()
                said = session.scalars(
                    select(func.count(func.distinct(CaptureRow.bug))).where(
                        of_no_use, CaptureRow.bug.not_in(whole), CaptureRow.bug.in_(_said())
                    )
                ).one()
                return Cleaned(captures, bugs - kept - said, len(self._blobs.orphans(time.time() - _FRESH)))
        captures = bugs = storages = 0
        chosen = select(CaptureRow).where(of_no_use).order_by(CaptureRow.id).limit(BATCH).with_for_update()
        while True:
            ids, gone, dropped = self._database.write(lambda session: self._batch(session, chosen))
            if not ids:
                break
            captures, bugs, storages = captures + ids, bugs + gone, storages + len(dropped)
            self._cases.sweep(dropped)
        storages += self._blobs.clean(time.time() - _FRESH)
        return Cleaned(captures, bugs, storages)

    def _batch(self, session: Session, chosen: Select[Any]) -> tuple[int, int, list[str]]:
        """Remove some captures. Returns how many captures and bugs that are, and the storages that went with them."""
        rows: Sequence[CaptureRow] = session.scalars(chosen).all()
        if not rows:
            return 0, 0, []
        ids = [row.id for row in rows]
        mine = ReductionRow.capture.in_(ids)
        reductions = select(ReductionRow.id).where(mine)
        documents = {row.document for row in rows}
        for column, where in (
            (ReductionRow.best, mine),
            (StepRow.document, StepRow.reduction.in_(reductions)),
            (ReproRow.document, ReproRow.capture.in_(ids)),
        ):
            documents.update(session.scalars(select(column).where(where)))
        lost: dict[int, tuple[int, int]] = {}
        for row in rows:
            if row.bug is not None:
                number, occurrences = lost.get(row.bug, (0, 0))
                lost[row.bug] = number + 1, occurrences + row.occurrences
        for bug in sorted(lost):
            self._database.need(session, BugRow, bug, lock=True)
            move_sightings(session, CaptureRow.id.in_(ids) & (CaptureRow.bug == bug), bug, None)
        session.expunge_all()
        session.execute(delete(VerdictRow).where(VerdictRow.reduction.in_(reductions)))
        session.execute(delete(StepRow).where(StepRow.reduction.in_(reductions)))
        session.execute(delete(ReductionRow).where(mine))
        for table in _OF_CAPTURE:
            session.execute(delete(table).where(table.capture.in_(ids)))
        session.execute(
            update(CaptureRow).where(CaptureRow.parent.in_(ids)).values(parent=None), execution_options=_PLAIN
        )
        session.execute(delete(CaptureRow).where(CaptureRow.id.in_(ids)))
        for bug, (number, occurrences) in sorted(lost.items()):
            less = {"captures": BugRow.captures - number, "occurrences": BugRow.occurrences - occurrences}
            session.execute(update(BugRow).where(BugRow.id == bug).values(less), execution_options=_PLAIN)
        needed = or_(
            BugRow.id.in_(_said()), BugRow.id.in_(select(TaskRow.bug)), BugRow.id.in_(select(MergedRow.bug))
        )  # fmt: skip
        # This transaction has locked them, so no other one adds rows to them.
        empty = session.scalars(select(BugRow.id).where(BugRow.id.in_(list(lost)), BugRow.captures == 0, ~needed)).all()
        session.execute(delete(BugLabelRow).where(BugLabelRow.bug.in_(empty)))
        session.execute(delete(BugSightingRow).where(BugSightingRow.bug.in_(empty)))
        session.execute(delete(BugRow).where(BugRow.id.in_(empty)), execution_options=_PLAIN)
        dropped = [blob for key in sorted(filter(None, documents)) for blob in self._cases.drop(session, key)]
        return len(ids), len(empty), dropped


#: Rows that this transaction has loaded need not follow.
_PLAIN = {"synchronize_session": False}


def _before(days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")


def _said() -> CompoundSelect[Any]:
    """Bugs about which something was said, also that another one is the same."""
    others = select(TriageRow.duplicate_of).where(TriageRow.duplicate_of.is_not(None))
    return select(TriageRow.bug).union(others)


def _of_no_use(clock: float, unverified: str, fixed: str) -> ColumnElement[bool]:
    """Captures that go."""
    fixed_bugs = select(TriageRow.bug).where(TriageRow.status == BugStatus.FIXED.value, TriageRow.at < fixed)
    in_vain = CaptureRow.state.in_(_TRIED) & (CaptureRow.last_seen < unverified)
    is_over = CaptureRow.bug.in_(fixed_bugs) & (CaptureRow.last_seen < fixed)
    at_work = select(LeaseRow.capture).where(LeaseRow.until > clock)
    to_do = select(TaskRow.capture).where(TaskRow.open.is_not(None))
    return or_(in_vain, is_over) & CaptureRow.id.not_in(at_work) & CaptureRow.id.not_in(to_do)
