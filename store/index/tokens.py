"""Tokens: the access rights of clients of `minify serve`.

A token is ``fxm_<id>_<secret>`` with 256 random bits. The index stores its sha256, so a person who reads the index
cannot use a token. The rights of a token are its *scopes*. A row with its scopes has a proof that the user who
serves made it (`fxminify.store.index.rights`): write access to the index makes no token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from .. import codec
from ..document.case import Json
from ..errors import ForeignValue, StoreError
from . import events, rights
from .database import Database, now
from .tables import SessionRow, TokenRow

_FORM = re.compile(r"fxm_([1-9][0-9]{0,17})_[\w-]{43}\Z", re.ASCII)
#: The most characters of the name of a token.
_LONGEST = 100


class TokenScope(StrEnum):
    """A right of a token."""

    SUBMIT = "submit"  # send captures
    RUN = "run"  # let workers run its uploads: the server signs them
    READ = "read"  # see what is there
    TRIAGE = "triage"  # change what is to be done
    WORK = "work"  # see what workers are at
    ADMIN = "admin"  # all of this but `run`


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token, without its secret.

    ``revoked`` is when it was, None while it is active. One that is not ``proved`` was not made with this user's key
    and may do nothing here. Of a row that cannot be read ``problem`` says why.
    """

    id: int
    name: str
    scopes: frozenset[TokenScope]
    created: str
    revoked: str | None
    proved: bool = True
    problem: str = ""

    def to_json(self) -> Json:
        return {**codec.dump(self), "scopes": sorted(self.scopes)}


class Tokens:
    """``index.tokens``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def new(self, name: str, scopes: Collection[TokenScope]) -> tuple[TokenInfo, str]:
        """Make a token. Returns it with its text, which is stored nowhere. Raises `StoreError` where there is no key to
        prove it with."""
        given = " ".join(sorted({TokenScope(scope).value for scope in scopes}))
        if not given:
            raise StoreError("a token without a scope may do nothing: give it one")

        def add(session: Session) -> tuple[TokenInfo, str]:
            row = TokenRow(name=name[:_LONGEST], digest="", scopes=given, created=now())
            session.add(row)
            session.flush()
            text = f"fxm_{row.id}_{secrets.token_urlsafe(32)}"
            row.digest = _digest(text)
            row.proof = rights.prove(*_content(row))
            session.flush()
            events.note(session, "token", f"token {row.id} was made: {given}", actor=row.name)
            return _info(row), text

        return self._database.write(add)

    def find(self) -> list[TokenInfo]:
        """Every token, by id."""
        with self._database.reading() as session:
            ids = session.scalars(select(TokenRow.id).order_by(TokenRow.id)).all()
        return self._database.apart(
            ids,
            lambda session, some: [_info(row) for row in _rows(session, some)],
            lambda id, problem: TokenInfo(id, "", frozenset(), "", None, proved=False, problem=problem),
        )

    def revoke(self, id: int) -> TokenInfo:
        """End a token and its sessions. Raises `StoreError` if it does not exist."""

        def revoke(session: Session) -> TokenInfo:
            row = self._database.need(session, TokenRow, id, lock=True)
            if row.revoked is None:
                rights.end(row.proof)
                row.revoked, row.digest, row.proof = now(), "", None  # what is gone cannot be made valid again
                session.execute(delete(SessionRow).where(SessionRow.token == id))
                session.flush()
                events.note(session, "token", f"token {id} was revoked", actor=row.name)
            return _info(row)

        return self._database.write(revoke)

    def check(self, text: str) -> TokenInfo | None:
        """Return the token with this text, or None if it is unknown or revoked."""
        return self.check_all([text])[0]

    def check_all(self, texts: Sequence[str]) -> list[TokenInfo | None]:
        """`check`, of several. One that this user's key did not prove has no scopes."""
        forms = [_FORM.match(text) for text in texts]
        ids = sorted({int(form[1]) for form in forms if form is not None})
        rows = {row.id: row for row in self._database.apart(ids, _rows)}
        found = [None if form is None else rows.get(int(form[1])) for form in forms]
        return valid([row if _is_digest_of(text, row) else None for text, row in zip(texts, found, strict=True)])


def _rows(session: Session, ids: Sequence[int]) -> list[TokenRow]:
    return list(session.scalars(select(TokenRow).where(TokenRow.id.in_(ids)).order_by(TokenRow.id)))


def valid(rows: Sequence[TokenRow | None]) -> list[TokenInfo | None]:
    """Return the tokens of these rows, None for one that was revoked or cannot be read. One that this user's key did
    not prove has no scopes."""
    proved = rights.are_proved([("", ()) if row is None else (row.proof, _content(row)) for row in rows])
    found: list[TokenInfo | None] = []
    for row, ours in zip(rows, proved, strict=True):
        if row is None or row.revoked is not None:
            found.append(None)
        elif not ours:
            found.append(row.to(TokenInfo, scopes=frozenset(), proved=False))
        else:
            found.append(_info(row, proved=True))
    return found


def _is_digest_of(text: str, row: TokenRow | None) -> bool:
    return hmac.compare_digest(_digest(text).encode(), (row.digest if row is not None else "").encode())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _content(row: TokenRow) -> tuple[object, ...]:
    """The content of a row that is proved."""
    return "token", row.id, row.name, row.scopes, row.created, row.digest


def _info(row: TokenRow, *, proved: bool | None = None) -> TokenInfo:
    if proved is None:
        (proved,) = rights.are_proved([(row.proof, _content(row))])
    try:
        return row.to(TokenInfo, scopes=frozenset(map(TokenScope, row.scopes.split())), proved=proved)
    except ValueError as exc:
        raise ForeignValue(f"a scope of token {row.id} that cannot be read") from exc
