"""The queue of `minify work`: in a file, on a server, and on one behind a pooler."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from indexes import add, chain, failing, minify

from fxminify.store.index import Index, State, StoreError, TaskInfo, TaskState, queue, tasks
from fxminify.store.index.tables import TaskRow

#: What a worker must be able to do for the captures of these tests.
CAN = {"trust", "backend=planted", "torch=2.13"}
OTHER = """
import sys
from fxminify.store.index import Index
index = Index.open(sys.argv[1])
can = {"trust", "backend=planted"}
task = index.tasks.claim(index.tasks.join("other", can), can)
print(task.id, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["file", *(pytest.param(name, marks=pytest.mark.server) for name in ("url", "pooled"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "repro.db") if request.param == "file" else str(request.getfixturevalue(request.param))


@pytest.fixture
def index(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Index.open(place, create=True) as index:
        yield index


def bug(index: Index, name: str, *, times: int = 1, operations: tuple[str, ...] = ("sin",), **more: object) -> int:
    """A capture of the bug ``name``, met so often. Returns its id."""
    return [add(index, chain([*operations]), failing(f"no {name}"), **more) for _ in range(times)][-1]


def states(index: Index) -> list[TaskState]:
    return [task.state for task in index.tasks.page()]


def claimed(index: Index) -> TaskInfo:
    task = index.tasks.claim(index.tasks.join("one", CAN), CAN)
    assert task is not None
    return task


def set_columns(index: Index, values: str) -> None:
    with index.database.writing() as session:
        session.connection().exec_driver_sql(f"UPDATE {TaskRow.__tablename__} SET {values}")


def test_a_bug_has_one_open_task_and_those_met_most_come_first(index: Index) -> None:
    bug(index, "rare")
    bug(index, "frequent", times=9)
    bug(index, "frequent", operations=("relu", "sin"))
    bug(index, "known")
    add(index, None, failing("no graph"), reason="a node has no name")
    index.tasks.cancel(3)
    bug(index, "known", times=20, operations=("relu", "sin"))
    assert [(task.bug, task.capture, task.state) for task in index.tasks.page()] == [
        (1, 1, TaskState.QUEUED), (2, 2, TaskState.QUEUED), (3, 4, TaskState.CANCELLED), (3, 6, TaskState.QUEUED),
    ]  # fmt: skip
    worker = index.tasks.join("one", CAN)
    order = [task.bug for _ in range(4) if (task := index.tasks.claim(worker, CAN)) is not None]
    assert order == [2, 1, 3]
    assert index.tasks.counts() == {TaskState.LEASED: 3, TaskState.CANCELLED: 1}


def test_the_labels_of_a_capture(index: Index) -> None:
    bug(index, "own", ours=True)
    named = chain(["sin"], backend="ts")
    add(index, named, failing("no named"))
    own, other = index.tasks.page()
    maker = next(one for one in own.needs.split() if one.startswith("maker="))
    assert own.needs == f"backend=planted {maker} torch=2.13"
    assert other.needs == "backend=ts torch=2.13 trust"
    assert queue.missing(own.needs, {maker, "backend=planted"}) == []
    assert queue.missing(own.needs, {"trust"}) == ["backend=planted"]
    assert queue.missing(other.needs, {maker, "backend=ts"}) == ["trust"]


def test_many_who_claim_at_once_get_each_task_once(place: str, index: Index) -> None:
    for number in range(40):
        bug(index, "x" * number)
    got: list[int] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with Index.open(place) as own:
                worker = own.tasks.join("", CAN)
                while (task := own.tasks.claim(worker, CAN)) is not None:
                    got.append(task.id)
        except BaseException as error:  # noqa: BLE001  reported by the test
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, sorted(got)) == ([], list(range(1, 41)))


def test_a_driver_that_lost_its_task_changes_nothing(index: Index) -> None:
    bug(index, "a")
    late = claimed(index)
    set_columns(index, "until = 1")
    index.tasks.sweep(CAN)
    (task,) = index.tasks.page()
    assert (task.state, task.attempts) == (TaskState.WAITING, 1)
    assert task.why == "backs off for 5 s: its driver did not answer for 60 s"
    set_columns(index, "until = 1")
    index.tasks.sweep(CAN)
    now = claimed(index)
    assert (now.id, now.fence) == (late.id, late.fence + 1)
    assert not index.tasks.heartbeat(late)
    assert not index.tasks.finish(late, TaskState.DONE)
    assert not index.tasks.fail(late, "x")
    assert not index.tasks.give_back(late)
    assert index.tasks.get(now.id) == now
    assert index.tasks.heartbeat(now)
    assert index.tasks.finish(now, TaskState.DONE)
    assert not index.tasks.finish(now, TaskState.FAILED)


def test_a_task_that_ends_its_drivers_is_put_into_quarantine_and_can_be_tried_again(index: Index) -> None:
    bug(index, "a")
    for attempt in range(1, tasks.ATTEMPTS + 1):
        assert index.tasks.fail(claimed(index), "its driver was killed by SIGSEGV")
        (task,) = index.tasks.page()
        assert task.attempts == attempt
        set_columns(index, "until = 1")
        index.tasks.sweep(CAN)
    assert index.tasks.claim(9, CAN) is None
    (task,) = index.tasks.page()
    assert task.state is TaskState.QUARANTINED
    assert task.why == "3 drivers ended without an answer; the last: its driver was killed by SIGSEGV"
    index.tasks.retry(task.id)
    again = claimed(index)
    assert (again.attempts, again.config) == (0, {"again": True})


def test_what_is_given_back_is_no_attempt(index: Index) -> None:
    bug(index, "a")
    for _ in range(tasks.ATTEMPTS + 1):
        assert index.tasks.give_back(claimed(index))
    assert index.tasks.give_back(claimed(index), "busy", seconds=300.0)
    index.tasks.sweep(CAN)
    (task,) = index.tasks.page()
    assert (task.state, task.attempts, task.why) == (TaskState.WAITING, 0, "busy")
    assert not index.tasks.left(1, CAN, within=60.0)
    assert index.tasks.left(1, CAN, within=600.0)


def test_a_task_that_no_worker_serves_says_what_it_waits_for(index: Index) -> None:
    bug(index, "own", ours=True)
    add(index, chain(["cos"], backend="rare"), failing("no rare"))
    worker = index.tasks.join("one", {"backend=planted"})
    index.tasks.sweep({"backend=planted"})
    own, rare = index.tasks.page()
    assert (own.state, own.why) == (
        TaskState.WAITING, "needs trust: it was captured by somebody else, and only `minify work --trust` runs that",
    )  # fmt: skip
    assert (rare.state, rare.why) == (TaskState.WAITING, "needs an environment: no worker has backend=rare")
    assert index.tasks.claim(worker, {"backend=planted"}) is None
    other = index.tasks.join("other", {"backend=rare", "trust"})
    index.tasks.sweep({"backend=rare", "trust"})
    taken = index.tasks.claim(other, {"backend=rare", "trust"})
    assert taken is not None
    assert (taken.id, taken.why) == (rare.id, "")
    assert index.tasks.get(own.id).state is TaskState.WAITING


def test_a_worker_with_the_right_version_of_torch_is_preferred(index: Index) -> None:
    bug(index, "a")
    old, right = {"trust", "backend=planted", "torch=2.11"}, CAN
    first = index.tasks.join("old", old)
    second = index.tasks.join("right", right)
    assert index.tasks.claim(first, old) is None
    index.tasks.leave(second)
    taken = index.tasks.claim(first, old)
    assert taken is not None
    assert taken.worker == first


def test_another_capture_is_tried_where_the_first_was_not_enough(index: Index) -> None:
    bug(index, "a")
    for operation in ("cos", "exp", "tanh"):
        bug(index, "a", operations=("sin", operation))
    bug(index, "b")
    first = claimed(index)
    index.captures.set_state(1, State.NOT_REPRODUCED)
    index.tasks.finish(first, TaskState.FAILED, "not reproduced")
    assert [(task.capture, task.state) for task in index.tasks.page()] == [
        (1, TaskState.FAILED), (5, TaskState.QUEUED), (2, TaskState.QUEUED),
    ]  # fmt: skip
    assert claimed(index).capture == 5
    second = claimed(index)
    minify(index, 2, chain(["sin"]))
    index.tasks.finish(second, TaskState.DONE)
    bug(index, "a", operations=("sin", "abs"))
    assert [task.kind for task in index.tasks.page()] == ["minify", "minify", "minify", "ablate"]


def test_what_has_a_verified_script_is_explained_when_nothing_else_is_to_do(index: Index) -> None:
    bug(index, "a")
    bug(index, "b")
    first = claimed(index)
    minify(index, 1, chain(["sin"]))
    index.tasks.finish(first, TaskState.DONE)
    index.captures.set_state(1, State.VERIFIED)
    (follows,) = index.tasks.page(after=2)
    assert (follows.kind, follows.capture, follows.needs) == ("ablate", 1, "backend=planted explain torch=2.13 trust")
    assert claimed(index).bug == 2
    assert index.tasks.claim(1, CAN) is None
    index.tasks.sweep(CAN)
    assert index.tasks.get(follows.id).why == "needs a worker without --no-explain"
    able = CAN | {"explain"}
    worker = index.tasks.join("able", able)
    index.tasks.sweep(able)
    taken = index.tasks.claim(worker, able)
    assert taken is not None
    assert (taken.id, taken.kind) == (follows.id, "ablate")
    index.artifacts.save(1, "ablation", {})
    assert index.tasks.finish(taken, TaskState.DONE)
    index.captures.set_state(1, State.VERIFIED)
    assert [task.kind for task in index.tasks.page()] == ["minify", "minify", "ablate"]
    assert [event.capture for event in index.events.after(0, limit=99) if event.kind == "verified"] == [1, 1, 1]


def test_what_minify_run_has_finished_needs_no_task(index: Index) -> None:
    for name in "abc":
        bug(index, name)
    for operation in ("cos", "exp"):
        bug(index, "a", operations=("sin", operation))
    minify(index, 4, chain(["sin"]))
    index.captures.set_state(2, State.NOT_REPRODUCED, "it passes")
    leased = index.tasks.claim(index.tasks.join("one", CAN), CAN)
    assert leased is not None
    assert leased.bug == 1
    for id in (1, 2, 3, 4):
        index.tasks.settle(id)
    found = [(task.bug, task.state, task.why) for task in index.tasks.page() if task.kind == "minify"]
    assert found == [
        (1, TaskState.LEASED, ""), (2, TaskState.FAILED, "not reproduced: it passes"), (3, TaskState.QUEUED, ""),
    ]  # fmt: skip
    index.tasks.give_back(leased)
    index.tasks.settle(4)
    assert (index.tasks.get(1).state, index.tasks.get(1).why) == (TaskState.DONE, "capture 4 has a verified script")
    assert index.tasks.fill() == 0


def test_after_minify_run_another_capture_is_tried_where_the_first_was_not_enough(index: Index) -> None:
    bug(index, "a")
    bug(index, "a", operations=("sin", "cos"))
    index.captures.set_state(1, State.UNVERIFIED, "it passes")
    index.tasks.settle(1)
    assert [(task.capture, task.state) for task in index.tasks.page()] == [
        (1, TaskState.FAILED), (2, TaskState.QUEUED),
    ]  # fmt: skip


def test_what_a_worker_leaves_is_given_back(index: Index) -> None:
    bug(index, "a")
    task = claimed(index)
    assert task.worker is not None
    index.tasks.leave(task.worker)
    assert index.tasks.workers() == []
    assert [(left.state, left.attempts) for left in index.tasks.page()] == [(TaskState.QUEUED, 0)]
    assert not index.tasks.finish(task, TaskState.DONE)


def test_cancel_and_retry_say_what_cannot_be(index: Index) -> None:
    bug(index, "a")
    taken = claimed(index)
    with pytest.raises(StoreError, match=r"task 1 of .* is running: `minify tasks --cancel 1` ends it"):
        index.tasks.retry(1)
    index.tasks.cancel(1)
    assert not index.tasks.heartbeat(taken)
    with pytest.raises(StoreError, match=r"task 1 of .* is cancelled: there is nothing to cancel"):
        index.tasks.cancel(1)
    bug(index, "a", operations=("relu", "sin"))
    with pytest.raises(StoreError, match=r"task 2 of .* is about the same bug and is not over yet"):
        index.tasks.retry(1)
    with pytest.raises(StoreError, match=r"task 2 of .* is about the same bug and is not over yet"):
        index.tasks.add(1)
    with pytest.raises(StoreError, match="has no task 7: `minify tasks"):
        index.tasks.cancel(7)
    index.tasks.cancel(2)
    index.tasks.retry(1)
    assert [task.id for task in index.tasks.page([TaskState.QUEUED])] == [1]
    assert [task.id for task in index.tasks.page(after=1, limit=1)] == [2]


def test_captures_of_an_index_without_tasks_are_queued(index: Index) -> None:
    for name in ("a", "b", "c"):
        bug(index, name)
    bug(index, "a", operations=("relu", "sin"))
    minify(index, 2, chain(["sin"]))
    with index.database.writing() as session:
        session.connection().exec_driver_sql("DELETE FROM tasks")
    assert index.tasks.fill() == 2
    assert index.tasks.fill() == 0
    assert [task.capture for task in index.tasks.page()] == [1, 3]
    assert index.tasks.page()[0].needs == "backend=planted torch=2.13 trust"


def test_the_task_of_a_worker_that_is_gone_is_queued_at_once(place: str, index: Index) -> None:
    bug(index, "a")
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        index.tasks.sweep(CAN)
        assert states(index) == [TaskState.LEASED]
        other.kill()
    index.tasks.sweep(CAN)
    (task,) = index.tasks.page()
    assert (task.state, task.attempts, task.why) == (TaskState.QUEUED, 0, "its worker was gone")
    assert index.tasks.workers() == []
