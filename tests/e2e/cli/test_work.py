"""`minify work`: whatever is killed, all that was captured is minified in the end, and no answer is asked for twice."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from desks import Desk, MakeDesk
from indexes import add, chain, failing, one_relu
from sqlalchemy import select, text

from fxminify.benchmarks.postgres_server import PostgresServer
from fxminify.minifier.oracle import ablation
from fxminify.store.index import CaptureInfo, Index, State, StoreError, TaskInfo, TaskState, queue
from fxminify.store.index.tables import VerdictRow

QUICK = ("--replays", "1", "--runs", "1", "--no-explain")
#: Seconds the backend sleeps, so that a signal meets a search.
PAUSE = "0.3"
DRIVER = "fxminify.service.workers.driver"


@pytest.fixture(scope="module")
def captured(make_desk: MakeDesk) -> Desk:
    return make_desk("slow_pair")


@pytest.fixture
def desk(captured: Desk, tmp_path: Path) -> Desk:
    """A copy of the desk with one pending capture."""
    shutil.copytree(captured.path, tmp_path, dirs_exist_ok=True)
    return Desk(tmp_path)


@contextmanager
def at_work(desk: Desk, place: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A `minify work` in the background. Nothing that it started is left when it has ended."""
    command = desk.command("work", place, *QUICK, *options)
    with (desk.path / "log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=desk.path, env=desk.environment(PLANTED_PAUSE=PAUSE), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        for each in [process.pid, *(child.pid for child in drivers(process))]:
            os.kill(each, signal.SIGKILL) if psutil.pid_exists(each) else None
        process.wait()


def drivers(worker: subprocess.Popen[str]) -> list[psutil.Process]:
    """The drivers that a worker has started, and that are there."""
    try:
        children = psutil.Process(worker.pid).children()
        return [child for child in children if DRIVER in child.cmdline()]
    except psutil.NoSuchProcess:
        return []


def answered(place: str) -> dict[str, int]:
    """How often each question with an answer was asked."""
    query = select(VerdictRow.key, VerdictRow.asks, VerdictRow.outcome)
    with Index.open(place, readonly=True) as index, index.database.reading() as session:
        return {key: asks for key, asks, outcome in session.execute(query) if outcome not in (None, "infra")}


def until(holds: Callable[[], bool], *, seconds: float = 150.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def log(desk: Desk) -> str:
    return (desk.path / "log").read_text()


def rest(desk: Desk, place: str, *options: str) -> None:
    """A new worker, to the end."""
    done = desk.minify("work", place, *QUICK, "--until-empty", *options)
    assert done.returncode == 0, done.stderr + log(desk)
    assert "Traceback" not in done.stderr


def minifying(index: Index) -> list[TaskInfo]:
    """The tasks but for those that follow a verified script, which no worker of `QUICK` takes."""
    return [task for task in index.tasks.page() if task.kind == queue.MINIFY]


def all_is_done(place: str) -> list[CaptureInfo]:
    """Every task is done, and every script was verified. Returns the captures."""
    with Index.open(place, readonly=True) as index:
        tasks, rows = minifying(index), index.captures.find()
        assert [task.state for task in tasks] == [TaskState.DONE] * len(rows)
        assert [row.state for row in rows] == [State.VERIFIED] * len(rows)
        assert [index.leases.find(), index.tasks.workers()] == [[], []]
    return rows


@pytest.mark.slow
def test_what_is_ended_or_killed_is_gone_on_with(desk: Desk) -> None:
    place = str(desk.db)
    with at_work(desk, place) as worker:
        until(lambda: len(answered(place)) >= 2)
        family = psutil.Process(worker.pid).children(recursive=True)
        worker.terminate()
        assert worker.wait(30) == 128 + signal.SIGTERM
        assert psutil.wait_procs(family, timeout=15)[1] == []
        with Index.open(place, readonly=True) as index:
            (task,) = index.tasks.page()
            assert (task.state, task.attempts, task.why) == (TaskState.QUEUED, 0, "its worker was ended")
            assert index.captures.get(1).state is State.PENDING
            assert [index.leases.find(), index.tasks.workers()] == [[], []]
    first = answered(place)
    with at_work(desk, place) as worker:
        until(lambda: len(answered(place)) > len(first))
        (driver,) = drivers(worker)
        driver.kill()
        until(lambda: "was killed by SIGKILL" in log(desk))
        second = answered(place)
        until(lambda: len(answered(place)) > len(second))
        family = psutil.Process(worker.pid).children(recursive=True)
        worker.kill()
        assert psutil.wait_procs(family, timeout=15)[1] == []
    third = answered(place)
    rest(desk, place)
    (row,) = all_is_done(place)
    assert row.nodes_after == 2
    assert first.items() <= second.items() <= third.items() <= answered(place).items()
    with Index.open(place, readonly=True) as index:
        (task,) = minifying(index)
    assert task.attempts == 1
    assert "Traceback" not in log(desk)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.server)])
