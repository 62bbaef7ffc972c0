"""Captures wait in a spool and are sent later, each once: whatever ends in the middle, and whoever else sends."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner
from indexes import chain, failing
from serving import OPTIONS, Served, serving, with_storage

from fxminify.cli import main
from fxminify.store.errors import StoreError
from fxminify.store.index import Index, TokenScope
from fxminify.store.recording import Recording
from fxminify.store.spool import sender, upload
from fxminify.store.spool.sender import CannotSend, Sender
from fxminify.store.spool.spool import AGAIN, CAPTURE, LIMIT, Spool, is_server, spools

DEAD = "http://127.0.0.1:9"
#: The bytes of a request that does not break off.
WHOLE = 1 << 60


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_FIRST", 0.02)
    monkeypatch.setattr(sender, "_LONGEST", 0.2)


def met(name: str, size: int = 0, *operations: str) -> Recording:
    """A failure that names ``name``, of a graph with an input of ``size`` bytes."""
    case, blobs = chain([*operations] or ["sin"]), dict[str, bytes]()
    if size:
        case, blobs = with_storage(case, os.urandom(size))
    about = {"program": "train.py", "torch": "2.13.0", "python": "3.11.7", "backend": "planted"}
    return Recording(case=case, blobs=blobs, failure=failing(f"no {name}"), provenance=about)


def kinds(spool: Spool) -> list[str]:
    return [item.kind for item in spool.items()]


def occurrences(index: Index) -> dict[str, int]:
    return {row.headline.partition(": ")[2]: row.occurrences for row in index.captures.find()}


def test_what_waits_is_sent_once_with_its_case_and_is_its_makers(served: Served) -> None:
    spool = Spool(f"{served.url}/")
    one = met("sin", 4096)
    spool.put(one)
    spool.put(met("cos"))
    assert kinds(spool) == [CAPTURE, CAPTURE]
    assert [found.server for found in spools()] == [served.url]
    done = Sender(spool).run(0)
    assert (done.sent, done.counted, done.left, done.why) == (2, 0, 0, "")
    assert occurrences(served.index) == {"no sin": 1, "no cos": 1}
    assert one.case is not None
    assert dict(served.index.blobs.view(one.case.storages)) == one.blobs
    assert served.index.stored(1).ours
    assert spools() == []
    assert Sender(spool).run(0).sent == 0


def test_what_the_server_knows_is_counted_and_not_sent(served: Served) -> None:
    spool = Spool(served.url)
    identity = spool.put(met("sin"))
    assert spool.put(met("sin")) == identity
    assert kinds(spool) == [CAPTURE, AGAIN]
    spool.again(identity, 40, {"torch": "2.14.0"})
    assert (Sender(spool).run(0).sent, occurrences(served.index)) == (1, {"no sin": 42})
    spool.put(met("sin"))
    done = Sender(spool).run(0)
    assert (done.sent, done.counted, occurrences(served.index)) == (0, 1, {"no sin": 43})
    seen = {(s.versions.get("torch"), s.count) for s in served.index.bugs.sightings(1)}
    assert seen == {("2.13.0", 3), ("2.14.0", 40)}


def test_more_occurrences_of_what_is_not_known_are_dropped(served: Served) -> None:
    spool = Spool(served.url)
    spool.remember("b" * 16, "f" * 64)
    assert spool.recall("b" * 16) == "f" * 64
    spool.again("f" * 64, 3, {})
    assert Sender(spool).run(0).left == 0
    assert (spool.items(), spool.recall("b" * 16), occurrences(served.index)) == ([], "", {})


class Heard(BaseHTTPRequestHandler):
    """Notes which token each server was sent, and refuses all."""

    tokens: ClassVar[dict[str, list[str | None]]] = {}

    def do_POST(self) -> None:
        self.tokens.setdefault(f"http://{self.headers['Host']}", []).append(self.headers.get("Authorization"))
        self.send_error(403)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.mark.parametrize("named", [None, 0, 1])
def test_a_token_is_sent_to_the_server_that_it_belongs_to(named: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of FXMINIFY_DB, and the one that is named: `minify send` empties the spools of all."""
    Heard.tokens.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Heard) as first, ThreadingHTTPServer(("127.0.0.1", 0), Heard) as other:
        servers = [f"http://127.0.0.1:{each.server_address[1]}" for each in (first, other)]
        for each in (first, other):
            threading.Thread(target=each.serve_forever, daemon=True).start()
        for server in servers:
            Spool(server).put(met("sin"))
        monkeypatch.setenv("FXMINIFY_DB", f"{servers[0]}/")
        monkeypatch.setenv("FXMINIFY_TOKEN", "fxm_1_secret")
        done = CliRunner().invoke(main, ["send", *([] if named is None else [servers[named]])])
        for each in (first, other):
            each.shutdown()
    assert done.exit_code == 1
    own, foreign = ["Bearer fxm_1_secret"], [None]
    heard = [Heard.tokens.get(server) for server in servers]
    assert heard == {None: [own, foreign], 0: [own, None], 1: [None, own]}[named]


