"""Keys under which senders send, so that what is sent twice counts once.

A sender that gets no answer cannot know whether what it sent was stored. It sends the same again under the same key.
The transaction that stores a capture, or counts one more occurrence, writes the key, and one that finds the key there
does nothing else.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from .database import Database, now
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
            return known(session, key)

    def forget(self) -> None:
        """Delete the keys that are no longer needed."""
        oldest = (datetime.now(UTC) - KEPT).date().isoformat()
        self._database.write(lambda session: session.execute(delete(UploadRow).where(UploadRow.day < oldest)))


def known(session: Session, key: str) -> int | None:
    """The id of the capture that was stored or counted under ``key``; None without a key."""
    return session.scalar(select(UploadRow.capture).where(UploadRow.key == key)) if key else None


def note(session: Session, key: str, capture: int) -> None:
    """Write down the key of an upload, if it has one. Where another transaction does the same, one of them fails, and
    `fxminify.store.index.database.Database.write` does it again."""
    if key:
        session.add(UploadRow(key=key, capture=capture, day=now()[:10]))
        session.flush()
