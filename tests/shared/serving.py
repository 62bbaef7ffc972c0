"""A server in this process, in a thread of its own, and what a client asks of it."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from fxminify.service.http.app import application
from fxminify.service.http.connections import LimitedProtocol
from fxminify.service.http.serve import EndingServer, prepared
from fxminify.service.http.service import ServeOptions, Service
from fxminify.store.document.case import Case, TensorSpec
from fxminify.store.failure import Failure
from fxminify.store.index import Index
from fxminify.store.recording import Recording
from fxminify.store.spool import upload

#: Of a test that writes to one row from many sides: also on PostgreSQL in every run of the suite.
ON_BOTH = pytest.mark.parametrize("place", ["file", pytest.param("url", marks=pytest.mark.server)], indirect=True)
#: What tests of a server ask for where the disk of the machine is small.
OPTIONS = ServeOptions(port=0, low=0, least=0)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        """The sentence of an error answer."""
        assert list(self.json) == ["detail"], self.body
        return str(self.json["detail"])


@dataclass(frozen=True)
class Served:
    """A running server: its index, where uploads lie for a moment, and its address."""

    service: Service
    folder: Path
    port: int
    token: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def index(self) -> Index:
        return self.service.index

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """``body`` is sent as it is where it is bytes or an iterable of bytes, and else as JSON."""
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        sent |= {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if isinstance(body, list | dict):
            body, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it has answered before it read all
                connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", f"/api/v1{path}", **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.ask("POST", f"/api/v1{path}", body, **headers)

    def upload(self, body: Any, key: str = "", **headers: str) -> Answer:
        return self.post("/captures", body, Idempotency_Key=key or uuid.uuid4().hex, **headers)

    def left(self) -> list[str]:
        """List the files that uploads have left in the folder."""
        return [path.name for path in self.folder.rglob("*")]


@contextmanager
def serving(place: str, folder: Path, options: ServeOptions = OPTIONS) -> Iterator[Served]:
    """A server on the index ``place``, which may be new."""
    folder.mkdir(parents=True, exist_ok=True)
    with Index.open(place, create=True) as index, socket.create_server(("127.0.0.1", 0)) as listener:
        service = prepared(index, options, folder, place)
        config = uvicorn.Config(application(service), http=LimitedProtocol, log_level="warning",
                                access_log=False, lifespan="off", ws="none",
                                proxy_headers=False, timeout_graceful_shutdown=1)  # fmt: skip
        server = EndingServer(config, service)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(service, folder, listener.getsockname()[1])
        finally:
            service.ending.set()
            server.should_exit = True
            thread.join()


def body_of(folder: Path, case: Case | None, failure: Failure, **more: Any) -> bytes:
    """An upload as it is sent."""
    path = folder / f"{uuid.uuid4().hex}.capture"
    sealed = {name: more.pop(name) for name in ("origin", "maker") if name in more}
    given = {"blobs": {}, "provenance": {"program": "train.py", "torch": "2.13.0", "backend": "planted"}} | more
    upload.write(upload.Upload(Recording(case=case, failure=failure, **given), **sealed), path)
    data = path.read_bytes()
    path.unlink()
    return data


def with_storage(case: Case, data: bytes) -> tuple[Case, dict[str, bytes]]:
    """``case`` with ``data`` as its only input, one float for four bytes."""
    key = hashlib.sha256(data).hexdigest()
    spec = TensorSpec("float32", (len(data) // 4,), (1,), storage=key)
    return replace(case, tensors=(spec,)), {key: data}