@pytest.mark.parametrize(("place", "sent"), [("", True), ("repro.db", True), ("URL", True), ("https://other", False)])
def test_the_process_of_a_program_has_the_token_of_its_server(
    place: str, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setenv("FXMINIFY_DB", DEAD if place == "URL" else place)
    monkeypatch.setenv("FXMINIFY_TOKEN", "fxm_1_secret")
    monkeypatch.setattr(sender, "PATIENCE", 0)
    monkeypatch.setattr(Sender, "__init__", lambda self, spool, token="": given.append(token))
    monkeypatch.setattr(Sender, "run", lambda self, patience, linger: sender.Sending(left=1, why="x"))
    assert sender.main(DEAD) == 1
    assert given == ["fxm_1_secret" if sent else ""]


class Wire:
    """Between a sender and its server: ``cut`` says of each connection, by number, after how many bytes of the request
    it breaks, or with None that it breaks when the answer comes."""

    def __init__(self, port: int, cut: Callable[[int], int | None]) -> None:
        self._port, self._cut, self._number = port, cut, 0
        self.broken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._number += 1
            threading.Thread(target=self._carry, args=(client, self._cut(self._number)), daemon=True).start()

    def _carry(self, client: socket.socket, left: int | None) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            loses_answer = left is None
            left = WHOLE if left is None else left

            def answer() -> None:
                with suppress(OSError):
                    while (data := server.recv(65536)) and not loses_answer:
                        client.sendall(data)
                self.broken += loses_answer
                end()

            def end() -> None:
                for each in (client, server):
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)

            thread = threading.Thread(target=answer)
            thread.start()
            with suppress(OSError):
                while left > 0 and (data := client.recv(min(65536, left))):
                    server.sendall(data)
                    left -= len(data)
            self.broken += left <= 0
            end()
            thread.join()

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param([None, WHOLE], id="answers are lost", marks=pytest.mark.slow),
        pytest.param([100, 1000, 20_000, 50_000, WHOLE, WHOLE], id="requests break off", marks=pytest.mark.slow),
        pytest.param([None, 20_000, WHOLE], id="both"),
    ],
)
def test_a_network_that_breaks_loses_nothing_and_sends_nothing_twice(served: Served, breaks: list[int | None]) -> None:
    chance = random.Random(1)
    wire = Wire(served.port, lambda number: chance.choice(breaks))
    spool = Spool(wire.url)
    for number in range(1, 7):
        spool.put(met("x" * number, 60_000))
        spool.put(met("y" * number))
    done = Sender(spool).run(60)
    wire.close()
    assert (done.left, done.refused, done.why) == (0, [], "")
    assert wire.broken > 3
    assert list(occurrences(served.index).values()) == [1] * 12
    assert served.left() == []


def test_two_senders_and_many_programs_at_once(served: Served) -> None:
    spool = Spool(served.url)

    def program(letter: str) -> None:
        for number in range(8):
            spool.put(met(f"{letter}{'x' * number}"))
            spool.put(met("both"))

    threads = [threading.Thread(target=program, args=(letter,)) for letter in "abc"]
    senders = [threading.Thread(target=lambda: Sender(Spool(served.url)).run(1, linger=0.3)) for _ in range(2)]
    for thread in threads + senders:
        thread.start()
    for thread in threads + senders:
        thread.join()
    Sender(spool).run(5)
    found = occurrences(served.index)
    assert (found.pop("no both"), set(found.values()), len(found)) == (24, {1}, 24)


