"""Two processes at one index: a capture is worked on by one of them, and by nobody once that is gone."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from index_tasks import small_case
from indexes import add, chain, failing

from fxminify.minifier.session import minify as session
from fxminify.minifier.session.events import CaptureFinished
from fxminify.minifier.session.minify import minify
from fxminify.minifier.session.options import MinifyOptions
from fxminify.store.errors import LeaseLost
from fxminify.store.index import Index, State, StepInfo, StoreError, leases, verdicts

HOLDER = """
import sys
from fxminify.store.index import Index
with Index.open(sys.argv[1]) as index:
    print(index.leases.take(int(sys.argv[2])), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True) as index:
        for operation in ("sin", "cos"):
            add(index, chain([operation]), failing(f"no {operation}"))
    yield path
    assert [p.name for p in tmp_path.iterdir()] == ["repro.db"]


def holder(db: str, id: int) -> subprocess.Popen[str]:
    """A process that holds capture ``id``."""
    command = [sys.executable, "-c", HOLDER, db, str(id)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


@pytest.fixture
def late(db: str) -> Iterator[Index]:
    """An index that took capture 1, stopped for long, and does not know yet that another has it now."""
    with Index.open(db) as late, Index.open(db) as other:
        assert late.leases.take(1)
        with other.database.writing() as session:
            session.connection().exec_driver_sql("UPDATE leases SET until = 1")
        assert other.leases.take(1)
        yield late


@pytest.mark.parametrize("how", ["given back", "closed", "killed"])
def test_a_capture_is_of_one_process_as_long_as_that_holds_it(db: str, how: str) -> None:
    with Index.open(db) as index, holder(db, 1) as other:
        assert not index.leases.take(1)
        (held,) = index.leases.find()
        assert (held.capture, str(held), 0 < held.seconds <= leases.LASTS) == (1, f"process {other.pid}", True)
        assert index.leases.take(2)
        assert index.leases.take(2)
        index.leases.give_back(2)
        if how == "killed":
            other.kill()
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # only its exit code is left
        else:
            other.communicate()
        assert index.leases.find() == []
        assert index.leases.take(1)
        index.leases.give_back(1)
        with holder(db, 1) as third:
            third.communicate()
        other.communicate()


def test_one_process_may_have_two_indexes(db: str) -> None:
    with Index.open(db) as one, Index.open(db) as other:
        assert one.leases.take(1)
        assert not other.leases.take(1)
        one.leases.give_back(1)
        assert other.leases.take(1)
    with Index.open(db) as one, pytest.raises(StoreError, match="has no capture 9:"):
        one.leases.take(9)


def test_a_lease_is_renewed_until_it_is_given_back(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWED", 0.01)
    with Index.open(db) as index:
        monkeypatch.setattr(leases, "LASTS", 1.0)
        index.leases.take(1)
        monkeypatch.setattr(leases, "LASTS", 1000.0)
        end = time.monotonic() + 60
        while index.leases.find()[0].seconds < 900:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_of_another_machine_a_lease_ends_by_itself(db: str) -> None:
    with Index.open(db) as index:
        index.leases.take(1)
        index.database.fences.clear()
        with sqlite3.connect(db, isolation_level=None) as connection:
            connection.execute("UPDATE leases SET holder = 'elsewhere 12 34 x'")
        with Index.open(db) as other:
            assert not other.leases.take(1)
            assert str(other.leases.find()[0]) == "process 12 of another machine"
            connection.execute("UPDATE leases SET until = 1")
            assert other.leases.find() == []
            assert other.leases.take(1)
        connection.close()


@pytest.mark.parametrize(
    "write",
    [
        lambda index: index.captures.set_state(1, State.VERIFIED),
        lambda index: index.repros.save(1, "script", "", verified=1, runs=1, log=""),
        lambda index: index.artifacts.save(1, "ablation", {}),
        lambda index: index.reductions.begin(1, {}),
    ],
)
def test_who_lost_a_lease_changes_nothing(db: str, late: Index, write: Callable[[Index], object]) -> None:
    with pytest.raises(LeaseLost, match="another process took over capture 1 of"):
        write(late)
    late.captures.set_state(2, State.BLOCKED)
    late.leases.give_back(1)  # it is not this one's to give
    with Index.open(db, readonly=True) as index:
        assert [info.capture for info in index.leases.find()] == [1]
        assert [row.state for row in index.captures.find()] == [State.PENDING, State.BLOCKED]


def test_a_reduction_stops_where_another_process_goes_on(db: str) -> None:
    with Index.open(db) as late, Index.open(db) as other:
        late.leases.take(1)
        reduction = late.reductions.begin(1, {}).id
        late.verdicts.asked(reduction, "a", "nodes")
        with sqlite3.connect(db, isolation_level=None) as connection:
            connection.execute("UPDATE leases SET until = 1")
        connection.close()
        other.leases.take(1)
        for write in (
            late.verdicts.flush,
            lambda: late.reductions.add_step(reduction, StepInfo(1, "nodes", "a", 1, 1)),
            lambda: late.reductions.accept(reduction, *small_case(1)),
            lambda: late.reductions.finish(reduction, queries=1, nodes_before=1, nodes_after=1, seconds=0.0),
        ):
            with pytest.raises(LeaseLost):
                write()
        assert other.reductions.begin(1, {}).resumed


def test_a_stopped_process_that_wakes_up_leaves_the_capture_to_the_other(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(index: Index, *args: object) -> None:
        with sqlite3.connect(db, isolation_level=None) as connection:
            connection.execute("UPDATE leases SET until = 1")
        connection.close()
        assert other.leases.take(1)
        index.captures.set_state(1, State.VERIFIED)

    told: list[object] = []
    monkeypatch.setattr(session, "reduce_capture", stop)
    with Index.open(db) as other:
        (result,) = minify(db, [1], options=MinifyOptions(trust=True), listener=told.append)
    assert told[-1] == CaptureFinished(result.capture, "another process took it over")
    assert result.state is State.REDUCING


def test_what_a_stopped_process_has_not_written_yet_is_dropped(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(index: Index, *args: object) -> None:
        monkeypatch.setattr(verdicts, "WAIT", 1000.0)
        reduction = index.reductions.begin(1, {}).id
        index.verdicts.asked(reduction, "a", "nodes")
        index.verdicts.answered(reduction, "a", "same", None, 0.1, "")
        with sqlite3.connect(db, isolation_level=None) as connection:
            connection.execute("UPDATE leases SET until = 1")
        connection.close()
        assert other.leases.take(1)
        index.captures.set_state(1, State.VERIFIED)

    monkeypatch.setattr(session, "reduce_capture", stop)
    with Index.open(db) as other:
        minify(db, [1], options=MinifyOptions(trust=True))
        assert other.verdicts.find(1) == {}


def test_minify_run_leaves_alone_what_another_process_is_at_work_on(db: str) -> None:
    told: list[object] = []
    with Index.open(db) as index, holder(db, 1) as other:
        index.captures.set_state(1, State.REDUCING)
        (result,) = minify(db, [1], listener=told.append)
        assert result.state is State.REDUCING
        assert told[-1] == CaptureFinished(result.capture, f"process {other.pid} is working on it")
        other.communicate()


def test_minify_run_does_not_repeat_what_another_process_has_just_done(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = leases.Leases.take

    def late(self: leases.Leases, id: int) -> bool:
        with Index.open(db) as index:
            index.captures.set_state(id, State.VERIFIED)
        return take(self, id)

    monkeypatch.setattr(leases.Leases, "take", late)
    assert [result.state for result in minify(db)] == [State.VERIFIED, State.VERIFIED]


def test_a_process_that_is_stopped_for_long_loses_its_lease(db: str) -> None:
    with Index.open(db) as index, holder(db, 1) as other:
        other.send_signal(signal.SIGSTOP)
        assert not index.leases.take(1)
        with sqlite3.connect(db, isolation_level=None) as connection:
            connection.execute("UPDATE leases SET until = 1")
        connection.close()
        assert index.leases.take(1)
        other.send_signal(signal.SIGCONT)
        other.communicate()
        assert [info.pid for info in index.leases.find()] == [os.getpid()]


def test_a_capture_that_a_killed_process_worked_on_is_pending_again(db: str) -> None:
    with Index.open(db) as index:
        with holder(db, 1) as other:
            for id in (1, 2):
                index.captures.set_state(id, State.REDUCING)
            assert index.settle(besides=[2]) == []
            assert index.captures.get(1).state is State.REDUCING
            other.kill()
            other.wait()
            assert index.settle(besides=[2]) == [1]
        assert [row.state for row in index.captures.find()] == [State.PENDING, State.REDUCING]
        index.repros.save(2, "script", "", verified=1, runs=1, log="")
        assert index.settle() == [2]
        assert (index.captures.get(2).state, index.captures.get(2).reason) == (
            State.VERIFIED,
            "interrupted, it may become smaller",
        )
        assert index.leases.find() == []
