"""Sends what waits in a spool to its server, each capture once, whatever ends in the middle.

A capture is first offered by its identity: where the server knows it, it is counted there and its file is never sent. A
file is removed after the server has answered. Without an answer it is sent again under the same key, and the server
counts one key once. What the server does not want is kept aside with the reason.

``python -m fxminify.store.spool.sender URL`` is the process that a captured program starts (`start`). It ends when
nothing waits any more, or the server has not answered for `PATIENCE` seconds; the next capture, or `minify send`, goes
on.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from . import upload
from .spool import AGAIN, CAPTURE, Again, Spool, SpoolItem, is_loopback, is_server, read_again

log = logging.getLogger("fxminify")

#: The variable with the token of a server, and that with the address of the server.
TOKEN, DATABASE = "FXMINIFY_TOKEN", "FXMINIFY_DB"
#: Seconds for which the process of a captured program waits for a server that does not answer.
PATIENCE = 600.0
#: Seconds that one request may stand still, and between two tries.
_TIMEOUT, _FIRST, _LONGEST = 60.0, 1.0, 60.0
#: Seconds for which it stays when nothing waits any more: a program that failed once often does again.
_LINGER = 2.0
#: Captures that are offered in one request.
_OFFERED = 100
_PIECE = 1 << 20
#: Answers that mean that the capture itself is not wanted, and those after which the same is tried again.
_UNWANTED = (409, 413, 415, 422)
_LATER = (400, 408, 425, 429)


class CannotSend(Exception):
    """Nothing can be sent now; the message is one sentence. ``later``: waiting helps, at least ``after`` seconds."""

    def __init__(self, sentence: str, *, later: bool = False, after: float = 0.0) -> None:
        super().__init__(sentence)
        self.later = later
        self.after = after


class Unwanted(Exception):
    """The server does not want this capture. The message is its sentence."""


@dataclass
class Sending:
    """The result of sending a spool.

    It has the number of ``sent`` and ``counted`` captures, a sentence about each of the ``refused`` ones, the
    number of captures that are ``left``, and ``why``.
    """

    sent: int = 0
    counted: int = 0
    refused: list[str] = field(default_factory=list)
    left: int = 0
    why: str = ""


class Sender:
    """Sends the captures of one spool. ``token`` is the token for its server, empty for a server without tokens."""

    def __init__(self, spool: Spool, token: str = "") -> None:
        self._spool, self._token = spool, token
        parts = urlsplit(spool.server)
        if token and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise CannotSend(f"{spool.server} would get the token unencrypted: use its https address")
        self._opener = urllib.request.build_opener(
            NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context())
        )
        self._most: int | None = None
        self.done = Sending()

    def run(self, patience: float, *, linger: float = 0.0) -> Sending:
        """Send until nothing waits, or the server did not answer for ``patience`` seconds."""
        with self._spool.sending() as alone:
            if not alone:
                self.done.why = "another process sends it already"
            else:
                self._run(patience, linger)
        self.done.left = len(self._spool.items())
        return self.done

    def _run(self, patience: float, linger: float) -> None:
        pause, heard = _FIRST, time.monotonic()
        while True:
            before = self.done.sent + self.done.counted
            try:
                self.done.why = self._pass()
                pause = _FIRST
                if not self._spool.items():
                    time.sleep(linger)
                    if not self._spool.items():
                        return
                    continue
                after = 0.0
            except CannotSend as error:
                self.done.why, after = str(error), error.after
                if not error.later:
                    return
            if self.done.sent + self.done.counted > before:
                heard = time.monotonic()
            pause = max(min(2 * pause, _LONGEST), after)
            if time.monotonic() + pause > heard + patience:
                return
            time.sleep(pause)

    def _pass(self) -> str:
        """Send all that waits once. Returns why some of it still does."""
        why, items = "", self._spool.items()
        captures = [item for item in items if item.kind == CAPTURE]
        for begin in range(0, len(captures), _OFFERED):
            chunk = captures[begin : begin + _OFFERED]
            for item in self._offer(chunk):
                try:
                    self._send(item)
                except Unwanted as error:
                    self._spool.refuse(item, str(error))
                    self.done.refused.append(str(error))
                except FailedAnswer as error:  # the others still get their turn
                    why = str(error)
        waiting = {item.identity for item in self._spool.items() if item.kind == CAPTURE}
        more = [item for item in items if item.kind == AGAIN and item.identity not in waiting]
        for begin in range(0, len(more), _OFFERED):
            for item in self._offer(more[begin : begin + _OFFERED]):
                self._spool.forget(item.identity)
                item.path.unlink(missing_ok=True)
        return why

    def _offer(self, items: Sequence[SpoolItem]) -> list[SpoolItem]:
        """Have the server count what it knows. Returns the others."""
        asked = []
        for item in items:
            seen = read_again(item) if item.kind == AGAIN else Again(1, upload.versions(item.path))
            asked.append({"key": item.key, "identity": item.identity, "times": seen.times, **_both(seen.versions)})
        try:
            answer = self._ask("POST", "/captures/known", json.dumps(asked).encode(), "application/json")
        except Unwanted as error:  # it is about all of them
            raise CannotSend(f"{self._spool.server}: {error}") from error
        known = {one["key"] for one in answer if one["capture"] is not None}
        for item in items:
            if item.key in known:
                item.path.unlink(missing_ok=True)
                self.done.counted += 1
        return [item for item in items if item.key not in known]

    def _send(self, item: SpoolItem) -> None:
        if self._most is None:
            self._most = int(self._ask("GET", "/status")["max_upload"])
        try:
            size = item.path.stat().st_size
        except FileNotFoundError:  # it was dropped, or sent from another machine that shares the folder
            return
        if size > self._most:
            raise Unwanted(f"it has {size:,} bytes, and the server takes {self._most:,}")
        try:
            with item.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return
        more = {"Idempotency-Key": item.key, "Content-Encoding": "gzip", "Fxminify-Digest": digest}
        self._ask("POST", "/captures", _packed(item.path), "application/octet-stream", more)
        item.path.unlink(missing_ok=True)
        self.done.sent += 1

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        kind: str = "",
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        headers = {"User-Agent": "fxminify", **({"Content-Type": kind} if kind else {}), **more}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        url = f"{self._spool.server}/api/v1{path}"
        try:
            request = urllib.request.Request(url, body, headers, method=method)
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return json.loads(response.read(_PIECE))
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(self._spool.server, error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise CannotSend(f"{self._spool.server} does not answer ({why})", later=True) from error


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nowhere: a redirection would take the token with it."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class FailedAnswer(Exception):
    """The server failed on this capture. It is offered again later."""


def _refusal(server: str, error: urllib.error.HTTPError) -> Exception:
    """Convert an HTTP error into an exception: `Unwanted`, `FailedAnswer` or `CannotSend`."""
    try:
        sentence = str(json.loads(error.read(_PIECE))["detail"])[:500]
    except (ValueError, TypeError, KeyError, OSError, http.client.HTTPException):
        sentence = f"it answers {error.code}"
    if error.code in _UNWANTED:
        return Unwanted(sentence)
    if error.code == 500:
        return FailedAnswer(f"{server}: {sentence}")
    after = error.headers.get("Retry-After", "")
    later = error.code in _LATER or error.code > 500
    return CannotSend(
        f"{server}: {sentence}", later=later, after=min(float(after), 600.0) if after.isdecimal() else 0.0
    )


def _packed(path: Path) -> Iterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            if data := packer.compress(piece):
                yield data
    yield packer.flush()


def _both(versions: Mapping[str, str]) -> dict[str, str]:
    return {name: versions.get(name, "")[:100] for name in ("torch", "python")}


def token_for(server: str, *, named: str | None = None) -> str:
    """Return the token of ``FXMINIFY_TOKEN`` if it belongs to this server.

    It belongs to the server that was ``named``, or else to the server of ``FXMINIFY_DB``. Another server would
    learn it, and could use it there.
    """
    own = (named or os.environ.get(DATABASE, "")).rstrip("/")
    return os.environ.get(TOKEN, "") if server == own else ""


def start(spool: Spool) -> None:
    """Start a process that sends, unless there is one. It outlives this one and is no child of it, which the program
    might wait for. It has this process's imports and not its hook."""
    if spool.is_sending():
        return
    environment = {**os.environ, "FXMINIFY": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "fxminify.store.spool.sender", spool.server]
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", *command], env=environment, cwd="/", stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, check=False,
    )  # fmt: skip


def main(server: str) -> int:
    spool = Spool(server)
    named = None if is_server(os.environ.get(DATABASE, "")) else server  # else the program names it
    try:
        done = Sending()
        while not done.why:  # a capture that arrived just before the end saw this sender running, and started no other
            done = Sender(spool, token_for(spool.server, named=named)).run(PATIENCE, linger=_LINGER)
            if not done.left:
                break
    except CannotSend as error:
        done = Sending(left=len(spool.items()), why=str(error))
    return 1 if done.left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
