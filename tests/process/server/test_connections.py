"""Before it is known who asks everything has a limit: bytes and time of a head, connections, bodies that go on."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from serving import OPTIONS, Served, serving

from fxminify.service.http import access, connections
from fxminify.service.http.connections import MOST_BYTES, WAITING
from fxminify.store.index import TokenScope

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Served]:
    with serving(str(tmp_path / "repro.db"), tmp_path / "uploads", replace(OPTIONS, tokens=True)) as served:
        yield served


@contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        yield client


def answer(client: socket.socket) -> tuple[int, bytes]:
    """The status and all bytes of what the server sends until it closes; 0 if it sends nothing."""
    data = b""
    with suppress(ConnectionResetError):
        while piece := client.recv(1 << 16):
            data += piece
    return (int(data.split(b" ", 2)[1]) if data else 0), data


def is_alive(served: Served) -> bool:
    return served.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    "begin", [b"GET /healthz HTTP/1.1\r\nX-Long: ", b"GET /", b"GET /healthz HTTP/1.1\r\n", b"G", b""]
)
def test_a_head_without_end_is_stopped_and_costs_no_more_than_it_is_long(closed: Served, begin: bytes) -> None:
    """A line of a header, the request line, headers without end, and bytes that are none of it."""
    process = psutil.Process()
    before, cpu, sent = process.memory_info().rss, process.cpu_times(), 0
    line = b"X-Many: 0123456789abcdef\r\n" * 400 if begin.endswith(b"\n") else b"a" * 10_000
    with connected(closed) as client:
        client.sendall(begin)
        with suppress(BrokenPipeError, ConnectionResetError):
            while sent < 100 << 20:
                sent += client.send(line)
        status, _ = answer(client)
    after = process.cpu_times()
    assert sent < 20 << 20
    assert status in (0, 400, 431)
    assert after.user + after.system - cpu.user - cpu.system < 2.0
    assert process.memory_info().rss - before < 32 << 20
    assert is_alive(closed)


def test_a_head_of_the_most_bytes_is_taken(closed: Served) -> None:
    with connected(closed) as client:
        client.sendall(
            GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\nX: " + b"a" * (MOST_BYTES - 200) + b"\r\n\r\n")
        )
        assert answer(client)[0] == 200
    with connected(closed) as client:
        for piece in [b"GET /healthz HTTP/1.1\r\nX: ", *[b"a" * 4096] * 17]:
            client.sendall(piece)
            time.sleep(0.01)
        status, data = answer(client)
    assert status == 431
    assert json.loads(data.partition(b"\r\n\r\n")[2]) == {"detail": f"the head is longer than {MOST_BYTES:,} bytes"}


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: ", b"\r\n", GET + b"\r\nGET"])
def test_a_connection_that_sends_no_whole_head_ends(
    closed: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that sends nothing, half a head, empty lines, and half a second head."""
    monkeypatch.setattr(connections, "HEAD", 0.5)
    with connected(closed) as client:
        began = time.monotonic()
        client.sendall(sent)
        _, data = answer(client)
    assert 0.3 < time.monotonic() - began < 15
    assert data.endswith(b'{"detail":"no whole head of a request came within 0 s"}')
    assert data.count(b"HTTP/1.1 200") == sent.count(GET)


def test_a_head_that_dribbles_ends(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is that of the whole head: another byte now and then gives no more of it."""
    monkeypatch.setattr(connections, "HEAD", 0.5)
    with connected(closed) as client:
        with suppress(BrokenPipeError, ConnectionResetError):
            for byte in b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 1000:
                client.sendall(bytes([byte]))
                time.sleep(0.05)
        assert answer(client)[0] in (0, 408)
    assert is_alive(closed)


def test_an_answered_connection_is_kept_and_ends_when_it_is_idle(closed: Served) -> None:
    client = http.client.HTTPConnection("127.0.0.1", closed.port, timeout=20)
    client.connect()
    connection = client.sock
    for _ in range(3):
        client.request("GET", "/healthz")
        assert client.getresponse().read() == b'{"status":"ok"}'
        assert client.sock is connection
    began = time.monotonic()
    assert connection.recv(4096) == b""
    assert time.monotonic() - began < 15
    client.close()


def test_the_oldest_connections_without_a_head_go_first(closed: Served) -> None:
    clients = [socket.create_connection(("127.0.0.1", closed.port), timeout=20) for _ in range(WAITING + 30)]
    try:
        for client in clients:
            with suppress(OSError):
                client.sendall(b"G")
        assert is_alive(closed)
        gone = 0
        for client in clients[:40]:
            client.settimeout(0.2)
            with suppress(TimeoutError):
                gone += answer(client) == (0, b"")
        assert 25 <= gone <= 35
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_goes_on_after_its_refusal_ends(
    closed: Served, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "AFTER", 0.5)
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 99999999999"
    piece = b"10000\r\n" + b"a" * 65536 + b"\r\n" if chunked else b"a" * 65536
    with connected(closed) as client:
        client.sendall(b"POST /api/v1/captures HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n\r\n")
        began = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < 15:
                client.sendall(piece)
                time.sleep(0.02)
    assert time.monotonic() - began < 10
    assert is_alive(closed)


@pytest.mark.parametrize("endless", [b"0\r\nX: " + b"a" * 65536, b"1;" + b"x" * 65536, b"1\r\na\r\n" * 30_000])
def test_trailers_and_chunk_sizes_without_end_are_stopped(closed: Served, endless: bytes) -> None:
    with connected(closed) as client:
        client.sendall(b"POST /sign-in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + endless)
        sent = 0
        with suppress(BrokenPipeError, ConnectionResetError):
            while sent < 50 << 20:
                sent += client.send(b"a" * 65536)
    assert sent < 20 << 20
    assert is_alive(closed)


def test_a_body_of_somebody_unknown_is_short_and_comes_in_time(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    long = closed.ask("POST", "/sign-in", b"key=" + b"a" * access.UNKNOWN_BODY)
    assert (long.status, long.detail) == (413, f"the request is longer than {access.UNKNOWN_BODY:,} bytes")
    monkeypatch.setattr(access, "SLOWEST", 0.5)
    with connected(closed) as client:
        client.sendall(b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nkey=")
        began = time.monotonic()
        status = int(client.recv(4096).split(b" ")[1])
    assert (status, time.monotonic() - began < 15) == (408, True)


def test_a_stream_of_events_is_no_slow_body(closed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SLOWEST", 0.2)
    monkeypatch.setattr(connections, "AFTER", 0.2)
    _, text = closed.index.tokens.new("ci", [TokenScope.READ])
    found = replace(closed, token=text).get("/events?seconds=1")
    assert (found.status, found.body.startswith(b": begun")) == (200, True)
