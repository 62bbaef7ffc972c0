"""Keys under which senders send, so that what is sent twice counts once.

A sender that gets no answer cannot know whether what it sent was stored. It sends the same again under the same key.
The transaction that stores a capture, or counts one more occurrence, writes the key with the digest of what was sent,
and one that finds the key there does nothing else. Under a key that is used, something else is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from .database import Database, now, table_of
from .tables import UploadRow

#: For so long a key is known. A sender that was in doubt for longer counts an occurrence twice.
KEPT = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Sent:
    """An upload: the ``capture`` that it is, and the digest of its ``body`` if that is known."""

    capture: int
    body: str | None = None

    def is_same(self, body: str) -> bool:
        """Return False if something with another digest was sent."""
        return not (self.body and body) or self.body == body


class Uploads:
    """``index.uploads``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, key: str) -> Sent | None:
        """Return what was sent under ``key``, None if nothing was."""
        with self._database.reading() as session:
            return known(session, [key]).get(key)

    def forget(self) -> None:
        """Delete the keys that are no longer needed."""
        oldest = (datetime.now(UTC) - KEPT).date().isoformat()
        self._database.write(lambda session: session.execute(delete(UploadRow).where(UploadRow.day < oldest)))


def known(session: Session, keys: Collection[str]) -> dict[str, Sent]:
    """Return what was sent under these keys, as far as they are known."""
    if not keys:
        return {}
    rows = session.scalars(select(UploadRow).where(UploadRow.key.in_(keys)))
    return {row.key: Sent(row.capture, row.body) for row in rows}


def note(session: Session, sent: Mapping[str, Sent]) -> None:
    """Write down the keys of uploads. Where another transaction does the same, one of them fails, and
    `fxminify.store.index.database.Database.write` does it again."""
    if sent:
        day = now()[:10]
        rows = [{"key": key, "capture": one.capture, "day": day, "body": one.body} for key, one in sorted(sent.items())]
        table = table_of(UploadRow)
        session.execute(table.insert().returning(table.c.key), rows).close()
