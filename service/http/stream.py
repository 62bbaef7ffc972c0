"""Events as they happen, as a stream of server-sent events (https://html.spec.whatwg.org/#server-sent-events)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from ...store.errors import StoreError
from ...store.privacy import private_json
from .caller import Refused
from .service import Service

#: Seconds between two looks, and between two signs of life.
_LOOK, _ALIVE = 0.5, 15.0
_PAGE = 200


class _Stream(StreamingResponse):
    """An answer that gives its place back when it has ended, also where the listener left before the first line."""

    def __init__(self, service: Service, lines: AsyncIterator[str]) -> None:
        super().__init__(lines, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.streams.release()


async def events(service: Service, after: int | None, seconds: float) -> StreamingResponse:
    """The events that follow the number ``after``, without it those from now on, for so many ``seconds``."""
    if not service.streams.acquire(blocking=False):
        raise Refused(429, "too many streams of events are open: try again soon", Retry_After="5")
    try:
        begin = await run_in_threadpool(service.index.events.last) if after is None else after
    except BaseException:
        service.streams.release()
        raise
    return _Stream(service, _lines(service, begin, seconds))


async def _lines(service: Service, last: int, seconds: float) -> AsyncIterator[str]:
    end = time.monotonic() + seconds
    spoken = time.monotonic()
    yield ": begun\n\n"
    while True:
        try:
            found = await run_in_threadpool(lambda: service.index.events.after(last, limit=_PAGE))  # noqa: B023
        except StoreError:  # the server of the index is away; the listener asks again where it was
            return
        for event in found:
            last = event.id
            data = json.dumps(private_json(event.to_json()), separators=(",", ":"))
            yield f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n"
        if found:
            spoken = time.monotonic()
        elif time.monotonic() > end or service.ending.is_set():
            return
        elif time.monotonic() > spoken + _ALIVE:
            spoken = time.monotonic()
            yield ": alive\n\n"
        else:
            await asyncio.sleep(_LOOK)
