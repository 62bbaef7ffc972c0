"""A search that is cut short, by Ctrl-C, by ``kill -9`` or by its budget, goes on later and repeats no question."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from desks import Desk, MakeDesk

QUICK = ("--replays", "1", "--runs", "1", "--no-explain")
#: Seconds the backend sleeps, so that a signal meets a search.
PAUSE = "0.3"


@pytest.fixture(scope="module")
def captured(make_desk: MakeDesk) -> Desk:
    return make_desk("slow_pair")


@pytest.fixture
def desk(captured: Desk, tmp_path: Path) -> Desk:
    """A copy of the desk with one pending capture."""
    copy = Desk(tmp_path)
    shutil.copytree(captured.path, tmp_path, dirs_exist_ok=True)
    return copy


def asked(desk: Desk) -> list[tuple[str, int, str | None]]:
    """Key, number of times asked, and answer of every question so far."""
    with contextlib.closing(sqlite3.connect(f"{desk.db.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT key, asks, outcome FROM verdicts").fetchall()


def answered(desk: Desk) -> dict[str, int]:
    """How often each question with an answer was asked. One that a signal cut short has none."""
    return {key: asks for key, asks, outcome in asked(desk) if outcome not in (None, "infra")}


def end_in_the_middle(desk: Desk, number: signal.Signals, *, answers: int) -> int:
    """The exit code of a `minify run` that is sent ``number`` after ``answers``; nothing that it started is left."""
    process = subprocess.Popen(
        desk.command("run", "repro.db", *QUICK), cwd=desk.path, env=desk.environment(PLANTED_PAUSE=PAUSE),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(answered(desk)) < answers:
        assert process.poll() is None, process.stderr
        assert time.monotonic() < deadline
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as the terminal does
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert "1 slow_pair compile error: interrupted; best so far: " in said
        assert "; to go on: minify run repro.db 1\n" in said
    assert "Traceback" not in said
    _, alive = psutil.wait_procs(family, timeout=15)
    assert alive == []
    return process.returncode


@pytest.fixture(scope="module")
def undisturbed(captured: Desk, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int, str]:
    """Nodes, queries and script of a run with nothing in its way."""
    desk = Desk(tmp_path_factory.mktemp("undisturbed"))
    shutil.copytree(captured.path, desk.path, dirs_exist_ok=True)
    assert desk.minify("run", *QUICK).returncode == 0
    assert {asks for _, asks, _ in asked(desk)} == {1}
    return result(desk)


def result(desk: Desk) -> tuple[int, int, str]:
    row = desk.row()
    assert (row["state"], row["verified"]) == ("verified", 1), row
    return row["nodes_after"], row["queries"], desk.invoke("repro", "repro.db", 1).stdout


@pytest.mark.slow
def test_ctrl_c_and_kill_lose_nothing_and_leave_nobody(desk: Desk) -> None:
    assert end_in_the_middle(desk, signal.SIGINT, answers=5) == 130  # the first ones come at once, from the head start
    assert desk.row()["state"] == "pending"
    first = answered(desk)
    assert end_in_the_middle(desk, signal.SIGKILL, answers=7) == -signal.SIGKILL
    assert desk.row()["state"] == "reducing"
    second = answered(desk)
    assert len(first) >= 5
    assert len(second) >= 7
    assert first.items() <= second.items()
    assert desk.minify("run", *QUICK, "-j", 2).returncode == 0
    nodes, queries, script = result(desk)
    assert nodes == 2
    assert queries > 6
    assert "torch.relu(" in script
    assert "torch.sigmoid(" in script
    assert second.items() <= answered(desk).items()  # nothing that has an answer was asked again


@pytest.mark.slow
def test_a_budget_ends_cleanly_and_can_be_raised_later(desk: Desk, undisturbed: tuple[int, int, str]) -> None:
    done = desk.minify("run", "repro.db", *QUICK, "--max-queries", 3)
    assert done.returncode == 0, done.stderr
    row = desk.row()
    assert (row["state"], row["verified"]) == ("verified", 1)
    assert row["queries"] in (2, 3)  # one may have been asked ahead in vain
    assert undisturbed[0] <= row["nodes_after"] < row["nodes_before"]
    assert "minify run repro.db 1 --again" in row["reason"]
    assert "torch.relu(" in desk.invoke("repro", "repro.db", 1).stdout
    assert desk.minify("run", "repro.db", 1, "--again", *QUICK).returncode == 0
    assert result(desk) == undisturbed
    assert {asks for _, asks, _ in asked(desk)} == {1}


@pytest.mark.slow
def test_no_time_at_all_still_ends_with_a_script(desk: Desk) -> None:
    done = desk.minify("run", "repro.db", *QUICK, "--budget", 0.001)
    assert done.returncode == 0, done.stderr
    assert desk.row()["nodes_after"] == desk.row()["nodes_before"]
    assert asked(desk) == []
