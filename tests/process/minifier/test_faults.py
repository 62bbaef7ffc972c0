"""Small disks, clocks that jump, read-only places and processes that die early: a sentence, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from captured import pending as pending_failure
from captured import spec
from click.testing import CliRunner
from real_failures import skip_if_gone

import fxminify
from fxminify import cli
from fxminify.minifier.sandbox.launcher import STARTS, SandboxError
from fxminify.minifier.sandbox.pool import Ended, Pool
from fxminify.minifier.session.events import QueryAnswered
from fxminify.store.index import Index, State, leases

SHARED = str(Path(__file__).parents[2] / "shared")
QUICK = ("--replays", "1", "--runs", "1", "--no-explain")
#: Bytes of the captured input.
INPUT = 800_000
#: Runs a command where the directory $0 is an empty one on a disk of so many bytes.
SMALL = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size="$1" none "$0" && shift && exec "$@"']


def small(folder: Path, size: int, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SMALL, str(folder), str(size), *map(str, command)], env={**os.environ, **environment}, capture_output=True,
        text=True, check=False, timeout=240,
    )  # fmt: skip


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An index with one pending failure of `scripted`, whose input has 800 kB."""
    with pending_failure(tmp_path_factory.mktemp("captured"), INPUT // 4) as path:
        yield path


@pytest.fixture
def db(captured: Path, tmp_path: Path) -> Path:
    for file in captured.parent.glob("repro.db*"):
        if file.is_dir():
            shutil.copytree(file, tmp_path / file.name)
        else:
            shutil.copy(file, tmp_path)
    return tmp_path / "repro.db"


@pytest.fixture
def namespaces(tmp_path: Path) -> None:
    if small(tmp_path, 1 << 20, "true").returncode:
        pytest.skip("this system lets nobody mount a file system of its own")


def run(db: Path) -> list[str]:
    return [sys.executable, "-m", "fxminify", "run", str(db), *QUICK]


def state(db: Path) -> tuple[State, str]:
    with Index.open(str(db), readonly=True) as index:
        row = index.captures.get(1)
    return row.state, row.reason


def is_whole(db: Path) -> bool:
    with contextlib.closing(sqlite3.connect(db)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_full_temporary_directory_is_a_sentence_and_loses_nothing(db: Path, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = small(folder, INPUT // 2, *run(db), TMPDIR=str(folder))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert f"no space is left in {folder}" in done.stderr
    assert (state(db), is_whole(db)) == ((State.PENDING, ""), True)
    assert subprocess.run(run(db), capture_output=True, check=False).returncode == 0
    assert state(db) == (State.VERIFIED, "")


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_small_shared_memory_is_enough(db: Path) -> None:
    done = small(Path("/dev/shm"), 1 << 16, *run(db))
    assert (done.returncode, state(db)) == (0, (State.VERIFIED, "")), done.stderr


FILLS = """
import errno, os, shutil, subprocess, sys
source, disk, out, *command = sys.argv[1:]
shutil.copytree(source, disk, dirs_exist_ok=True)
with open(os.path.join(disk, "filler"), "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)):
            continue
    except OSError as error:
        assert error.errno == errno.ENOSPC
done = subprocess.run(command, capture_output=True, text=True)
os.remove(os.path.join(disk, "filler"))
shutil.copytree(disk, out)
sys.stderr.write(done.stderr)
sys.exit(done.returncode)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_an_index_on_a_full_disk_stays_whole(db: Path, tmp_path: Path) -> None:
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    source = tmp_path / "source"
    source.mkdir()
    for file in tmp_path.glob("repro.db*"):
        shutil.move(file, source / file.name)
    done = small(disk, 4 << 20, sys.executable, "-c", FILLS, source, disk, out, *run(disk / "repro.db"))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "full" in done.stderr
    after = out / "repro.db"
    assert is_whole(after)
    assert subprocess.run(run(after), capture_output=True, check=False).returncode == 0
    assert (state(after), is_whole(after)) == ((State.VERIFIED, ""), True)


class Jumping:
    """A clock of the day that another program sets an hour forward, and back, each time it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.now = time.time

    def __call__(self) -> float:
        self.reads += 1
        return self.now() + 3600 * (-1, 0, 1)[self.reads % 3]


@pytest.mark.slow
def test_budgets_and_leases_outlive_a_clock_that_jumps(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Jumping()
    monkeypatch.setattr(time, "time", clock)
    monkeypatch.setattr(leases, "RENEWED", 0.2)
    told: list[Any] = []
    options = fxminify.MinifyOptions(replays=1, runs=1, explain=False, budget=600, timeout=120)
    (result,) = fxminify.minify(db, options=options, listener=told.append)
    assert (result.state, result.reason) == (State.VERIFIED, "")
    assert clock.reads > 5
    assert [event for event in told if isinstance(event, QueryAnswered)]


@pytest.mark.parametrize("forward", [3600.0, -3600.0])
def test_a_limit_is_kept_whatever_the_clock_says(forward: float, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    with Pool(None, path=[SHARED], memory=512 << 20) as pool:
        slow = pool.submit("sandbox_tasks:waits", {"seconds": 60}, timeout=1.5)
        monkeypatch.setattr(time, "time", lambda: real() + forward)
        quick = pool.submit("sandbox_tasks:waits", {"seconds": 0.5}, timeout=30)
        assert (slow.result(60).ended, quick.result(60).ended) == (Ended.TIMEOUT, Ended.DONE)


@pytest.fixture
def next_zygote(monkeypatch: pytest.MonkeyPatch) -> Callable[[], subprocess.Popen[bytes]]:
    """A function that waits for the next zygote of this process, and returns it while it imports."""
    started: queue.Queue[subprocess.Popen[bytes]] = queue.Queue()
    real = subprocess.Popen

    def note(command: Any, **options: Any) -> Any:
        process = real(command, **options)
        if any(str(word).endswith(".zygote") for word in command):
            started.put(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", note)
    return lambda: started.get(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.5])
def test_a_zygote_that_is_killed_while_it_imports_is_a_sentence(
    next_zygote: Callable[[], subprocess.Popen[bytes]], delay: float
) -> None:
    with ThreadPoolExecutor(1) as together:
        pool = Pool(spec("ts", "").to_json(), jobs=1)
        starting = together.submit(pool.start)
        for _ in range(STARTS):
            zygote = next_zygote()
            time.sleep(delay)
            zygote.kill()
        with pytest.raises(SandboxError, match="the process died while importing the backend"):
            starting.result(60)
        assert zygote.poll() == -signal.SIGKILL
        assert pool.start().torch == torch.__version__
        pool.close()
        assert not pool.scratch.root.exists()


@pytest.mark.slow
def test_a_capture_whose_zygote_was_killed_is_minified_by_the_next_command(
    db: Path, next_zygote: Callable[[], subprocess.Popen[bytes]]
) -> None:
    options = fxminify.MinifyOptions(replays=1, runs=1, explain=False)
    with ThreadPoolExecutor(1) as together:
        ended = together.submit(fxminify.minify, db, options=options)
        for _ in range(STARTS):
            next_zygote().kill()
        (result,) = ended.result(120)
    assert result.state is State.BLOCKED
    assert result.reason.startswith("the workers cannot work: the process died while importing the backend")
    (result,) = fxminify.minify(db, options=options)
    assert (result.state, result.reason) == (State.VERIFIED, "")


def asked(db: Path) -> dict[str, int]:
    """How often each question was put that has an answer."""
    with contextlib.closing(sqlite3.connect(f"{db.as_uri()}?mode=ro", uri=True)) as connection:
        found = connection.execute("SELECT key, asks, outcome FROM verdicts").fetchall()
    return {key: asks for key, asks, outcome in found if outcome not in (None, "infra")}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["scripted", "inductor"])
def test_kills_lose_nothing_and_repeat_no_answered_question(backend: str, tmp_path: Path) -> None:
    """TorchScript refuses the module that Dynamo makes, and Inductor a negative kernel size that eager accepts."""
    if backend == "inductor":
        skip_if_gone("008_fractional_maxpool_neg_kernel")
    assert "scripted" in torch._dynamo.list_backends(())  # `captured` has imported the module
    db = tmp_path / "repro.db"
    fails: Any = torch.nn.FractionalMaxPool2d(-1, output_size=4)
    pool = fails if backend == "inductor" else torch.sin
    torch._dynamo.reset()
    fxminify.install(db, check=False, data="full")
    try:
        with pytest.raises(Exception):  # noqa: B017, PT011  whatever this compiler raises
            torch.compile(lambda x: torch.tanh(pool(torch.cos(x) * 2 + 1)) - 3, backend=backend)(
                torch.randn(1, 1, 9, 9)
            )
    finally:
        fxminify.uninstall()
    before: dict[str, int] = {}
    met = 0
    for answers in (1, 2, 4):
        with subprocess.Popen(run(db), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            end = time.monotonic() + 120
            while process.poll() is None and len(asked(db)) < answers:
                assert time.monotonic() < end
                time.sleep(0.02)
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
        met += process.returncode == -signal.SIGKILL
        assert psutil.wait_procs(family, timeout=20)[1] == []
        assert is_whole(db)
        assert before.items() <= asked(db).items()
        before = asked(db)
    assert met >= 1  # else no kill met a search
    assert before
    done = subprocess.run(run(db), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert state(db) == (State.VERIFIED, "")
    assert before.items() <= asked(db).items()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_read_only_directory_is_a_sentence_for_an_ordinary_user(captured: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        db = shutil.copy(captured, name)
        Path(name).chmod(0o555)
        verbs = {"run": 2, "retest": 2, "list": 0, "show": 0}
        arguments = {verb: [verb, str(db), *(["1"] if verb == "show" else [])] for verb in verbs}
        assert CliRunner().invoke(cli.main, arguments["list"]).exit_code == 0  # imports what root alone may read
        done = {}
        os.seteuid(65534)
        try:
            for verb, words in arguments.items():
                done[verb] = CliRunner().invoke(cli.main, words)
        finally:
            os.seteuid(0)
        assert {verb: result.exit_code for verb, result in done.items()} == verbs, done
        for verb in ("run", "retest"):
            assert "cannot be written (read-only" in done[verb].output
        assert os.listdir(name) == ["repro.db"]
        assert state(Path(db)) == (State.PENDING, "")
