"""An index on a PostgreSQL server."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import next_schema
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from desks import invoke
from index_tasks import add, small_case
from indexes import add as add_capture
from indexes import chain, failing, minify
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from fxminify.store.errors import LeaseLost, StoreError
from fxminify.store.failure import FailureKind
from fxminify.store.index import Index, State, database
from fxminify.store.index.tables import SCHEMA, Base, CaptureRow, DocumentRow
from fxminify.store.index.upgrade import upgrade

pytestmark = pytest.mark.server


def at_once(*work: Callable[[], None]) -> None:
    """Do each in a thread of its own, and wait for all."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_migrations_make_what_the_models_say(url: str) -> None:
    Index.open(url, create=True).close()
    with create_engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == SCHEMA


def test_an_empty_server_can_be_written_to_and_is_not_read(url: str) -> None:
    Index.check(url)
    for options in ({"readonly": True}, {}):
        with pytest.raises(StoreError, match=r"is empty: `minify capture --db 'postgresql"):
            Index.open(url, **options)


def test_an_older_schema_is_named_and_brought_up_to_date(url: str, tmp_path: Path) -> None:
    with Index.open(url, create=True) as index:
        add_capture(index, chain(["sin"]), failing("no sin"))
    with ExitStack() as stack:
        for one in next_schema.patches(tmp_path):
            stack.enter_context(one)
        for attempt in (Index.check, Index.open, lambda name: Index.open(name, readonly=True)):
            with pytest.raises(StoreError, match=rf"older fxminify \(schema {SCHEMA}\): `minify upgrade 'postgresql"):
                attempt(url)
        assert upgrade(url) is None
        with Index.open(url) as index:
            assert [c.reason for c in index.captures.find()] == [next_schema.REASON]
            add_capture(index, chain(["sin"]), failing("no sin"))
            add_capture(index, chain(["cos"]), failing("no cos"))
            assert [(bug.ids, bug.occurrences) for bug in index.bugs.page()] == [((1,), 2), ((2,), 1)]
    with create_engine(url).begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
    for verb in (Index.check, upgrade):
        with pytest.raises(StoreError, match="has schema 0003, which only development versions wrote"):
            verb(url)


def test_what_is_stored_is_read(url: str) -> None:
    with Index.open(url, create=True) as index:
        first = add_capture(index, chain(["relu", "sin"]), failing("no \0 sin \ud800"))
        assert add_capture(index, chain(["relu", "sin"]), failing("no \0 sin \ud800")) == first
        minify(index, first, chain(["sin"]))
    with Index.open(url, readonly=True) as index:
        (row,) = index.captures.find()
        assert (row.state, row.occurrences, row.nodes_before, row.nodes_after) == (State.VERIFIED, 2, 2, 1)
        assert row.failure is not None
        assert row.failure.kind is FailureKind.COMPILE_ERROR
        assert index.captures.case(first) == chain(["relu", "sin"])
        script = index.repros.get(first)
        assert script is not None
        assert script.text == "raise SystemExit(1)\n"
        with pytest.raises(StoreError, match="opened for reading only"):
            index.captures.set_state(first, State.PENDING)


def test_many_writers_make_one_row_of_one_failure(url: str) -> None:
    """The first of them makes the tables."""
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with Index.open(url, create=True) as index:
                for other in range(5):
                    add_capture(index, chain(["sin"]), failing("no sin"))
                    add_capture(index, chain(["cos"]), failing(f"no cos {'x' * number} {'y' * other}"))
        except BaseException as error:  # noqa: BLE001  reported by the test
            errors.append(error)

    at_once(*(partial(write, number) for number in range(8)))
    assert errors == []
    with Index.open(url) as index:
        rows, bugs = index.captures.find(), index.bugs.page()
        seen = [sum(each.count for each in index.bugs.sightings(bug.id)) for bug in bugs]
    assert sorted(row.occurrences for row in rows) == [1] * 40 + [40]
    assert sum(bug.captures for bug in bugs) == 41
    assert [bug.occurrences for bug in bugs] == seen
    assert sum(seen) == 80


