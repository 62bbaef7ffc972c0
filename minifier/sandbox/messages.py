"""The messages between driver, zygote and workers: typed, as length-prefixed JSON over a socketpair.

Nothing is pickled. A worker that runs a broken compiler may send anything, so a message must have a known type, known
fields and a bounded size, or it is refused. Bytes of tensors are not sent: they are in `Scratch` files.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, get_args

#: Largest message in bytes; a case of ten thousand nodes is a few megabytes.
LIMIT = 256 * 1024 * 1024
_HEADER = struct.Struct(">I")

Json = dict[str, Any]


class ProtocolError(Exception):
    """The other side sent something that is not a message."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Driver to zygote or spawned worker, first of all: what to import, and the limits of a worker.

    ``backend`` is a `BackendSpec` as data, or None to load neither torch nor a backend (the tests' own tasks).
    ``memory`` is the largest number of bytes of private data a worker may allocate, 0 for no limit.
    """

    scratch: str
    backend: Json | None = None
    imports: list[Any] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """Zygote or spawned worker to driver: imports are done. ``threads`` counts those the imports started."""

    pid: int
    torch: str = ""
    threads: int = 1
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """Instead of `Ready`: ``module`` could not be imported."""

    module: str
    error: str


@dataclass(frozen=True, slots=True)
class Fork:
    """Driver to zygote, with the worker's end of a socketpair as ancillary data; answered before the next is sent.

    ``preload`` are modules that other workers had to import, so that this one and the next need not.
    """

    number: int
    preload: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Forked:
    number: int
    pid: int
    fresh: bool = False  # a fresh program, which waits for its `Setup`


@dataclass(frozen=True, slots=True)
class Exited:
    """Zygote to driver: a worker is gone and reaped. ``status`` is the exit code, negative for a signal."""

    pid: int
    status: int


@dataclass(frozen=True, slots=True)
class Request:
    """Driver to worker: run ``task`` with ``argument``, file descriptors 1 and 2 going to ``stdout`` and ``stderr``."""

    query: int
    task: str
    argument: Json
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Worker to driver: ``phase`` of ``query`` begins now."""

    query: int
    phase: str


@dataclass(frozen=True, slots=True)
class Imported:
    """Worker to driver: modules it imported since it last said so, in order.

    ``device``: it has begun to use an accelerator, which one of these imports may have done.
    """

    modules: list[str]
    device: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Worker to driver. ``error`` says why there is no ``result``; ``dirty`` why this worker must not be used again."""

    query: int
    result: Json = field(default_factory=dict)
    error: str = ""
    dirty: str = ""


Message = Setup | Ready | Broken | Fork | Forked | Exited | Request | Mark | Imported | Answer
_TYPES: dict[str, Any] = {t.__name__: t for t in get_args(Message)}
_PLAIN = {"int": (int,), "str": (str,), "bool": (bool,), "Json": (dict,), "list[Any]": (list,), "list[str]": (list,)}


def encode(message: Message) -> bytes:
    """``message`` as it goes over the wire, header included. Raises `ValueError` when it is over the limit."""
    body = json.dumps({"type": type(message).__name__, **asdict(message)}, separators=(",", ":")).encode()
    if len(body) > LIMIT:
        raise ValueError(f"a {type(message).__name__} message of {len(body)} bytes is over the limit of {LIMIT}")
    return _HEADER.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """Inverse of `encode` for one body. Raises `ProtocolError` on unknown types, fields or types of fields."""
    try:
        doc = json.loads(body)
    except ValueError as exc:
        raise ProtocolError(f"not JSON: {exc}") from None
    cls = _TYPES.get(doc.pop("type", None)) if isinstance(doc, dict) else None
    if cls is None:
        raise ProtocolError("not a known message")
    known = {f.name: str(f.type) for f in fields(cls)}
    for name, value in doc.items():
        if name not in known:
            raise ProtocolError(f"{cls.__name__} has no field {name!r}")
        kinds = _PLAIN.get(known[name].removesuffix(" | None"), (object,))
        if not isinstance(value, kinds) and not (value is None and known[name].endswith("| None")):
            raise ProtocolError(f"{cls.__name__}.{name} is a {type(value).__name__}, not {known[name]}")
    try:
        message: Message = cls(**doc)
    except TypeError as exc:
        raise ProtocolError(str(exc)) from None
    return message


class Channel:
    """An end of a socketpair that carries messages; receiving takes a timeout and survives partial messages."""

    _CHUNK: ClassVar[int] = 1 << 18

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send ``message``; ``fds`` travel with its first bytes. Raises `OSError` when the other side is gone."""
        data = encode(message)
        if fds:
            sent = socket.send_fds(self.sock, [data], list(fds))
            data = data[sent:]
        self.sock.sendall(data)

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if ``timeout`` seconds pass without one.

        Raises `EOFError` when the other side closed or died, and `ProtocolError` for data that is not a message.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (message := self._take()) is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            if not self._poll.poll(left):
                return None
            self._read()
        return message

    def receive_with_fds(self, count: int = 1) -> tuple[Message, list[int]]:
        """The next message, waiting for it, and the file descriptors that came with its first bytes."""
        received: list[int] = []
        while (message := self._take()) is None:
            data, new, _, _ = socket.recv_fds(self.sock, self._CHUNK, count)
            received += new
            if not data:
                raise EOFError("the channel was closed")
            self._buffer += data
        return message, received

    def close(self) -> None:
        self.sock.close()

    def fileno(self) -> int:
        return self.sock.fileno()

    def _read(self) -> None:
        try:
            data = self.sock.recv(self._CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError("the channel was closed")
        self._buffer += data

    def _take(self) -> Message | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        if length > LIMIT:
            raise ProtocolError(f"a message of {length} bytes is over the limit of {LIMIT}")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return decode(body)


def pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair of stream sockets, neither inherited by programs that are executed."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
