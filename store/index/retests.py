"""The retests of an index: minimal cases that `minify retest` ran again, with their results.

Rows are only added, each in a transaction of its own, so two processes on one index lose nothing, and the rows of a
case are its history. A *round* has the rows of one command, so that an interrupted command can continue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from .. import codec
from ..document.case import Json
from ..errors import ForeignValue, UnreadableRow
from ..private_values import here
from .database import Database, lock, now
from .documents import digest, dumps, loads
from .tables import CaptureRow, RetestResult, RetestRow, RoundRow

#: The most modules whose versions are stored with a retest, and the most characters of a name or version.
MOST_VERSIONS, LONGEST = 100, 100
#: A round that was interrupted longer ago is not resumed, because the machine may have changed.
RESUMED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Retest:
    """A minimal case that was run again under ``backend``, with the ``versions`` of the modules it used.

    ``shown`` of ``runs`` runs showed the captured failure. ``message`` is what it showed instead, or why it cannot run,
    and ``signature`` the digest of another failure. ``seconds`` is wall time, ``at`` an ISO time (UTC).
    """

    id: int
    capture: int
    backend: str
    result: RetestResult
    message: str
    signature: str
    shown: int
    runs: int
    seconds: float
    versions: Mapping[str, str]
    at: str

    def to_json(self) -> Json:
        """The fields as JSON values."""
        return codec.dump(self)


class Retests:
    """``index.retests``: rounds of retests and their results."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin_round(self, config: Json, *, resume: bool = True) -> tuple[int, list[Retest]]:
        """A new round of retests with this ``config``, or the last one if it was interrupted, and its retests."""
        text = dumps(config)
        key = digest(text.encode())
        oldest = (datetime.now(UTC) - RESUMED).isoformat(timespec="seconds")
        with self._database.writing() as session:
            lock(session.connection())  # else two commands would begin the same round at the same time
            row = session.scalars(
                select(RoundRow).where(RoundRow.config_digest == key).order_by(RoundRow.id.desc()).limit(1)
            ).one_or_none()
            if row is None or row.finished is not None or row.started < oldest or not resume:
                row = RoundRow(config=text, config_digest=key, started=now())
                session.add(row)
                session.flush()
            done = session.scalars(select(RetestRow).where(RetestRow.round == row.id).order_by(RetestRow.id)).all()
            return row.id, [_retest(each) for each in done]

    def finish_round(self, round_id: int) -> None:
        """Mark a round as finished, so that the next command begins a new one."""
        with self._database.writing() as session:
            self._database.need(session, RoundRow, round_id).finished = now()

    def add(
        self,
        capture_id: int,
        backend: str,
        result: RetestResult,
        *,
        message: str = "",
        signature: str = "",
        shown: int,
        runs: int,
        seconds: float,
        versions: Mapping[str, str],
        round_id: int | None = None,
    ) -> Retest:
        """Store the result of a retest."""
        kept = {str(k)[:LONGEST]: str(v)[:LONGEST] for k, v in sorted(versions.items())[:MOST_VERSIONS]}
        with self._database.writing() as session:
            self._database.need(session, CaptureRow, capture_id)
            row = RetestRow(
                round=round_id, capture=capture_id, backend=backend, result=RetestResult(result).value,
                message=here().mask(message)[:2000], signature=signature[:32], shown=shown, runs=runs,
                seconds=float(seconds), versions=dumps(kept), at=now(),
            )  # fmt: skip
            session.add(row)
            session.flush()
            return _retest(row)

    def find(self, capture_ids: Sequence[int] = ()) -> list[Retest]:
        """Every retest of these captures (empty: of all), oldest first.

        Of several captures those that cannot be read are left out; of one they raise `StoreError`.
        """
        query = select(RetestRow).order_by(RetestRow.id)
        if capture_ids:
            query = query.where(RetestRow.capture.in_([id for id in capture_ids if 0 < id < 1 << 63]))
        try:
            with self._database.reading() as session:
                return [_retest(row) for row in session.scalars(query)]
        except UnreadableRow as error:
            if len(set(capture_ids)) == 1:
                raise UnreadableRow(f"a retest of capture {capture_ids[0]} cannot be read: {error}") from error
            with self._database.reading() as session:
                ids = session.scalars(query.with_only_columns(RetestRow.id)).all()
            return [row for id in ids if (row := self._alone(id)) is not None]

    def _alone(self, id: int) -> Retest | None:
        """Return a retest, or None if it cannot be read."""
        try:
            with self._database.reading() as session:
                return _retest(session.get_one(RetestRow, id))
        except UnreadableRow:
            return None


def _retest(row: RetestRow) -> Retest:
    versions = loads(row.versions)
    if len(versions) > MOST_VERSIONS or any(type(v) is not str or len(v) > LONGEST for v in versions.values()):
        raise ForeignValue(f"versions of retest {row.id} that cannot be read")
    try:
        result = RetestResult(row.result)
        datetime.fromisoformat(row.at)
    except ValueError as exc:
        raise ForeignValue(f"a result or a time of retest {row.id} that cannot be read") from exc
    return row.to(Retest, result=result, versions=versions)