def test_a_document_that_one_writer_drops_and_another_needs_is_there(url: str) -> None:
    """Each new best case drops the one before, and captures of the same cases arrive meanwhile."""
    cases = [small_case(width) for width in (2, 3, 4)]
    errors: list[BaseException] = []

    def guarded(work: Callable[[Index], None]) -> None:
        try:
            with Index.open(url) as index:
                work(index)
        except BaseException as error:  # noqa: BLE001  reported by the test
            errors.append(error)

    with Index.open(url, create=True) as index:
        begun = [
            index.reductions.begin(add_capture(index, chain(["exp"]), failing(f"no exp {'x' * n}")), {}).id
            for n in range(2)
        ]

    def reduce(reduction: int) -> Callable[[Index], None]:
        def work(index: Index) -> None:
            for number in range(60):
                case, blobs = cases[number % 3]
                index.reductions.accept(reduction, case, blobs)

        return work

    def capture(letter: str) -> Callable[[Index], None]:
        def work(index: Index) -> None:
            for number in range(60):
                add(index, *cases[number % 3], f"no {letter} {'y' * number}")

        return work

    at_once(*(partial(guarded, work) for work in (*(reduce(id) for id in begun), capture("b"), capture("c"))))
    assert errors == []
    with Index.open(url) as index:
        rows = index.captures.find()
        assert len(rows) == 122
        for row in rows:
            case = index.captures.case(row.id)
            assert case.graph.count == 1
            assert len(dict(index.blobs.view(case.storages))) == len(case.storages)
        assert [best.graph.count for id in begun if (best := index.reductions.best(id)) is not None] == [1, 1]


def test_a_reader_sees_one_state(url: str) -> None:
    with Index.open(url, create=True) as index, Index.open(url) as other:
        add(index, *small_case(2), "no a")
        with index.database.reading() as session:
            seen = [len(session.scalars(select(CaptureRow.id)).all())]
            add(other, *small_case(2), "no b")
            seen.append(len(session.scalars(select(CaptureRow.id)).all()))
        assert (seen, len(index.captures.find())) == ([1, 1], 2)


def test_what_another_writer_came_between_is_done_again(url: str) -> None:
    key, calls = "0" * 64, 0

    def work(session: Session) -> str:
        nonlocal calls
        calls += 1
        if session.get(DocumentRow, key) is not None:
            return "the other's"
        with other.database.writing() as theirs:
            theirs.add(DocumentRow(digest=key, size=1, data=b"x"))
        session.add(DocumentRow(digest=key, size=1, data=b"x"))
        session.flush()
        return "ours"

    with Index.open(url, create=True) as index, Index.open(url) as other:
        assert (index.database.write(work), calls) == ("the other's", 2)


def test_a_capture_is_of_one_index_until_its_lease_ends(url: str) -> None:
    with Index.open(url, create=True) as one, Index.open(url) as other:
        for operation in ("sin", "cos"):
            add_capture(one, chain([operation]), failing(f"no {operation}"))
        assert one.leases.take(1)
        assert not other.leases.take(1)
        assert other.leases.take(2)
        assert [info.capture for info in one.leases.find()] == [1, 2]
        with one.database.writing() as session:
            session.connection().exec_driver_sql("UPDATE leases SET until = 1 WHERE capture = 1")
        assert other.leases.take(1)
        with pytest.raises(LeaseLost):
            one.captures.set_state(1, State.VERIFIED)
        other.leases.give_back(1)
        assert one.leases.take(1)
        one.captures.set_state(1, State.VERIFIED)


def test_its_captures_are_exported_to_a_file(url: str, tmp_path: Path) -> None:
    with Index.open(url, create=True) as index:
        for operations in (["sin", "relu"], ["cos"]):
            add_capture(index, chain(operations), failing(f"no {operations[0]} in /srv/a/x.py"))
        minify(index, 1, chain(["sin"]))
    made = invoke(tmp_path, "export", url, 1, "-o", "share.db", "--json")
    assert made.exit_code == 0, made.output
    with Index.open(str(tmp_path / "share.db"), readonly=True) as shared:
        rows = shared.captures.find()
        assert [(row.id, row.headline) for row in rows] == [(1, "RuntimeError: no sin in /masked/x.py")]
        best = shared.best(rows[0])
        assert best is not None
        assert best.graph.count == 1


def test_who_stops_in_a_transaction_loses_its_locks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused machine would keep others from a row for ever."""
    with Index.open(url, create=True) as stopped, Index.open(url) as other:
        add_capture(stopped, chain(["sin"]), failing("no sin"))
        monkeypatch.setitem(database._LIMITS, "idle_in_transaction_session_timeout", "100ms")
        with pytest.raises(StoreError), stopped.database.writing() as session:  # noqa: PT012
            session.get_one(CaptureRow, 1, with_for_update=True)
            other.captures.set_state(1, State.BLOCKED)
            session.get_one(CaptureRow, 1, populate_existing=True)
        assert stopped.captures.get(1).state is State.BLOCKED


def test_nobody_waits_for_ever_for_a_row_that_another_process_holds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database._LIMITS, "lock_timeout", "100ms")
    with Index.open(url, create=True) as busy, Index.open(url) as other:
        add_capture(busy, chain(["sin"]), failing("no sin"))
        with busy.database.writing() as session:
            session.get_one(CaptureRow, 1, with_for_update=True)
            with pytest.raises(StoreError, match="is locked by another process: wait for it to finish"):
                other.captures.set_state(1, State.BLOCKED)
        other.captures.set_state(1, State.BLOCKED)
        assert busy.captures.get(1).state is State.BLOCKED
