"""What killed processes leave behind is removed by the next one, and nothing of a living process is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.repro_templates.processes import Processes, Script
from fxminify.store import temporary
from fxminify.store.processes import machine, started

MAKES = """
import sys, tempfile
from fxminify.minifier.sandbox.scratch import Scratch
from fxminify.store.temporary import prefix
scratch = Scratch.create()
scratch.write("key", b"data")
print(scratch.root, tempfile.mkdtemp(prefix=prefix("fxminify-verify-")), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_swept", set())
    Scratch.create().remove()
    with Processes() as processes:
        processes.run(Script("", 60.0), plain=True)


def test_directories_of_a_killed_process_go_with_the_next_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        made = [Path(name) for name in process.stdout.readline().split()]
        next_command(monkeypatch)
        assert [path.is_dir() for path in made] == [True, True]
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # only its exit code is left
        next_command(monkeypatch)
    assert list(folder.iterdir()) == []


def name(kind: str = "fxminify-", *, pid: int = 0, since: str = "1", where: str = "") -> str:
    return f"{kind}{pid or os.getpid()}-{since}-{where or machine()}-x"


def test_only_what_is_surely_left_behind_is_removed(folder: Path) -> None:
    mine = name(since=started(os.getpid()))
    kept = [mine, name(where="0" * 16), name("fxminify-verify-"), "fxminify-abc", "fxminify-", f"other-{name()}"]
    for each in (*kept, name()):
        (folder / each / "within").mkdir(parents=True)
    (folder / f"{name()}-file").write_text("no directory")
    (folder / f"{name()}-link").symlink_to(folder / mine)
    used = folder / f"{name()}-used"
    used.mkdir()
    (used / f"faults.{os.getpid()}").touch()
    assert temporary.sweep("fxminify-", str(folder)) == [name()]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*kept, f"{name()}-file", f"{name()}-link", used.name]
    )
    assert (folder / mine / "within").is_dir()
    (used / f"faults.{os.getpid()}").rename(used / "faults.999999999")
    assert temporary.sweep("fxminify-", str(folder)) == [used.name]
    assert temporary.sweep("fxminify-", str(folder / "missing")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_of_another_user_nothing_is_removed(folder: Path) -> None:
    (folder / name()).mkdir()
    os.chown(folder / name(), 65534, 65534)
    assert temporary.sweep("fxminify-", str(folder)) == []


def test_the_journal_of_a_killed_capture_goes_once_its_program_has_ended(folder: Path) -> None:
    program = folder / "program.py"
    program.write_text("import sys, time\nprint('runs', flush=True)\ntime.sleep(60 if len(sys.argv) > 1 else 0)\n")
    command = [sys.executable, "-m", "fxminify", "capture", "--db", str(folder / "repro.db"), str(program)]
    with subprocess.Popen([*command, "long"], stdout=subprocess.PIPE, text=True, start_new_session=True) as capture:
        assert capture.stdout is not None
        assert capture.stdout.readline() == "runs\n"
        (journal,) = folder.glob("repro.db.inflight-*")
        capture.kill()
        capture.wait()
        subprocess.run(command, check=True, capture_output=True)
        assert journal.is_dir()  # the program still runs
        os.killpg(capture.pid, signal.SIGKILL)
        (faults,) = journal.glob("faults.*")
        end = time.monotonic() + 20
        while started(int(faults.suffix[1:])):
            assert time.monotonic() < end
            time.sleep(0.05)
        subprocess.run(command, check=True, capture_output=True)
    assert list(folder.glob("repro.db.inflight-*")) == []
