"""Reads of a capture that can be run: its cases, its script, and the proof of who made each, in one transaction.

Documents, texts and tags are rows that others may change at any time. So the digest of a document and the tag that
proves its maker come from one transaction, and a document is loaded by that digest, which its content must match:
whatever a row says later, what was proved is what is run. `fxminify.minifier.consent` decides whether it may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from ..document.case import Case
from ..errors import StoreError
from ..recording import backend_of, identity_of, shape_of
from . import trust
from .artifacts import ReproInfo
from .cases import CaseStore
from .database import Database
from .documents import loads
from .reductions import last_row
from .tables import CaptureRow, ReductionRow, ReproRow, StepRow


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case, and whether the tag that was read with it proves that this user made it for this capture."""

    case: Case
    ours: bool


@dataclass(frozen=True, slots=True)
class StoredScript:
    """A script, and whether the tag that was read with it proves that this user rendered it for this capture."""

    repro: ReproInfo
    ours: bool

    @property
    def text(self) -> str:
        return self.repro.text


@dataclass(frozen=True, slots=True)
class StoredCapture:
    """A capture as one transaction found it.

    ``script`` is its script, None if it has none. Cases are loaded when they are asked for, because one that cannot be
    read must not stop what needs another one.
    """

    id: int
    script: StoredScript | None
    _captured: Callable[[], StoredCase]
    _smaller: Callable[[], StoredCase] | None

    def captured(self) -> StoredCase:
        """Return the case as it was captured. Raises `StoreError`, which says why, where it could not be stored."""
        return self._captured()

    def smaller(self) -> StoredCase | None:
        """Return the case of the verified script, else the best of the last reduction; None if there is neither. Raises
        `StoreError`."""
        return None if self._smaller is None else self._smaller()

    def minimal(self) -> StoredCase:
        """Return `smaller`, or else the captured case. Raises `StoreError`."""
        return self.smaller() or self.captured()

    @property
    def ours(self) -> bool:
        """Whether this user made all of it. Raises `StoreError`."""
        return self.captured().ours and self.minimal().ours and (self.script is None or self.script.ours)


@dataclass(frozen=True, slots=True)
class StoredStep:
    """The ``case`` of a step of the reduction with the id ``reduction``."""

    reduction: int
    case: StoredCase


def read(database: Database, cases: CaseStore, id: int) -> StoredCapture:
    """Read the capture ``id``. Raises `StoreError` if it does not exist, or its rows cannot be read."""
    with database.reading() as session:
        row = database.need(session, CaptureRow, id)
        repro = session.get(ReproRow, (id, "script"))
        reduction = last_row(session, id)
    script = None if repro is None else _script(repro, row.identity)
    smaller: Callable[[], StoredCase] | None = None
    if script is not None and script.repro.verified and script.repro.document is not None:
        key, ours = script.repro.document, script.ours
        smaller = lambda: StoredCase(cases.load(key, f"the script of capture {id}"), ours)  # noqa: E731
    elif reduction is not None:
        smaller = lambda: _best(cases, reduction, row.identity)  # noqa: E731
    return StoredCapture(id, script, lambda: _captured(database, cases, row), smaller)


def read_step(database: Database, cases: CaseStore, id: int, number: int) -> StoredStep | None:
    """Read the case of step ``number`` of the last reduction of capture ``id``; None if it was never reduced. Raises
    `StoreError` if there is no such step, or its case was not stored."""
    with database.reading() as session:
        identity = database.need(session, CaptureRow, id).identity
        reduction = last_row(session, id)
        if reduction is None:
            return None
        row = session.get(StepRow, (reduction.id, number)) if abs(number) < 1 << 63 else None
        kept = _kept(session, reduction.id) if row is None or row.document is None else ""
    if row is None or row.document is None:
        what = "was not kept, it is too large" if row is not None else "does not exist"
        raise StoreError(f"step {number} {what}{kept}")
    case = cases.load(row.document, f"step {number} of reduction {reduction.id}")
    return StoredStep(reduction.id, StoredCase(case, trust.is_ours(row.document, identity, row.origin)))


def _kept(session: Session, reduction: int) -> str:
    steps = session.scalars(
        select(StepRow.number).where(StepRow.reduction == reduction, StepRow.document.is_not(None))
    ).all()
    return f"; those kept are {', '.join(map(str, sorted(steps)))}" if steps else ""


def _captured(database: Database, cases: CaseStore, row: CaptureRow) -> StoredCase:
    if row.document is None:
        why = row.reason or "not stored"
        raise StoreError(f"capture {row.id} of {database.name} has no graph that can be run: {why}")
    case = cases.load(row.document, f"capture {row.id}")
    of_it = row.identity == identity_of(backend_of(case, {}), shape_of(case, "", ""), row.signature)
    with database.explained():
        tag = loads(row.provenance).get("origin")
    return StoredCase(case, of_it and trust.is_ours(row.document, row.identity, tag))


def _best(cases: CaseStore, row: ReductionRow, identity: str) -> StoredCase:
    case = cases.load(row.best or "", f"the best of reduction {row.id}")
    return StoredCase(case, trust.is_ours(row.best or "", identity, row.origin))


def _script(row: ReproRow, identity: str) -> StoredScript:
    repro = row.to(ReproInfo)
    return StoredScript(repro, trust.is_our_script(repro.text, repro.origin, repro.document, identity))
