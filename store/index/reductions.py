"""The reductions of an index: their accepted steps, and the best case so far.

Each write is its own transaction, and the answers to queries are written before a step that rests on them
(`fxminify.store.index.verdicts`), so a killed reduction goes on where it was. A new best case replaces the previous
one; storages that only the previous one needed are deleted.

A step is written when its case is accepted. Its *difference* is text for people: lines that begin with ``-`` or ``+``.
Its case is stored if it is small, so that a reduction can continue from there. A resumed reduction writes the same
steps again. A step whose number and query key are already stored stays unchanged; a step with another key replaces the
old one and deletes all later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from .. import codec
from ..document.case import Blobs, Case, Json, called_names
from ..private_values import here
from . import bugs
from .cases import CaseStore
from .database import Database, now
from .documents import digest, dumps, loads
from .tables import CaptureRow, ReductionRow, StepRow
from .trust import origin_tag
from .verdicts import Verdicts

#: The most characters of the difference of a step; the middle of a longer one is cut out.
LONGEST_DIFFERENCE = 200_000
#: The most characters of the operators of a best case.
LONGEST_OPERATORS = 1000


@dataclass(frozen=True, slots=True)
class ReductionInfo:
    """A reduction. ``seconds`` is wall time, ``accepted`` the number of steps taken so far."""

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
class StepInfo:
    """An accepted step, ``number`` counted from 1, which ``pass_name`` proposed.

    ``nodes`` and ``inputs`` are counts of its case. ``queries`` and ``seconds`` (wall time) are totals of the
    reduction so far. ``key`` is the key of its query. ``difference`` is a diff from the step before. ``kept`` is
    true if its case is stored. ``at`` is an ISO time (UTC).
    """

    number: int
    pass_name: str
    key: str
    nodes: int
    inputs: int
    queries: int = 0
    seconds: float = 0.0
    difference: str = ""
    kept: bool = False
    at: str = ""

    def to_json(self) -> Json:
        """The fields as JSON values; ``difference`` is a list of lines."""
        return {**codec.dump(self), "difference": self.difference.splitlines()}


class Reductions:
    """``index.reductions``: writing and reading the reductions of captures."""

    def __init__(self, database: Database, cases: CaseStore, verdicts: Verdicts) -> None:
        self._database = database
        self._cases = cases
        self._verdicts = verdicts
        #: Reductions that this process began of cases that its user made: what comes of them is signed.
        self._ours: set[int] = set()

    def begin(self, capture_id: int, config: Json, *, ours: bool = False) -> ReductionInfo:
        """Resume the unfinished reduction of this capture with the same ``config``, or start one.

        ``ours``: the case that is reduced was made by this user. Only then are the cases of its steps signed, because
        what comes of somebody else's case runs code of theirs.
        """
        text = dumps(config)
        key = digest(text.encode())
        with self._database.writing() as session:
            self._database.need(session, CaptureRow, capture_id, lock=True)
            self._database.check_lease(session, capture_id)
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
            (self._ours.add if ours else self._ours.discard)(row.id)
            return _info(row, resumed=resumed)

    def finish(
        self,
        reduction_id: int,
        *,
        queries: int,
        nodes_before: int,
        nodes_after: int,
        seconds: float,
        finished: bool = True,
    ) -> None:
        """Store the figures of a reduction. A ``finished`` reduction is never resumed, and says which bug it was."""

        def write(session: Session) -> None:
            row = self._own(session, reduction_id)
            row.queries, row.nodes_before, row.nodes_after = queries, nodes_before, nodes_after
            row.seconds, row.finished = float(seconds), now() if finished else row.finished
            if finished:
                capture = self._database.need(session, CaptureRow, row.capture, lock=True)
                bugs.reassign(session, capture, row.operators or "")

        self._verdicts.flush()
        self._database.write(write)

    def last(self, capture_id: int) -> ReductionInfo | None:
        """The reduction whose best case represents a capture: see `precedence`."""
        with self._database.reading() as session:
            row = last_row(session, capture_id)
            return None if row is None else _info(row, resumed=False)

    def unfinished(self, capture_id: int) -> list[ReductionInfo]:
        """The reductions of a capture that a later run can resume, oldest first, with or without a best case."""
        with self._database.reading() as session:
            rows = session.scalars(
                select(ReductionRow)
                .where(ReductionRow.capture == capture_id, ReductionRow.finished.is_(None))
                .order_by(ReductionRow.id)
            ).all()
            return [_info(row, resumed=False) for row in rows]

    def best(self, reduction_id: int) -> Case | None:
        """Return the smallest case so far of a reduction, or None before the first one. Raises `StoreError`."""
        with self._database.reading() as session:
            row = self._database.need(session, ReductionRow, reduction_id)
        return None if row.best is None else self._cases.load(row.best, f"the best of reduction {row.id}")

    def accept(self, reduction_id: int, case: Case, blobs: Blobs, *, step: int | None = None) -> None:
        """Make ``case`` the best of this reduction. If ``step`` is given, store it as the case of that step, too."""
        self._verdicts.flush()
        with self._cases.staged(case, blobs) as staged:

            def replace_best(session: Session) -> list[str]:
                row = self._own(session, reduction_id)
                old, key = row.best, staged.key
                self._cases.insert(session, [staged])
                identity = self._database.need(session, CaptureRow, row.capture).identity
                row.best, row.origin = key, origin_tag(key, identity) if reduction_id in self._ours else ""
                row.nodes_after, row.inputs_after = case.graph.count, len(case.inputs)
                row.operators = called_names(case)[:LONGEST_OPERATORS]
                if step is not None and (kept := session.get(StepRow, (reduction_id, step))) is not None:
                    kept.document, kept.origin = key, row.origin
                session.flush()
                return [] if old == key else self._cases.drop(session, old)

            dropped = self._database.write(replace_best)
        self._cases.sweep(dropped)

    def add_step(self, reduction_id: int, step: StepInfo, case: Case | None = None, blobs: Blobs | None = None) -> None:
        """Store ``step``. A ``case`` is stored with it and becomes the best of the reduction."""
        self._verdicts.flush()
        text = here().mask(step.difference)
        if len(text) > LONGEST_DIFFERENCE:
            text = f"{text[: LONGEST_DIFFERENCE // 2]}\n[...]\n{text[-LONGEST_DIFFERENCE // 2 :]}"

        def put(session: Session) -> list[str]:
            row = self._own(session, reduction_id)
            known = session.get(StepRow, (reduction_id, step.number))
            if known is not None and known.key == step.key:
                return []
            dropped = self._forget_from(session, reduction_id, step.number)
            row.accepted = step.number
            session.add(
                StepRow(
                    reduction=reduction_id, number=step.number, pass_name=step.pass_name, key=step.key,
                    nodes=step.nodes, inputs=step.inputs, queries=step.queries, seconds=float(step.seconds),
                    difference=text, at=now(),
                )
            )  # fmt: skip
            return dropped

        self._cases.sweep(self._database.write(put))
        if case is not None and blobs is not None:
            self.accept(reduction_id, case, blobs, step=step.number)

    def steps(self, reduction_id: int) -> list[StepInfo]:
        """The steps of a reduction, in order."""
        with self._database.reading() as session:
            rows: Sequence[StepRow] = session.scalars(
                select(StepRow).where(StepRow.reduction == reduction_id).order_by(StepRow.number)
            ).all()
        return [row.to(StepInfo, kept=row.document is not None) for row in rows]

    def _own(self, session: Session, reduction_id: int) -> ReductionRow:
        """Return the row of a reduction, locked until the transaction ends."""
        row = self._database.need(session, ReductionRow, reduction_id, lock=True)
        self._database.check_lease(session, row.capture)
        return row

    def _forget_from(self, session: Session, reduction_id: int, number: int) -> list[str]:
        """Delete the steps from ``number`` on. Returns the keys of the storages deleted with them."""
        where = (StepRow.reduction == reduction_id, StepRow.number >= number)
        documents = set(session.scalars(select(StepRow.document).where(*where, StepRow.document.is_not(None))))
        session.execute(delete(StepRow).where(*where))
        session.flush()
        return [blob for key in sorted(filter(None, documents)) for blob in self._cases.drop(session, key)]


def precedence(row: ReductionRow) -> tuple[bool, str, int]:
    """The sort key of the reductions of a capture; the greatest represents the capture. It is the one that was finished
    last (a reduction may be resumed after another began), or the newest if none is finished."""
    return row.finished is not None, row.finished or "", row.id


def last_row(session: Session, capture_id: int) -> ReductionRow | None:
    """Return the reduction with a best case that represents a capture, or None without such a reduction."""
    rows = session.scalars(
        select(ReductionRow).where(ReductionRow.capture == capture_id, ReductionRow.best.is_not(None))
    )
    return max(rows, key=precedence, default=None)


def _info(row: ReductionRow, *, resumed: bool) -> ReductionInfo:
    return row.to(ReductionInfo, config=loads(row.config), resumed=resumed, finished=row.finished is not None)
