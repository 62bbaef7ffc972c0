"""Limits of a connection: what may come, and how long it may take, before it is known who asks.

uvicorn gives the head of a request neither a limit of bytes nor one of time, and reads a body to its end that was
refused. Here a connection is closed that sends no whole head in time, whose head, chunk sizes and trailers are too
long, or whose body goes on after the answer. The number of connections without a whole head is limited: the oldest one
goes first. The limits of bodies are in `fxminify.service.http.access`.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

#: The most bytes of a head, and of all in a request besides its body where that is shorter.
MOST_BYTES = 64 << 10
#: Seconds in which a whole head must have come, and for which a body may go on after the answer.
HEAD, AFTER = 15.0, 10.0
#: Connections without a whole head.
WAITING = 256

_waiting: WeakKeyDictionary[ServerState, dict[LimitedProtocol, None]] = WeakKeyDictionary()


class LimitedProtocol(HttpToolsProtocol):
    """A connection of `minify serve`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaits_head = True
        #: Bytes of this request, of its body, and of what came last.
        self._received = self._body = self._piece = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (raw := transport.get_extra_info("socket")) is not None:
            with suppress(OSError):  # one whose other side is gone ends in the end
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._piece = len(data)
        self._received += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._received - self._body > MOST_BYTES + self._body:
            self._refuse(431, "Request Header Fields Too Large", f"the head is longer than {MOST_BYTES:,} bytes")
        elif self._awaits_head and self._timer is None:
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._received, self._body = self._piece, 0

    def on_headers_complete(self) -> None:
        self._awaits_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._awaits_head, self._received, self._body = True, 0, 0
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._awaits_head and not self.transport.is_closing():
            self._stop_waiting()
            self._timer = self.loop.call_later(AFTER, self.transport.close)

    def _wait_for_head(self) -> None:
        waiting = _waiting.setdefault(self.server_state, {})
        waiting[self] = None
        if len(waiting) > WAITING:
            oldest = next(iter(waiting))
            oldest._stop_waiting()
            oldest.transport.abort()
        self._timer = self.loop.call_later(
            HEAD, self._refuse, 408, "Request Timeout", f"no whole head of a request came within {HEAD:.0f} s"
        )

    def _stop_waiting(self) -> None:
        _waiting.setdefault(self.server_state, {}).pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, phrase: str, sentence: str) -> None:
        """Close the connection, with a sentence where no answer has begun."""
        if self._awaits_head and (self.cycle is None or self.cycle.response_complete):
            body = f'{{"detail":"{sentence}"}}'
            self.transport.write(
                f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
                f"connection: close\r\n\r\n{body}".encode("ascii")
            )
            self.transport.close()
        else:
            self.transport.abort()
