"""`minify gc`: what goes, what stays, and that nothing is left of what goes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desks import invoke
from index_tasks import add as add_case
from index_tasks import small_case
from indexes import add, chain, failing, minify
from sqlalchemy import select

from fxminify.store.index import BugStatus, Index, State, cleaning
from fxminify.store.index.cleaning import Cleaned
from fxminify.store.index.tables import Base, BugRow

LONG_AGO = "2020-01-01T00:00:00+00:00"


@pytest.fixture
def index(place: str) -> Iterator[Index]:
    with Index.open(place, create=True, inline_limit=100) as index:
        yield index


def tried(index: Index, name: str, state: State = State.UNVERIFIED, *operations: str) -> int:
    id = add(index, chain([*(operations or ("sin",))]), failing(f"no {name}"))
    index.captures.set_state(id, state, "why")
    index.tasks.settle(id)
    return id


def age(index: Index, *tables: str) -> None:
    columns = {"captures": "last_seen", "triage": "at"}
    with index.database.writing() as session:
        for table in tables:
            session.connection().exec_driver_sql(f"UPDATE {table} SET {columns[table]} = '{LONG_AGO}'")


def rows(index: Index) -> dict[str, int]:
    """How many rows of each table there are, of those that have any."""
    with index.database.reading() as session:
        connection = session.connection()
        found = {table.name: len(connection.execute(select(table)).all()) for table in Base.metadata.sorted_tables}
    return {name: number for name, number in found.items() if number}


def test_what_was_tried_in_vain_goes_when_it_was_not_met_for_long(index: Index) -> None:
    for state in (State.UNVERIFIED, State.NOT_REPRODUCED, State.UNSUPPORTED):
        tried(index, state.value, state)
    add(index, chain(["sin"]), failing("no pending"))
    leased = tried(index, "leased")
    verified = add(index, chain(["sin"]), failing("no verified"))
    minify(index, verified, chain(["cos"]))
    age(index, "captures")
    fresh = tried(index, "fresh")
    assert index.leases.take(leased)
    expected = Cleaned(captures=3, bugs=3, storages=0)
    assert index.cleaner.clean(dry_run=True) == expected
    assert len(index.captures.find()) == 7
    assert index.cleaner.clean() == expected
    assert [row.id for row in index.captures.find()] == [4, leased, verified, fresh]
    assert [bug.captures for bug in index.bugs.page()] == [1] * 4
    assert index.cleaner.clean() == Cleaned(0, 0, 0)


def test_nothing_is_left_of_what_goes(index: Index, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "BATCH", 2)
    for number in range(5):
        case, blobs = small_case(256, os.urandom(1024))
        id = add_case(index, case, blobs, f"no {'x' * number}", key=f"key-{number}-long")
        minify(index, id, chain(["sin"]), verified=0)
        index.artifacts.save(id, "explanation", {})
        index.verdicts.asked(number + 1, "a", "nodes")
        index.verdicts.answered(number + 1, "a", "same", "", 0.1, "")
        index.verdicts.flush()
        index.tasks.settle(id)
        index.triage.label(index.captures.get(id).bug, add=["p1"])
    add_case(index, *small_case(2), "no child", parent=5)
    with index.database.writing() as session:
        session.connection().exec_driver_sql(f"UPDATE captures SET last_seen = '{LONG_AGO}' WHERE id <= 5")
    assert index.cleaner.clean() == Cleaned(captures=5, bugs=5, storages=5)
    assert index.captures.get(6).parent is None
    kept = {name: number for name, number in rows(index).items() if name not in ("events", "environments")}
    assert kept == {
        "blobs": 1,
        "bug_sightings": 1,
        "bugs": 1,
        "captures": 1,
        "document_blobs": 1,
        "documents": 1,
        "sightings": 1,
        "tasks": 1,
    }
    if "://" not in place:
        assert [path for path in Path(f"{place}.blobs").rglob("*") if path.is_file()] == []


def test_a_bug_of_which_something_was_said_is_the_same_when_it_is_met_again(index: Index) -> None:
    fixed = add(index, chain(["sin"]), failing("no fixed"))
    minify(index, fixed, chain(["cos"]))
    for task in index.tasks.page():
        index.tasks.cancel(task.id)
    index.triage.retested(fixed, {"torch": "2.13.0"}, fixed=True)
    tried(index, "ignored")
    index.triage.set(2, BugStatus.IGNORED)
    index.triage.label(2, add=["p1"])
    tried(index, "merged")
    tried(index, "root", State.UNVERIFIED, "cos")
    index.triage.merge(3, 4)
    age(index, "captures", "triage")
    assert index.cleaner.clean(dry_run=True) == Cleaned(captures=4, bugs=0, storages=0)
    assert index.cleaner.clean() == Cleaned(captures=4, bugs=0, storages=0)
    assert (index.captures.find(), index.bugs.page()) == ([], [])
    for name in ("fixed", "ignored", "merged"):
        tried(index, name)
    assert [(bug.id, bug.status.value, bug.captures, bug.labels) for bug in index.bugs.page()] == [
        (1, "regressed", 1, ()), (2, "ignored", 1, ("p1",)), (4, "open", 1, ()),
    ]  # fmt: skip
    with index.database.reading() as session:
        assert len(session.scalars(select(BugRow)).all()) == 4


def test_files_that_no_row_names_go_when_they_are_old(tmp_path: Path) -> None:
    place = str(tmp_path / "repro.db")
    with Index.open(place, create=True, inline_limit=100) as index:
        add_case(index, *small_case(256, os.urandom(1024)))
        (kept,) = Path(f"{place}.blobs").rglob("*/*")
        for name, hours in (("0" * 64, 48), ("1" * 64, 1)):
            file = Path(f"{place}.blobs", name[:2], name)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"x")
            os.utime(file, (time.time() - 3600 * hours,) * 2)
        assert index.cleaner.clean(dry_run=True).storages == 1
        assert index.cleaner.clean().storages == 1
        assert sorted(path.name for path in Path(f"{place}.blobs").rglob("*/*")) == sorted(["1" * 64, kept.name])


def test_the_verb_says_what_it_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Index.open(str(tmp_path / "repro.db"), create=True) as index:
        for name in "ab":
            tried(index, name)
        age(index, "captures")
    assert invoke(tmp_path, "gc", "repro.db", "--unverified", 9999).stdout == "Removed 0 captures, 0 bugs, 0 tensors.\n"
    dry = invoke(tmp_path, "gc", "repro.db", "--dry-run")
    assert dry.stdout == "Would remove 2 captures, 2 bugs, 0 tensors.\n"
    assert invoke(tmp_path, "gc", "repro.db", "--json").stdout.split() == [
        "{", '"captures":', "2,", '"bugs":', "2,", '"storages":', "0", "}",
    ]  # fmt: skip
