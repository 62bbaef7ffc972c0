"""Access control: every request passes here first, before any other part of the server reads it.

The tags of a route are scopes; a caller needs one of them. A route without tags is for administrators. A program on
this machine needs no token if the server listens on a loopback address only. But a request whose headers come from
a page of another site or from a proxy needs one. `run`, which makes workers execute the upload, always needs a
token. A browser has a session in a cookie, which is valid for reading and for the forms of our own pages.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...store.errors import StoreError
from ...store.index import TokenInfo, TokenScope
from ...store.spool.spool import is_loopback
from .caller import EVERYTHING, Caller, Refused, form_key, session_of
from .disk import DiskState
from .html import refusal
from .service import Service
from .together import Together

#: The tag of public routes, which reveal nothing of the index.
OPEN = "open"
#: The route that limits its body itself.
UPLOAD = "submit_capture"
#: The most bytes of all other bodies and of bodies from unknown callers, and the seconds in which a body must arrive.
MAX_BODY, UNKNOWN_BODY, SLOWEST = 1 << 20, 16 << 10, 30.0
_READING = ("GET", "HEAD", "OPTIONS")
#: Headers of proxies: the program that asks is not known then.
_PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Admission:
    """The outermost layer of the application ``app``, which has these ``routes``."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], service: Service) -> None:
        self._app, self._routes, self._service = app, routes, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"no {scope['type']} is served")
        name, begun, status = "", time.monotonic(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if message["type"] == "http.response.start":  # a script, which is text, is never taken for anything else
                MutableHeaders(scope=message)["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            name, needed = self._route(scope)
            await self._admit(scope, receive, answer, name, needed)
        finally:
            self._service.metrics.answered(name, status, time.monotonic() - begun)

    async def _admit(self, scope: Scope, receive: Receive, send: Send, name: str, needed: list[str]) -> None:
        headers = Headers(scope=scope)
        caller = Caller("", frozenset(), form_key(session_of(headers) or self._service.form_secret))
        try:
            if OPEN not in needed or scope["method"] not in _READING:
                _need_same_site(headers, scope)
            if OPEN not in needed:
                caller = await self._caller(scope)
                if not any(map(caller.may, needed)):
                    raise Refused(403, f"this token may not do that: it lacks the scope {' or '.join(needed)}")
                if scope["method"] not in _READING and self._service.disk.state() is DiskState.FULL:
                    raise Refused(503, self._service.disk.sentence(), Retry_After="30")
        except Refused as refused:
            await refusal(self._service, caller, Request(scope), refused)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        most = UNKNOWN_BODY if OPEN in needed else MAX_BODY
        await self._app(scope, receive if name == UPLOAD else _limited(scope, receive, most), send)

    def _route(self, scope: Scope) -> tuple[str, list[str]]:
        """The name of the route that will answer, and the scopes of which it needs one."""
        for route in self._routes:
            match, _ = route.matches(scope)
            if match is Match.FULL:
                tags = getattr(route, "tags", None) or [TokenScope.ADMIN.value]
                return str(getattr(route, "name", "")), [str(tag) for tag in tags]
        return "", [TokenScope.READ.value]

    async def _caller(self, scope: Scope) -> Caller:
        headers = Headers(scope=scope)
        kind, _, text = headers.get("authorization", "").partition(" ")
        if text:
            token = await _found(self._service.tokens, text.strip()) if kind.lower() == "bearer" else None
            if problem := why_not(token):
                raise Refused(401, problem, WWW_Authenticate="Bearer")
            assert token is not None
            return Caller(token.name, token.scopes, form_key(text.strip()))
        cookie = session_of(headers)
        if cookie and (scope["method"] in _READING or not scope["path"].startswith("/api/")):
            token = await _found(self._service.sessions, cookie)
            if token is not None:
                return Caller(token.name, token.scopes, form_key(cookie), signed_in=True)
        client = scope.get("client")
        if self._service.options.is_open and client and is_loopback(client[0]) and _is_direct(headers):
            return Caller("", EVERYTHING, form_key(self._service.form_secret))
        raise Refused(401, "a token is needed here: `minify tokens DB --new NAME` makes one", WWW_Authenticate="Bearer")


async def _found(asked: Together[str, TokenInfo | None], text: str) -> TokenInfo | None:
    """The token of a text. Raises `Refused` where the index is away."""
    try:
        return await asyncio.wrap_future(asked.ask(text))
    except StoreError as error:
        raise Refused(503, "the index does not answer: try again later", Retry_After="5") from error


def why_not(token: TokenInfo | None) -> str:
    """Return why a token is not accepted, or an empty text if it is accepted."""
    if token is None:
        return "this token is not known here, or was revoked"
    if not token.proved:
        return "this token was not made by the user of this server, or with another key: make a new one as that user"
    return ""


def _need_same_site(headers: Mapping[str, str], scope: Scope) -> None:
    """Refuse what a page of another site makes a browser send. A proxy may have ended https before this server."""
    origin, host = headers.get("origin"), headers.get("host", "")
    is_ours = origin in (None, f"{scope['scheme']}://{host}", f"https://{host}")
    changes = scope["method"] not in _READING
    if not is_ours or (changes and headers.get("sec-fetch-site", "none") not in ("same-origin", "none")):
        raise Refused(403, "a page of another site may not ask for this")


def _is_direct(headers: Mapping[str, str]) -> bool:
    """Whether a program of this machine asks itself, and names this machine: no proxy, no name that leads here."""
    host = re.sub(r":\d+\Z", "", headers.get("host", ""))
    return is_loopback(host) and not any(name in headers for name in _PROXIES)


def _limited(scope: Scope, receive: Receive, most: int) -> Receive:
    """``receive``, which ends a body that is too long or too slow while it is read."""
    length = Headers(scope=scope).get("content-length", "0")
    left = most if length.isdecimal() and int(length[:20]) <= most else -1
    begun: float | None = None
    is_whole = False

    async def limited() -> Message:
        nonlocal left, begun, is_whole
        begun = begun or time.monotonic()
        try:
            async with asyncio.timeout(None if is_whole else begun + SLOWEST - time.monotonic()):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"the request did not come within {SLOWEST:.0f} s") from None
        is_whole = is_whole or not message.get("more_body", False)  # what follows is that the caller leaves
        left -= len(message.get("body", b""))
        if left < 0 and message["type"] == "http.request":
            raise HTTPException(413, f"the request is longer than {most:,} bytes")
        return message

    return limited
