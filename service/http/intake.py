"""The body of an upload: to a file as it comes, within limits of bytes and time, and from there into the index."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from ...store.errors import explained
from ...store.index import TokenScope
from ...store.index.arrivals import Arrival, Stored
from ...store.spool import upload as form
from .caller import Caller, Refused
from .service import Service

#: Seconds in which an upload must have come.
SLOWEST = 900.0
_PIECE = 1 << 20
#: For so few bytes, writing is faster than a thread, and reading is faster than looking up their key.
_SMALL_BYTES = 64 << 10
_T = TypeVar("_T")


class SentBefore(Exception):
    """The upload with this key is already stored as ``capture``."""

    def __init__(self, capture: int) -> None:
        super().__init__(capture)
        self.capture = capture


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an upload in a file, and the digest of its bytes, both without its compression."""

    path: Path
    digest: str


@asynccontextmanager
async def arrived(request: Request, service: Service, key: str, said: str) -> AsyncIterator[Body]:
    """The body of ``request`` in a file, which is gone after the block. ``said`` is the digest that the sender names.

    Raises `SentBefore` for a long one that need not come to its end.
    """
    with _turn(service), ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile(dir=service.folder))
            async with asyncio.timeout(SLOWEST):
                digest = await _write(request, file, service, key, said)
        except TimeoutError:
            raise Refused(408, f"the upload did not come within {SLOWEST:.0f} s") from None
        except ClientDisconnect:
            raise Refused(400, "the upload was broken off") from None
        except OSError as error:  # above all, no space is left
            raise explained(error, str(service.folder)) from error
        yield Body(Path(file.name), digest)


async def store(service: Service, body: Body, caller: Caller, key: str) -> Stored:
    """Store an upload, together with others. Returns what it is. Raises `Refused`."""
    for look in (True, False):
        async with _arriving(service, body, caller, key, look=look) as arrival:
            (stored,) = await asyncio.wrap_future(service.storing.ask([arrival]))
        if stored is not None:
            if stored.conflict:
                raise another_body()
            return stored
    raise AssertionError


def another_body() -> Refused:
    """The answer where a key was used for something else."""
    return Refused(409, "something else was sent under this Idempotency-Key before: send it under a new one")


@asynccontextmanager
async def _arriving(service: Service, body: Body, caller: Caller, key: str, *, look: bool) -> AsyncIterator[Arrival]:
    """An upload, read and ready to be stored inside the block."""
    signer = service.signer if TokenScope.RUN in caller.scopes else None

    def enter() -> tuple[AbstractContextManager[Arrival], Arrival]:
        met = form.read(body.path).with_origin()
        context = service.index.captures.arriving(
            met, signer=signer, key=key, body=body.digest, actor=caller.name, look=look
        )
        return context, context.__enter__()

    context, arrival = await _in_thread(service, enter)
    try:
        yield arrival
    except BaseException as error:
        with anyio.CancelScope(shield=True):  # files that were written for it go, whatever else ends
            await _in_thread(service, context.__exit__, type(error), error, error.__traceback__)
        raise
    context.__exit__(None, None, None)


async def _in_thread(service: Service, do: Callable[..., _T], *arguments: object) -> _T:
    """Run ``do`` in one of a few threads, separate from the threads that answer other requests. Return its result."""
    try:
        return await anyio.to_thread.run_sync(do, *arguments, limiter=service.reading)
    except ValueError as error:
        raise Refused(422, str(error).partition("\n")[0][:500]) from error


@contextmanager
def _turn(service: Service) -> Iterator[None]:
    if not service.uploads.acquire(blocking=False):
        raise Refused(429, "too many uploads come at the same time: try again soon", Retry_After="1")
    try:
        yield
    finally:
        service.uploads.release()


async def _write(request: Request, file: IO[bytes], service: Service, key: str, said: str) -> str:
    """Write the body to ``file``. Returns the digest of what was written."""
    most, looked, digest = service.options.max_upload, not said, hashlib.sha256()
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Refused(415, "an upload is sent as it is, or compressed with gzip")
    if int(request.headers.get("content-length", "0")) > most:
        raise _too_large(most)
    inflater = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    received = written = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > most:
            raise _too_large(most)
        if received > _SMALL_BYTES and not looked:
            looked, known = True, await run_in_threadpool(service.index.uploads.find, key)
            if known is not None and not known.is_same(said):
                raise another_body()
            if known is not None:
                raise SentBefore(known.capture)
        for piece in [chunk] if inflater is None else _inflated(inflater, chunk):
            written += len(piece)
            if written > most:
                raise _too_large(most)
            if len(piece) <= _SMALL_BYTES:
                digest.update(piece)
                file.write(piece)
            else:
                await run_in_threadpool(digest.update, piece)
                await run_in_threadpool(file.write, piece)
    if inflater is not None and not inflater.eof:
        raise Refused(400, "the upload was cut short")
    if said not in ("", digest.hexdigest()):
        raise Refused(400, "the upload has another digest than its sender says")
    file.flush()
    return digest.hexdigest()


def _inflated(inflater: zlib._Decompress, chunk: bytes) -> Iterator[bytes]:
    """The content of a chunk in pieces, however much it is."""
    try:
        while chunk:
            yield inflater.decompress(chunk, _PIECE)
            chunk = inflater.unconsumed_tail
        yield inflater.decompress(b"", _PIECE)
        if inflater.unused_data:
            raise Refused(400, "more follows after the end of the upload")
    except zlib.error:
        raise Refused(400, "the upload is not compressed with gzip, although it says so") from None


def _too_large(most: int) -> Refused:
    return Refused(413, f"the upload is larger than {most:,} bytes, which is the limit here")
