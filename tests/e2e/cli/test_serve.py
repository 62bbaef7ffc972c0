"""From a job that knows only an address to the index behind it: `minify serve`, `tokens`, `send`, as typed."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from desks import Desk

from fxminify.store.index import Index, State
from fxminify.store.spool.spool import Spool

JOB = """
import sys
import torch

def cannot(gm, inputs):
    raise RuntimeError("cannot compile")

for _ in range(2):
    try:
        torch.compile(torch.sin, backend=cannot)(torch.ones(2))
    except Exception as error:
        print("caught", type(error).__name__)
    torch._dynamo.reset()
sys.exit(3)
"""


@contextmanager
def serving(desk: Desk, *options: object, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server and its address. In the end it is killed."""
    command = desk.command("serve", desk.db, "--port", port, "--min-free", 0, *options)
    process = subprocess.Popen(command, cwd=desk.path, env=desk.environment(), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("serving "), line + process.stderr.read()
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()


def arrived(desk: Desk) -> list[int]:
    return list(met(desk.db).values())


def met(db: Path) -> dict[str, int]:
    """How often each failure was met, by what it is called."""
    with Index.open(str(db), readonly=True) as index:
        return {f"{row.backend}: {row.headline}": row.occurrences for row in index.captures.find()}


def until(holds: Callable[[], bool], *, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def asked(at: str, path: str) -> Any:
    with urllib.request.urlopen(f"{at}/api/v1{path}") as answer:
        return json.load(answer)


@pytest.fixture
def spool(desk: Desk) -> Path:
    (desk.path / "job.py").write_text(JOB)
    return desk.path / "spool"


@pytest.mark.slow
def test_a_job_ends_as_ever_while_no_server_answers_and_nothing_is_lost(
    desk: Desk, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it takes connections, and never answers
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        here = {"FXMINIFY_DB": address, "FXMINIFY_SPOOL": str(spool)}
        done = desk.run([sys.executable, "job.py"], **here)
        assert (done.returncode, done.stdout) == (3, "caught BackendCompilerFailed\n" * 2)
        assert done.stderr == f"fxminify: captured 1 failure (1 compile error); on the way to {address}\n"
        supervised = desk.minify("capture", "job.py", **here)
        assert (supervised.returncode, "captured 1 failure" in supervised.stderr) == (3, True)
    monkeypatch.setenv("FXMINIFY_SPOOL", str(spool))
    waiting = Spool(address)
    assert waiting.items()[0].kind == "capture"
    with serving(desk) as (_, at):
        moved = Spool(at)
        moved.prepare()
        for item in waiting.items():
            item.path.rename(moved.folder / item.path.name)
        sent = desk.minify("send", at, FXMINIFY_SPOOL=str(spool))
        assert (sent.returncode, sent.stdout.startswith(f"{at}: 1 capture sent")) == (0, True), sent.stderr
        assert arrived(desk) == [4]
        assert [bug["occurrences"] for bug in asked(at, "/bugs")] == [4]


def test_a_job_is_captured_while_it_runs_and_needs_a_token_elsewhere(desk: Desk, spool: Path) -> None:
    with serving(desk, "--tokens") as (server, at):
        token = desk.minify("tokens", desk.db, "--new", "job", "--scope", "submit").stdout.strip()
        assert [(t["name"], t["scopes"], t["revoked"]) for t in desk.json("tokens", desk.db)] == [
            ("job", ["submit"], None)
        ]
        here = {"FXMINIFY_DB": at, "FXMINIFY_SPOOL": str(spool), "FXMINIFY_TOKEN": token}
        assert desk.run([sys.executable, "job.py"], **here).returncode == 3
        until(lambda: arrived(desk) == [2])
        assert desk.minify("tokens", desk.db, "--revoke", 1).stdout == "Token 1 is revoked.\n"
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 143
    with Index.open(str(desk.db), readonly=True) as index:
        text = json.dumps([index.captures.get(1).to_json()])
        needs = index.tasks.get(1).needs
    assert token not in text
    assert "maker=" in needs  # of this user, whose worker takes it without --trust
    assert list(desk.path.glob("repro.db.uploads*")) == []


@pytest.mark.slow
def test_from_jobs_to_scripts_while_the_server_is_killed(
    desk: Desk, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrives is what jobs without a server store themselves: nothing is lost, and nothing is counted twice."""
    port = free_port()
    at, alone = f"http://127.0.0.1:{port}", desk.path / "alone.db"
    here = {"FXMINIFY_DB": at, "FXMINIFY_SPOOL": str(spool)}

    def job(*backends: str) -> None:
        desk.minify("capture", "program.py", *backends, **here)
        desk.minify("capture", "--db", alone, "program.py", *backends)

    job("no_kernel")  # there is no server yet
    with serving(desk, port=port):
        until(lambda: len(arrived(desk)) == 1)
    job("two_bugs", "no_kernel")  # it was killed
    with serving(desk, port=port) as (server, _):
        until(lambda: len(arrived(desk)) > 1)
        server.send_signal(signal.SIGKILL)  # maybe between what it has stored and what it has said
    with serving(desk, port=port):
        monkeypatch.setenv("FXMINIFY_SPOOL", str(spool))
        until(lambda: Spool(at).items() == [])
        assert met(desk.db) == met(alone)
        done = desk.minify("work", desk.db, "--until-empty", "--replays", 1, "--runs", 1, "--no-explain")
        assert done.returncode == 0, done.stderr
        for id in (1, 2):
            with urllib.request.urlopen(f"{at}/api/v1/bugs/{id}/script") as answer:
                compile(answer.read(), "repro.py", "exec")
    assert sorted(met(alone).values()) == [1, 2]
    with Index.open(str(desk.db), readonly=True) as index:
        assert [index.captures.get(id).state for id in (1, 2)] == [State.VERIFIED] * 2


@pytest.mark.slow
@pytest.mark.parametrize("ends_by", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_beside_the_server_is_started_again_and_ends_with_it(desk: Desk, ends_by: signal.Signals) -> None:
    def worker(at: str) -> psutil.Process | None:
        found = asked(at, "/workers")
        return psutil.Process(int(found[0]["process"].split()[1])) if found else None

    def gone(process: psutil.Process) -> bool:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    with serving(desk, "--work", 1) as (server, at):
        until(lambda: worker(at) is not None)
        first = worker(at)
        assert first is not None
        first.kill()
        until(lambda: worker(at) not in (None, first))
        second = worker(at)
        assert second is not None
        server.send_signal(ends_by)
        assert server.wait(60) == (143 if ends_by is signal.SIGTERM else -signal.SIGKILL)
        until(lambda: gone(second))
    with Index.open(str(desk.db), readonly=True) as index:
        assert index.tasks.workers() == []


def test_what_is_wrong_is_a_sentence(desk: Desk) -> None:
    Index.open(str(desk.path / "old.db"), create=True).close()
    with closing(sqlite3.connect(desk.path / "old.db", isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
    done = desk.minify("serve", "old.db")
    assert (done.returncode, "old.db has schema 0003, which only development" in done.stderr) == (2, True), done.stderr
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = desk.minify("serve", "new.db", "--port", listener.getsockname()[1])
    assert (taken.returncode, "cannot be listened at" in taken.stderr) == (2, True)
    (desk.path / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')\n")
    missing = desk.minify("serve", "new.db", PYTHONPATH=str(desk.path))
    assert (missing.returncode, "pip install 'fxminify[service]'" in missing.stderr) == (2, True), missing.stderr
    none = desk.minify("tokens", "new.db", "--new", "x")
    assert (none.returncode, "--scope" in none.stderr) == (2, True)
    for each in (done, taken, missing, none):
        assert "Traceback" not in each.stderr
