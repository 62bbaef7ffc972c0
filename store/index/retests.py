"""The retests of an index: minimal cases that `minify retest` ran again, and what became of them.

Rows are only ever added, each in a transaction of its own: two processes on one index lose nothing, and the history
of a case is what its rows say. A *round* holds the rows of one command, so that one that was interrupted goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from .. import codec
from ..document.case import Json
from ..errors import ForeignValue
from .database import Database, now
from .documents import digest, dumps, loads
from .tables import CaptureRow, RetestResult, RetestRow, RoundRow

#: Modules whose versions are kept with a retest, and the longest name or version.
MOST_VERSIONS, LONGEST = 100, 100
#: A round that was interrupted longer ago is not resumed: the machine may be another one by now.
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
        return codec.dump(self)


class Retests:
    """``index.retests``: rounds of retests and their results."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin_round(self, config: Json, *, resume: bool = True) -> tuple[int, list[Retest]]:
        """A round of retests with this ``config``, and what it has answered: the last one, where it was interrupted."""
        text = dumps(config)
        key = digest(text.encode())
        oldest = (datetime.now(UTC) - RESUMED).isoformat(timespec="seconds")
        with self._database.writing() as session:
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
        """Close a round: the next one starts anew."""
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
        """Remember what became of a case."""
        kept = {str(k)[:LONGEST]: str(v)[:LONGEST] for k, v in sorted(versions.items())[:MOST_VERSIONS]}
        with self._database.writing() as session:
            self._database.need(session, CaptureRow, capture_id)
            row = RetestRow(
                round=round_id, capture=capture_id, backend=backend, result=RetestResult(result).value,
                message=message[:2000], signature=signature[:32], shown=shown, runs=runs, seconds=float(seconds),
                versions=dumps(kept), at=now(),
            )  # fmt: skip
            session.add(row)
            session.flush()
            return _retest(row)

    def find(self, capture_ids: Sequence[int] = ()) -> list[Retest]:
        """Every retest of these captures (empty: of all), oldest first."""
        query = select(RetestRow).order_by(RetestRow.id)
        if capture_ids:
            query = query.where(RetestRow.capture.in_([id for id in capture_ids if 0 < id < 1 << 63]))
        with self._database.reading() as session:
            return [_retest(row) for row in session.scalars(query)]


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
