"""The events of an index, one row each: new bugs and captures, results of tasks, tokens, and the actor of each.

An event is written in the transaction that it reports. On a server, transactions can end in another order than the
order of their numbers, so a missing number may still appear. `Events.after` stops before such a gap for as long as
a transaction can last. So a reader that asks for the events after the last one it saw misses none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from .. import codec
from ..document.case import Json
from .database import Database
from .leases import clock_of, time_of
from .tables import EventRow

#: Kinds of events: a capture has a verified script, a retest found a bug fixed, a fixed one occurred again.
VERIFIED, FIXED, REGRESSED = "verified", "fixed", "regressed"
#: Seconds for which a missing number may still come. A server ends transactions that stop for 30 s.
SETTLED = 40.0


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event. ``kind`` is one word, ``text`` a sentence, ``actor`` the name of the responsible token or worker.

    ``at`` is a Unix time. The subject of the event is given by its id.
    """

    id: int
    at: float
    kind: str
    text: str
    actor: str
    bug: int | None
    capture: int | None
    task: int | None

    def to_json(self) -> Json:
        return codec.dump(self)


class Events:
    """``index.events``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def last(self) -> int:
        """Return the number of the newest event, or 0 in an index without events."""
        with self._database.reading() as session:
            return session.scalar(select(func.max(EventRow.id))) or 0

    def after(self, id: int, *, limit: int) -> list[EventInfo]:
        """At most ``limit`` events that follow the one with this number, without gaps that may still be filled."""
        following = select(EventRow).where(EventRow.id > id).order_by(EventRow.id).limit(limit)
        with self._database.reading() as session:
            settled = time_of(session) - SETTLED
            rows = session.scalars(following).all()
        found: list[EventInfo] = []
        for row in rows:
            if row.id != id + 1 and row.at > settled:
                break
            id = row.id
            found.append(row.to(EventInfo))
        return found


def note(
    session: Session,
    kind: str,
    text: str,
    *,
    actor: str = "",
    bug: int | None = None,
    capture: int | None = None,
    task: int | None = None,
) -> None:
    """Write an event. Call it last in a transaction, so that others do not wait for its number for long."""
    note_all(session, [{"kind": kind, "text": text, "actor": actor, "bug": bug, "capture": capture, "task": task}])


def note_all(session: Session, told: Sequence[Mapping[str, Any]]) -> None:
    """Write several events, each with the arguments of `note`."""
    if not told:
        return
    given = {"actor": "", "bug": None, "capture": None, "task": None}
    session.execute(insert(EventRow).values(at=clock_of(session)), [{**given, **one} for one in told])
