"""The caller of a request, the sessions of browsers, and the answer to a refused caller.

A program sends its token with each request. A browser has the id of a session (`fxminify.store.index.sessions`) in
a cookie that no script can read and that other sites cannot send with a form. Each form of ours also carries a key,
which is made from that id, so that only a page that this server made for this browser can change anything.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import cookie_parser
from starlette.responses import JSONResponse

from ...store.index import TokenScope
from ...store.privacy import private

#: The cookie with the session of a person who signed in.
COOKIE = "fxminify-session"
EVERYTHING = frozenset(TokenScope) - {TokenScope.RUN}


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: the name of a token, or an anonymous program of this machine.

    A form of this caller must carry ``form_key``. ``signed_in`` is true for the session of a browser.
    """

    name: str
    scopes: frozenset[TokenScope]
    form_key: str = ""
    signed_in: bool = False

    def may(self, scope: str) -> bool:
        return scope in self.scopes or (TokenScope.ADMIN in self.scopes and scope in EVERYTHING)


class Refused(Exception):
    """A request that is not answered. The message is one sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def response(self) -> JSONResponse:
        return JSONResponse({"detail": private(str(self))}, self.status, self.headers)


def session_of(headers: Mapping[str, str]) -> str:
    """Return the id of the session in the cookie of a request, or an empty text without one."""
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def form_key(secret: str) -> str:
    """The key of forms for a caller with this token or session, or for all others by the secret of this process."""
    return hmac.new(secret.encode(), b"a form of fxminify", hashlib.sha256).hexdigest()
