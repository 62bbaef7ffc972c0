"""Clients of a server, all in one process: each sends a request, waits for the answer, and sends the next one.

As `minify send` does, each request has a connection of its own. Requests are made before the clock runs, so that little
of what is measured is the time of the clients.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index.documents import digest
from fxminify.store.recording import Recording, backend_of, identity_of, shape_of
from fxminify.store.signature import signature
from fxminify.store.spool import upload

#: What captures are made of: operators of torch, and the nodes and the bytes of the one storage of each.
OPERATORS = ("relu", "sin", "cos", "tanh", "exp", "neg", "abs", "floor")
NODES, STORAGE = 24, 4096
#: The backend of all captures.
BACKEND = {"name": "planted", "how": "registered", "target": "planted"}
TORCH, PYTHON = "2.13.0", "3.11.7"
#: How long one answer may take.
_SLOWEST = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """``clients`` clients send what ``kind`` says for ``seconds``: `requests` of it.

    ``batch`` failures are in one request, if it takes several. New captures are of ``bugs`` bugs in turn.
    """

    kind: str
    port: int
    token: str
    clients: int
    seconds: float
    batch: int = 1
    bugs: int = 500


@dataclass
class Answers:
    """The seconds of each request by its status, and of the processor time of the clients."""

    took: dict[int, list[float]] = field(default_factory=dict)
    wall: float = 0.0
    processor: float = 0.0

    @property
    def good(self) -> list[float]:
        """The seconds of those that did what they were to do, sorted."""
        return sorted(second for status, took in self.took.items() if status < 300 for second in took)


def failure_of(bug: int) -> Failure:
    """A failure whose signature no other number has."""
    name = "".join(chr(ord("a") + int(digit)) for digit in str(bug))
    return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, f"{name}Error", f"no kernel for {name}")


def recording_of(number: int, bug: int) -> Recording:
    """A capture of a small training step that no other number has, with 4 KiB of values."""
    chance = random.Random(number)
    meta = {"dtype": "float32", "shape": [STORAGE // 4]}
    nodes = [Node("x", "placeholder", "L_x_", meta=meta)]
    for place in range(NODES):
        target = {"fn": f"torch.{chance.choice(OPERATORS)}"}

        more = {**meta, "stack": f"train.py:{place} in forward"}
        nodes.append(Node(f"n{place}", "call_function", target, ({"ref": nodes[-1].name},), meta=more))
    nodes.append(Node("output", "output", "output", ({"tuple": [{"ref": nodes[-1].name}]},)))
    data = chance.randbytes(STORAGE)
    spec = TensorSpec("float32", (STORAGE // 4,), (1,), storage=digest(data))
    case = Case(Graph(tuple(nodes)), ({"tensor": 0},), (spec,), backend=BACKEND, torch=TORCH)
    provenance = {"program": "train.py", "torch": TORCH, "python": PYTHON, "backend": "planted"}
    return Recording(case=case, blobs={digest(data): data}, failure=failure_of(bug), provenance=provenance)


def identity(met: Recording) -> str:
    shape = shape_of(met.case, met.graph_text, met.reason)
    return identity_of(backend_of(met.case, met.provenance), shape, signature(met.failure).digest)


def body_of(met: Recording) -> bytes:
    """A capture as it is sent."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "one.capture")
        upload.write(upload.Upload(met), path)
        packer = zlib.compressobj(1, wbits=31)
        return packer.compress(path.read_bytes()) + packer.flush()


def request(load: Load, path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"POST /api/v1{path} HTTP/1.1", f"Host: 127.0.0.1:{load.port}", "Connection: close", "User-Agent: fxminify",
        f"Authorization: Bearer {load.token}", f"Content-Length: {len(body)}", *headers,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + body


def new_capture(load: Load, number: int) -> bytes:
    body = body_of(recording_of(number, number % load.bugs))
    kind = "Content-Type: application/octet-stream"
    return request(load, "/captures", body, kind, "Content-Encoding: gzip", f"Idempotency-Key: {uuid.uuid4().hex}")


def known_failure(load: Load, number: int) -> bytes:
    """``batch`` occurrences of one capture, each under a key of its own, as a spool has them."""
    seen = {"identity": _first(), "times": 1, "torch": TORCH, "python": PYTHON}
    body = json.dumps([{"key": uuid.uuid4().hex, **seen} for _ in range(load.batch)]).encode()
    return request(load, "/captures/known", body, "Content-Type: application/json")


def known_capture_whole(load: Load, number: int) -> bytes:
    """The same capture again, whole, as a client sends it that has not asked first."""
    kind = "Content-Type: application/octet-stream"
    return request(
        load, "/captures", body_of(recording_of(0, 0)), kind, "Content-Encoding: gzip",
        f"Idempotency-Key: {uuid.uuid4().hex}",
    )  # fmt: skip


KINDS = {"new": new_capture, "known": known_failure, "whole": known_capture_whole}
_identities: dict[int, str] = {}


def _first() -> str:
    """The identity of the capture with the number 0."""
    if 0 not in _identities:
        _identities[0] = identity(recording_of(0, 0))
    return _identities[0]


def requests(load: Load, count: int, first: int) -> Iterator[bytes]:
    return (KINDS[load.kind](load, number) for number in range(first, first + count))


async def _ask(port: int, sent: bytes) -> int:
    """The status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        answer = await reader.read()
        return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
    finally:
        writer.close()


async def _send(load: Load, waiting: list[bytes]) -> Answers:
    answers, end = Answers(), time.monotonic() + load.seconds

    async def client() -> None:
        while waiting and time.monotonic() < end:
            sent, begun = waiting.pop(), time.monotonic()
            try:
                status = await asyncio.wait_for(_ask(load.port, sent), _SLOWEST)
            except (OSError, TimeoutError):
                status = 599
            answers.took.setdefault(status, []).append(time.monotonic() - begun)

    begun, used = time.monotonic(), time.process_time()
    await asyncio.gather(*(client() for _ in range(load.clients)))
    answers.wall, answers.processor = time.monotonic() - begun, time.process_time() - used
    if not waiting:
        raise RuntimeError("the requests that were made did not last: make more")
    return answers


def _run(load: Load, count: int, first: int, ready: Any, out: Any) -> None:
    waiting = list(requests(load, count, first))
    ready.wait()
    out.send(asyncio.run(_send(load, waiting)))


@dataclass
class Clients:
    """A process with all clients of a load. `begin` it when everything is ready; `end` waits for the answers."""

    load: Load
    count: int
    first: int = 1

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._ready = context.Barrier(2)
        self._answers, out = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(self.load, self.count, self.first, self._ready, out))
        self._process.start()
        out.close()  # so that the end of the process is seen

    def begin(self) -> None:
        """Wait until all requests are made, and let them be sent."""
        self._ready.wait(300)

    def end(self) -> Answers:
        answers: Answers = self._answers.recv()
        self._process.join()
        return answers