def test_a_driver_that_was_stopped_and_lost_its_lease_changes_nothing(
    desk: Desk, kind: str, request: pytest.FixtureRequest
) -> None:
    place = str(desk.db)
    if kind == "server":
        place = str(request.getfixturevalue("url"))
        desk.minify("capture", "--db", place, "program.py", "slow_pair")
    with at_work(desk, place) as worker:
        until(lambda: len(answered(place)) >= 2)
        (driver,) = drivers(worker)
        stop(place, worker, driver)
        before = answered(place)
        with Index.open(place) as index, index.database.writing() as session:
            session.execute(text("UPDATE tasks SET until = 1"))
            session.execute(text("UPDATE leases SET until = 1"))
            session.execute(text("UPDATE workers SET seen = 1"))
        rest(desk, place)
        with Index.open(place, readonly=True) as index:
            (done,), script, row = minifying(index), index.repros.get(1), index.captures.get(1)
        assert done.state is TaskState.DONE
        answers = answered(place)
        driver.send_signal(signal.SIGCONT)
        psutil.wait_procs([driver], timeout=60)
        assert not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE
        worker.send_signal(signal.SIGCONT)
        worker.terminate()
        assert worker.wait(30) == 128 + signal.SIGTERM
    with Index.open(place, readonly=True) as index:
        assert (minifying(index), index.repros.get(1), index.captures.get(1)) == ([done], script, row)
    assert answered(place) == answers
    assert before.items() <= answers.items()


def stop(place: str, *processes: subprocess.Popen[str] | psutil.Process) -> None:
    """Stop them at a moment when none of them writes: in a file, that would keep everybody from writing."""
    while True:
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            with Index.open(place, timeout=0.5) as index, index.database.writing():
                return
        except StoreError as error:
            if "locked" not in str(error):
                raise
        for process in processes:
            process.send_signal(signal.SIGCONT)
        time.sleep(0.1)


@pytest.mark.slow
def test_what_others_captured_waits_for_trust_and_what_is_not_there_for_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", desk.environment()["XDG_STATE_HOME"])
    case, _ = one_relu(name="team", target="team", module="team_of_nobody")
    with Index.open(str(desk.db), create=True) as index:
        add(index, replace(case, tensors=(replace(case.tensors[0], storage=None, init={"fn": "randn"}),)),
            failing("no relu"), ours=True)  # fmt: skip
    done = desk.minify("work", "repro.db", *QUICK, "--until-empty", XDG_STATE_HOME=str(desk.path / "other"))
    assert done.returncode == 0, done.stderr
    (task,) = desk_tasks(desk)
    assert (task["state"], task["why"]) == (
        "waiting", "needs trust: it was captured by somebody else, and only `minify work --trust` runs that",
    )  # fmt: skip
    assert desk.row()["state"] == "pending"
    done = desk.minify("work", "repro.db", *QUICK, "--until-empty", "--json")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in said] == ["begun", "claimed", "waits", "ended"]
    (task,) = desk_tasks(desk)
    assert (task["state"], task["attempts"]) == ("waiting", 0)
    assert task["why"] == said[2]["text"]
    assert str(task["why"]).startswith("needs an environment: ")
    assert "team_of_nobody" in str(task["why"])