@contextmanager
def serve(place: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """`minify serve` as a process of its own."""
    command = [sys.executable, "-m", "fxminify", "serve", place, "--port", str(port), "--min-free", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert "serving" in (line := process.stderr.readline()), line + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_of_uploads(place: str, tmp_path: Path) -> None:
    port = free_port()
    spool = Spool(f"http://127.0.0.1:{port}")
    for number in range(6):
        spool.put(met("x" * number, 4 << 20))
    sending = threading.Thread(target=lambda: Sender(spool).run(120))
    for round_ in range(4):
        with serve(place, port) as process:
            before = len(spool.items())
            if not round_:
                sending.start()
            end = time.monotonic() + 60
            while round_ < 3 and len(spool.items()) == before and time.monotonic() < end:
                time.sleep(0.005)
            if round_ == 3:
                sending.join(120)
            process.send_signal(signal.SIGKILL)
    assert spool.items() == []
    with Index.open(place) as index:
        assert list(occurrences(index).values()) == [1] * 6
        assert [index.captures.case(id).storages <= set(index.blobs.view(index.captures.case(id).storages))
                for id in range(1, 7)] == [True] * 6  # fmt: skip


@pytest.mark.slow
def test_a_server_that_is_away_is_waited_for_and_nothing_is_lost(place: str, tmp_path: Path) -> None:
    port = free_port()
    spool = Spool(f"http://127.0.0.1:{port}")
    spool.put(met("sin"))
    done = Sender(spool).run(0.3)
    assert (done.left, "does not answer" in done.why) == (1, True)
    with serve(place, port):
        assert Sender(spool).run(60).left == 0
    with Index.open(place) as index:
        assert occurrences(index) == {"no sin": 1}


def test_a_full_disk_of_the_server_holds_the_spool(place: str, tmp_path: Path) -> None:
    with serving(place, tmp_path / "uploads", replace(OPTIONS, least=1 << 60)) as served:
        spool = Spool(served.url)
        spool.put(met("sin"))
        answer = served.post("/captures/known", [])
        assert (answer.status, answer.headers["retry-after"]) == (503, "30")
        assert "no space is left" in answer.detail
        assert served.get("/status").json["state"] == "full"
        assert served.get("/bugs").status == 200
        assert served.ask("GET", "/readyz").json == {"status": "full"}
        done = Sender(spool).run(0.5)
        assert (done.left, "no space is left" in done.why) == (1, True)
        assert occurrences(served.index) == {}


def test_a_low_disk_is_said(place: str, tmp_path: Path) -> None:
    with serving(place, tmp_path / "uploads", replace(OPTIONS, low=1 << 60)) as served:
        status = served.get("/status").json
        assert (status["state"], "make some soon" in status["sentence"]) == ("low", True)
        spool = Spool(served.url)
        spool.put(met("sin"))
        assert Sender(spool).run(0).left == 0


def test_a_token_that_is_missing_holds_the_spool(place: str, tmp_path: Path) -> None:
    with serving(place, tmp_path / "uploads", replace(OPTIONS, tokens=True)) as served:
        spool = Spool(served.url)
        spool.put(met("sin"))
        done = Sender(spool).run(30)
        assert (done.left, "a token is needed here" in done.why) == (1, True)
        _, text = served.index.tokens.new("job", [TokenScope.SUBMIT])
        assert Sender(spool, text).run(0).left == 0


@pytest.mark.parametrize("address", ["http://service.example", "http://10.0.0.1:8437"])
def test_a_token_is_never_sent_unencrypted_to_another_machine(address: str) -> None:
    with pytest.raises(CannotSend, match="unencrypted: use its https address"):
        Sender(Spool(address), "fxm_1_x")


def test_what_is_not_wanted_is_kept_with_the_reason(served: Served, tmp_path: Path) -> None:
    spool = Spool(served.url)
    spool.put(met("sin"))
    spool.put(met("cos"))
    (first, _) = spool.items()
    whole = first.path.read_bytes()
    first.path.write_bytes(whole[:-40])
    done = Sender(spool).run(0)
    assert (done.sent, done.left, len(done.refused)) == (1, 0, 1)
    assert "cannot be read" in done.refused[0]
    (kept,) = spool.refused()
    assert kept.with_name(f"{kept.name}.txt").read_text().strip() == done.refused[0]
    kept.write_bytes(whole)
    again = CliRunner().invoke(main, ["send", "--again"])
    assert (again.exit_code, again.output) == (0, f"{served.url}: 1 capture sent, 0 counted, 0 left.\n")
    assert occurrences(served.index) == {"no cos": 1, "no sin": 1}


def test_what_is_larger_than_the_server_takes_is_not_sent(place: str, tmp_path: Path) -> None:
    with serving(place, tmp_path / "uploads", replace(OPTIONS, max_upload=10_000)) as served:
        spool = Spool(served.url)
        spool.put(met("sin", 20_000))
        done = Sender(spool).run(0)
    assert done.left == 0
    assert "the server takes 10,000" in done.refused[0]


def test_a_redirection_is_not_followed(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def redirect() -> None:
            client, _ = listener.accept()
            with client:
                asked.append(client.recv(1 << 16))
                client.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=redirect)
        thread.start()
        spool = Spool(f"http://127.0.0.1:{listener.getsockname()[1]}")
        spool.put(met("sin"))
        done = Sender(spool, "fxm_1_secret").run(30)
        thread.join()
    assert (done.left, "it answers 302" in done.why) == (1, True)
    assert len(asked) == 1


def test_a_spool_has_a_limit_and_drops_the_oldest_of_a_bug_that_has_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(LIMIT, "0.25")
    spool = Spool(DEAD)
    spool.put(met("rare", 100_000))
    first = spool.put(met("frequent", 60_000))
    with caplog.at_level("WARNING", logger="fxminify"):
        spool.put(met("frequent", 60_000, "relu", "sin"))
        assert caplog.text == ""
        spool.put(met("frequent", 60_000, "cos", "sin"))
    assert "there are others of its bug" in caplog.text
    assert len(spool.items()) == 3
    assert first not in [item.identity for item in spool.items()]
    with pytest.raises(StoreError, match=r"as large as it may be \(FXMINIFY_SPOOL_LIMIT=0\)"):
        spool.put(met("another", 200_000))
    assert len(spool.items()) == 2
    assert not list(spool.folder.glob(".*"))


def test_a_file_whose_name_does_not_say_its_size_is_sent_and_counts_for_the_limit(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the versions before."""
    spool = Spool(served.url)
    spool.put(met("sin"))
    (item,) = spool.items()
    size = item.path.stat().st_size
    assert item.size == size
    item.path.rename(item.path.with_name(item.path.name.replace(f"-{size}.", ".")))
    (old,) = spool.items()
    assert (old.size, old.key, old.identity, old.bug) == (None, item.key, item.identity, item.bug)
    monkeypatch.setenv(LIMIT, str(1.5 * size / (1 << 20)))
    with pytest.raises(StoreError, match="as large as it may be"):
        spool.put(met("cos"))
    assert Sender(spool).run(0).left == 0
    assert occurrences(served.index) == {"no sin": 1}


def test_a_spool_that_cannot_be_written_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXMINIFY_SPOOL", "/proc/nowhere")
    with pytest.raises(StoreError, match="FXMINIFY_SPOOL names another folder"):
        Spool(DEAD).put(met("sin"))


def test_what_is_private_here_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_PASSWORD", "hunter2hunter2")
    spool = Spool(DEAD)
    spool.put(replace(met("sin"), failure=failing("cannot reach hunter2hunter2")))
    (item,) = spool.items()
    assert upload.read(item.path).met.failure.message == "cannot reach <masked>"


def test_a_server_is_told_by_its_address() -> None:
    assert [is_server(place) for place in ("repro.db", "postgresql://x", "http://x", "https://x:1/y")] == [
        False, False, True, True,
    ]  # fmt: skip
    listed = CliRunner().invoke(main, ["list", "https://service.example"])
    assert (listed.exit_code, "name the index that it serves" in listed.output) == (2, True)
    wrong = CliRunner().invoke(main, ["send", "repro.db"])
    assert (wrong.exit_code, "is no address of a server" in wrong.output) == (2, True)
    assert CliRunner().invoke(main, ["send"]).output == "Nothing waits.\n"
