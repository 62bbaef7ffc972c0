"""Tokens: who may ask `minify serve` for what.

A token is ``fxm_<id>_<secret>`` with 256 random bits. The index has the sha256 of it, so whoever reads the index can
use no token. What a token may do are its *scopes*.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from .. import codec
from ..document.case import Json
from ..errors import ForeignValue, StoreError
from . import events
from .database import Database, now
from .tables import TokenRow

_FORM = re.compile(r"fxm_([1-9][0-9]{0,17})_[\w-]{43}\Z", re.ASCII)
#: The most characters of the name of a token.
_LONGEST = 100


class TokenScope(StrEnum):
    """What a token may do."""

    SUBMIT = "submit"  # send captures
    RUN = "run"  # have workers run what it sends: the server signs it
    READ = "read"  # see what is there
    TRIAGE = "triage"  # change what is to be done
    WORK = "work"  # see what workers are at
    ADMIN = "admin"  # all of this but `run`


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """One token, without its secret. ``revoked`` is when it was, None while it counts."""

    id: int
    name: str
    scopes: frozenset[TokenScope]
    created: str
    revoked: str | None

    def to_json(self) -> Json:
        return {**codec.dump(self), "scopes": sorted(self.scopes)}


class Tokens:
    """``index.tokens``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def new(self, name: str, scopes: Collection[TokenScope]) -> tuple[TokenInfo, str]:
        """Make a token. Returns it with its text, which is stored nowhere."""
        given = " ".join(sorted({TokenScope(scope).value for scope in scopes}))
        if not given:
            raise StoreError("a token without a scope may do nothing: give it one")

        def add(session: Session) -> tuple[TokenInfo, str]:
            row = TokenRow(name=name[:_LONGEST], digest="", scopes=given, created=now())
            session.add(row)
            session.flush()
            text = f"fxm_{row.id}_{secrets.token_urlsafe(32)}"
            row.digest = _digest(text)
            session.flush()
            events.note(session, "token", f"token {row.id} was made: {given}", actor=row.name)
            return _info(row), text

        return self._database.write(add)

    def find(self) -> list[TokenInfo]:
        """Every token, by id."""
        with self._database.reading() as session:
            return [_info(row) for row in session.scalars(select(TokenRow).order_by(TokenRow.id))]

    def revoke(self, id: int) -> TokenInfo:
        """From now on the token counts no more. Raises `StoreError` if there is none with this id."""

        def revoke(session: Session) -> TokenInfo:
            row = self._database.need(session, TokenRow, id, lock=True)
            if row.revoked is None:
                row.revoked = now()
                session.flush()
                events.note(session, "token", f"token {id} was revoked", actor=row.name)
            return _info(row)

        return self._database.write(revoke)

    def check(self, text: str) -> TokenInfo | None:
        """The token with this text, None if there is none that counts."""
        return self.check_all([text])[0]

    def check_all(self, texts: Sequence[str]) -> list[TokenInfo | None]:
        """`check`, of several."""
        forms = [_FORM.match(text) for text in texts]
        ids = {int(form[1]) for form in forms if form is not None}
        with self._database.reading() as session:
            rows = {row.id: row for row in session.scalars(select(TokenRow).where(TokenRow.id.in_(ids)))}
        found = [None if form is None else rows.get(int(form[1])) for form in forms]
        return [
            _info(row) if _is_digest_of(text, row) and row is not None and row.revoked is None else None
            for text, row in zip(texts, found, strict=True)
        ]


def _is_digest_of(text: str, row: TokenRow | None) -> bool:
    return hmac.compare_digest(_digest(text), row.digest if row is not None else "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _info(row: TokenRow) -> TokenInfo:
    try:
        return row.to(TokenInfo, scopes=frozenset(map(TokenScope, row.scopes.split())))
    except ValueError as exc:
        raise ForeignValue(f"a scope of token {row.id} that cannot be read") from exc