def desk_tasks(desk: Desk, *options: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(desk.invoke("tasks", "repro.db", "--json", *options).stdout)
    return found


def test_tasks_are_listed_cancelled_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    desk = Desk(tmp_path)
    with Index.open(str(desk.db), create=True):
        pass
    shown = desk.invoke("tasks", "repro.db")
    assert (shown.exit_code, shown.stdout) == (0, "There are no tasks: one is added with each bug that is captured.\n")
    with Index.open(str(desk.db)) as index:
        for name in ("a", "b", "c"):
            add(index, chain(["sin"]), failing(f"no {name}"))
    assert desk.invoke("tasks", "repro.db", "--cancel", 2).stdout == "Task 2 is cancelled.\n"
    assert [task["id"] for task in desk_tasks(desk, "--state", "queued", "--limit", "1")] == [1]
    assert [task["id"] for task in desk_tasks(desk, "--after", "1")] == [2, 3]
    lines = desk.invoke("tasks", "repro.db", "--limit", 2).stdout.splitlines()
    assert lines[0].split() == ["id", "kind", "state", "bug", "capture", "attempts", "worker", "why"]
    assert [line.split() for line in lines[1:3]] == [
        ["1", "minify", "queued", "1", "1"], ["2", "minify", "cancelled", "2", "2"],
    ]  # fmt: skip
    assert lines[3:] == [
        "1 cancelled, 2 queued.",
        "No worker is running: minify work repro.db",
        "These are not all. The next: minify tasks repro.db --limit 2 --after 2",
    ]
    assert desk.invoke("tasks", "repro.db", "--retry", 2).stdout == "Task 2 is queued.\n"
    for options, said in {
        ("--cancel", "9"): "Error: repro.db has no task 9: `minify tasks repro.db` shows those that it has\n",
        ("--cancel", "1", "--retry", "1"): "Error: cancel a task or retry one, not both at once.\n",
    }.items():
        refused = desk.invoke("tasks", "repro.db", *options)
        assert (refused.exit_code, refused.stderr) == (2, said)
    with Index.open(str(desk.db)) as index, index.database.writing() as session:
        session.execute(text("UPDATE tasks SET state = 'unheard of' WHERE id = 3"))
    refused = desk.invoke("tasks", "repro.db")
    assert (refused.exit_code, "a state of a task that cannot be read" in refused.stderr) == (2, True)
    refused = desk.invoke("work", "repro.db", "--label", "two words")
    assert (refused.exit_code, refused.stderr) == (2, "Error: a label is one word, and 'two words' is not.\n")


@pytest.mark.slow
def test_a_new_capture_is_minified_verified_and_explained_unasked(make_desk: MakeDesk) -> None:
    desk = make_desk("raises")
    done = desk.minify("work", "repro.db", "--until-empty", "--replays", "1", "--runs", "1", "--json")
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in said if line["event"] in ("claimed", "done")] == ["claimed", "done"]
    assert [(task["kind"], task["state"]) for task in desk_tasks(desk)] == [("minify", "done")]
    with Index.open(str(desk.db), readonly=True) as index:
        found = ablation.stored(index, 1)
    assert found is not None
    assert found.enters == "the backend raises"


@pytest.mark.slow
def test_minify_run_closes_the_tasks_of_what_it_has_finished(desk: Desk) -> None:
    """Without an explanation the layer is not known yet: a worker finds it out later."""
    done = desk.minify("run", "repro.db", *QUICK)
    assert done.returncode == 0, done.stderr
    assert [(task["kind"], task["state"]) for task in desk_tasks(desk)] == [("minify", "done"), ("ablate", "queued")]
    done = desk.minify("work", "repro.db", "--until-empty", "--replays", "1", "--runs", "1")
    assert done.returncode == 0, done.stderr
    assert {(task["kind"], task["state"]) for task in desk_tasks(desk)} == {("minify", "done"), ("ablate", "done")}


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("seed", [1, 2])
def test_drivers_workers_and_the_server_are_killed_at_random(desk: Desk, own_server: PostgresServer, seed: int) -> None:
    """Two workers, and every few seconds something dies."""
    chance, place, names = random.Random(seed), own_server.url, ("slow_pair", "raises", "ts")
    desk.minify("capture", "--db", place, "program.py", *names)
    seen: dict[str, int] = {}
    lives = {"driver": 2, "worker": 3, "server": 3}
    deaths = [name for name, times in lives.items() for _ in range(times)]
    chance.shuffle(deaths)

    def kill(kind: str, workers: Sequence[subprocess.Popen[str]]) -> None:
        at = [driver for worker in workers for driver in drivers(worker)]
        if kind == "server":
            own_server.kill()
            time.sleep(chance.uniform(0, 5))
            own_server.start()
        elif kind == "worker":
            chance.choice(workers).kill()
        elif at:
            chance.choice(at).kill()

    for death in deaths:
        with at_work(desk, place) as one, at_work(desk, place) as other:
            until(lambda: bool(drivers(one) + drivers(other)) or finished(place))
            time.sleep(chance.uniform(0, 8))
            seen |= answered(place)
            kill(death, [one, other])
            time.sleep(chance.uniform(0, 8))
            seen |= answered(place)
    rest(desk, place)
    assert len(all_is_done(place)) == len(names)
    assert seen.items() <= answered(place).items()
    assert "Traceback" not in log(desk)


def finished(place: str) -> bool:
    with Index.open(place, readonly=True) as index:
        return {task.state for task in minifying(index)} == {TaskState.DONE}
