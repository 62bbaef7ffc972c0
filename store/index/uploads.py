"""Keys under which senders send, so that what is sent twice counts once.

A sender that gets no answer cannot know whether what it sent was stored. It sends the same again under the same key.
The transaction that stores a capture, or counts one more occurrence, writes the key, and one that finds the key there
does nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from .database import Database, now, table_of
from .tables import UploadRow

#: For so long a key is known. A sender that was in doubt for longer counts an occurrence twice.
KEPT = timedelta(days=30)


class Uploads:
    """``index.uploads``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, key: str) -> int | None:
        """The id of the capture that was stored or counted under ``key``."""
        with self._database.reading() as session:
            return known(session, [key]).get(key)

    def forget(self) -> None:
        """Delete the keys that are no longer needed."""
        oldest = (datetime.now(UTC) - KEPT).date().isoformat()
        self._database.write(lambda session: session.execute(delete(UploadRow).where(UploadRow.day < oldest)))


def known(session: Session, keys: Collection[str]) -> dict[str, int]:
    """The ids of the captures that were stored or counted under those of these keys that are known."""
    if not keys:
        return {}
    return {row.key: row.capture for row in session.scalars(select(UploadRow).where(UploadRow.key.in_(keys)))}


def note(session: Session, captures: Mapping[str, int]) -> None:
    """Write down the keys of uploads. Where another transaction does the same, one of them fails, and
    `fxminify.store.index.database.Database.write` does it again."""
    if captures:
        day = now()[:10]
        rows = [{"key": key, "capture": capture, "day": day} for key, capture in sorted(captures.items())]
        table = table_of(UploadRow)
        session.execute(table.insert().returning(table.c.key), rows).close()
