"""The queries of reductions and their answers, which are written in batches.

A search asks hundreds of short queries, and a transaction for each would take longer than many a query. So a batch is
written `WAIT` seconds after its first entry, or when it has `MOST` entries, and always before a step of the reduction
is stored. After ``kill -9`` the next run repeats the queries of the last moment and no others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, select
from sqlalchemy.orm import Session

from ..errors import LeaseLost, StoreError
from ..private_values import here
from .database import Database, insert
from .tables import ReductionRow, VerdictRow

#: Seconds until an entry is written, and the most entries that wait.
WAIT, MOST = 0.1, 50

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """An answered query.

    ``outcome`` is a value of `fxminify.minifier.oracle.verdict.Outcome`. ``key`` is the digest of the candidate.
    ``signature`` is the digest of the failure, None if the candidate did not fail. ``seconds`` is wall time,
    ``detail`` explains the answer, ``asks`` counts how often the query was sent.
    """

    key: str
    pass_name: str
    outcome: str
    signature: str | None
    seconds: float
    detail: str
    asks: int


class Verdicts:
    """The queries of all reductions of an index. May be shared by threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.RLock()
        self._waiting: dict[_Key, dict[str, Any]] = {}
        self._names: dict[_Key, str] = {}
        self._captures: dict[int, int] = {}
        self._timer: threading.Timer | None = None

    def asked(self, reduction_id: int, key: str, pass_name: str) -> None:
        """Note a query before it is asked. ``asks`` counts a repeated query, too."""
        with self._noting():
            if reduction_id not in self._captures:
                with self._database.reading() as session:
                    row = self._database.need(session, ReductionRow, reduction_id)
                self._captures[reduction_id] = row.capture
            self._names[reduction_id, key] = pass_name
            self._entry(reduction_id, key)["asks"] += 1

    def answered(
        self, reduction_id: int, key: str, outcome: str, signature: str | None, seconds: float, detail: str
    ) -> None:
        """Note the answer to a query that was `asked`."""
        with self._noting():
            if (reduction_id, key) not in self._names:
                raise ValueError(f"query {key!r} of reduction {reduction_id} was never asked")
            self._entry(reduction_id, key).update(
                outcome=str(outcome), signature=signature, seconds=float(seconds), detail=here().mask(detail)
            )

    def find(self, reduction_id: int, *, prefix: str = "") -> dict[str, StoredVerdict]:
        """Every answered query of a reduction whose key begins with ``prefix``, by key."""
        self.flush()
        query = select(VerdictRow).where(VerdictRow.reduction == reduction_id, VerdictRow.outcome.is_not(None))
        if prefix:
            query = query.where(VerdictRow.key.startswith(prefix, autoescape=True))
        with self._database.reading() as session:
            return {row.key: row.to(StoredVerdict) for row in session.scalars(query)}

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._waiting:
                try:
                    self._database.write(self._write)
                except LeaseLost:
                    self._waiting.clear()  # another process asks these again
                    raise
                self._waiting.clear()

    def _write(self, session: Session) -> None:
        for capture in sorted({self._captures[reduction] for reduction, _ in self._waiting}):
            self._database.check_lease(session, capture)
        insert(session, VerdictRow, list(self._waiting.values()), _merged)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        with self._lock:
            yield
            if len(self._waiting) >= MOST:
                self.flush()
            elif self._timer is None and self._waiting:
                self._timer = threading.Timer(WAIT, self._later)
                self._timer.daemon = True
                self._timer.start()

    def _later(self) -> None:
        with suppress(StoreError):  # what could not be written still waits, and the next flush raises
            self.flush()

    def _entry(self, reduction_id: int, key: str) -> dict[str, Any]:
        new = {
            "reduction": reduction_id, "key": key, "pass_name": self._names[reduction_id, key], "asks": 0,
            "outcome": None, "signature": None, "seconds": 0.0, "detail": "",
        }  # fmt: skip
        return self._waiting.setdefault((reduction_id, key), new)


def _merged(new: Any) -> dict[str, Any]:
    """Return the merged columns of a repeated query: it counts as sent again, and an answer replaces an earlier
    one.
    """
    answer = {
        name: case((new.outcome.is_(None), getattr(VerdictRow, name)), else_=new[name])
        for name in ("outcome", "signature", "seconds", "detail")
    }
    return {"asks": VerdictRow.asks + new.asks, **answer}
