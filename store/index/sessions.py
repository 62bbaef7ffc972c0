"""Sessions of browsers: a person signs in with a token once, and the browser then sends an id.

An id is ``fxs_<id>_<secret>`` with 256 random bits. It is no token: programs cannot use it, and it is worth nothing on
another server. It ends when its person signs out, when its token is revoked, and after `LASTS` seconds.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from . import rights
from .database import Database
from .tables import SessionRow, TokenRow
from .tokens import TokenInfo, valid

#: Seconds for which a browser stays signed in.
LASTS = 7 * 86400
_FORM = re.compile(r"fxs_([1-9][0-9]{0,17})_[\w-]{43}\Z", re.ASCII)


class Sessions:
    """``index.sessions``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, token: TokenInfo) -> str:
        """Begin a session with ``token``, and forget those that are over. Returns its id, which is stored nowhere."""
        until = int(time.time()) + LASTS

        def add(session: Session) -> str:
            session.execute(delete(SessionRow).where(SessionRow.until < time.time()))
            row = SessionRow(token=token.id, until=until, proof="")
            session.add(row)
            session.flush()
            text = f"fxs_{row.id}_{secrets.token_urlsafe(32)}"
            row.proof = rights.prove(*_content(text, row))
            return text

        return self._database.write(add)

    def check_all(self, texts: Sequence[str]) -> list[TokenInfo | None]:
        """Return the token of each of these sessions, None for one that is over or was never begun."""
        forms = [_FORM.match(text) for text in texts]
        ids = sorted({int(form[1]) for form in forms if form is not None})
        rows = {one.id: (one, token) for one, token in self._database.apart(ids, _rows)}
        known = [rows.get(int(form[1])) if form is not None else None for form in forms]
        proved = rights.are_proved([
            ("", ()) if one is None else (one[0].proof, _content(text, one[0]))
            for text, one in zip(texts, known, strict=True)
        ])  # fmt: skip
        tokens = valid([None if one is None else one[1] for one in known])
        return [token if ours else None for token, ours in zip(tokens, proved, strict=True)]

    def end(self, text: str) -> None:
        """End the session with this id, if it is one."""
        form = _FORM.match(text)
        if form is not None and self.check_all([text])[0] is not None:
            self._database.write(lambda session: _end(session, int(form[1])))


def _end(session: Session, id: int) -> None:
    row = session.get(SessionRow, id)
    if row is not None:
        rights.end(row.proof)
        session.delete(row)


def _rows(session: Session, ids: Sequence[int]) -> list[tuple[SessionRow, TokenRow]]:
    """Return the rows of valid sessions, each with the row of its token."""
    both = select(SessionRow, TokenRow).join(TokenRow, TokenRow.id == SessionRow.token)
    found = session.execute(both.where(SessionRow.id.in_(ids), SessionRow.until > time.time()))
    return [(one, token) for one, token in found]


def _content(text: str, row: SessionRow) -> tuple[object, ...]:
    """The content of a row that is proved, with the digest of the id of its session."""
    return "session", row.id, row.token, row.until, hashlib.sha256(text.encode()).hexdigest()
