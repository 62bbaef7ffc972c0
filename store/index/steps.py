"""The steps of a reduction: which pass changed what, after how many questions, and the case it led to.

A step is written when its case was accepted. Its *difference* is text for people, lines that begin with ``-`` or
``+``; its case is kept where it is small, so that a reduction can be gone on with from there. Running a reduction
again writes the same steps again: a step that is there already, known by the key of its question, is left as it is,
and one that differs takes the place of the old one and of all that came after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from ..document.case import Blobs, Case, Json
from ..errors import StoreError
from .reductions import ReductionInfo, Reductions, now, precedence, reduction_info
from .tables import DocumentRow, ReductionRow, StepRow

#: Longest difference that is kept, in characters; the middle of a longer one is cut out.
LONGEST = 200_000


@dataclass(frozen=True, slots=True)
class StepInfo:
    """One accepted step. ``nodes`` and ``inputs`` are those of its case, ``queries`` and ``seconds`` (wall time) what
    the reduction had taken by then, ``key`` is that of the question. ``kept``: its case can be had again."""

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
        return {**asdict(self), "difference": self.difference.splitlines()}


class Steps(Reductions):
    """What `fxminify.store.index.Index` can do for the history of a reduction."""

    def add_step(self, reduction_id: int, step: StepInfo, case: Case | None = None, blobs: Blobs | None = None) -> None:
        """Write ``step`` down; with a ``case`` it is kept, and becomes the best of the reduction."""
        with self._database.writing() as session:
            row = self._need(session, ReductionRow, reduction_id)
            known = session.get(StepRow, (reduction_id, step.number))
            dropped: list[str] = []
            if known is None or known.key != step.key:
                dropped = self._forget_from(session, reduction_id, step.number)
                row.accepted = step.number
                text = step.difference
                if len(text) > LONGEST:
                    text = f"{text[: LONGEST // 2]}\n[...]\n{text[-LONGEST // 2 :]}"
                session.add(
                    StepRow(
                        reduction=reduction_id,
                        number=step.number,
                        pass_name=step.pass_name,
                        key=step.key,
                        nodes=step.nodes,
                        inputs=step.inputs,
                        queries=step.queries,
                        seconds=float(step.seconds),
                        difference=text,
                        at=now(),
                    )
                )
        self._blobs.sweep(dropped)
        if case is not None and blobs is not None:
            self.accept(reduction_id, case, blobs, step=step.number)

    def steps(self, reduction_id: int) -> list[StepInfo]:
        """The steps of a reduction, in order."""
        with self._database.reading() as session:
            rows: Sequence[StepRow] = session.scalars(
                select(StepRow).where(StepRow.reduction == reduction_id).order_by(StepRow.number)
            ).all()
        return [
            StepInfo(
                r.number, r.pass_name, r.key, r.nodes, r.inputs, r.queries, float(r.seconds), r.difference,
                r.document is not None, r.at,
            )
            for r in rows
        ]  # fmt: skip

    def step_case(self, reduction_id: int, number: int) -> Case:
        """The case of a step, validated. Raises `StoreError` where there is none or it was not kept."""
        with self._database.reading() as session:
            row = session.get(StepRow, (reduction_id, number)) if abs(number) < 1 << 63 else None
            steps = session.scalars(
                select(StepRow.number).where(StepRow.reduction == reduction_id, StepRow.document.is_not(None))
            ).all()
        if row is None or row.document is None:
            what = "was not kept, it is too large" if row is not None else "does not exist"
            have = f"; those kept are {', '.join(map(str, sorted(steps)))}" if steps else ""
            raise StoreError(f"step {number} {what}{have}")
        return self._load_case(row.document, f"step {number} of reduction {reduction_id}")

    def last_reduction(self, capture_id: int) -> ReductionInfo | None:
        """The reduction whose best case stands for a capture: see `precedence`."""
        with self._database.reading() as session:
            last = self._last_best(session, capture_id)
        return None if last is None else reduction_info(last, resumed=False)

    def _last_best(self, session: Session, capture_id: int) -> ReductionRow | None:
        rows = session.scalars(
            select(ReductionRow).where(ReductionRow.capture == capture_id, ReductionRow.best.is_not(None))
        )
        return max(rows, key=precedence, default=None)

    def _forget_from(self, session: Session, reduction_id: int, number: int) -> list[str]:
        """Drop the steps from ``number`` on; the keys of the storages that went with them."""
        where = (StepRow.reduction == reduction_id, StepRow.number >= number)
        documents = set(session.scalars(select(StepRow.document).where(*where, StepRow.document.is_not(None))))
        session.execute(delete(StepRow).where(*where))
        session.flush()
        gone: list[str] = []
        for key in sorted(k for k in documents if k is not None):
            if session.get(DocumentRow, key) is not None:
                gone += self._drop_document(session, key)
        return gone
