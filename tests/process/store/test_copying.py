"""`minify copy`: from a file to a server and back, again where it was interrupted, and while others write."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desks import invoke
from index_tasks import add as add_case
from index_tasks import small_case
from indexes import add, chain, failing, minify
from sqlalchemy import select

from fxminify.store.errors import StoreError
from fxminify.store.index import BugStatus, Index, TokenScope, copying
from fxminify.store.index.copying import copy
from fxminify.store.index.tables import Base, CaptureRow

LARGE = os.urandom(9 << 20)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def full(tmp_path: Path) -> str:
    """An index with rows in nearly every table, and a storage beside it."""
    place = str(tmp_path / "repro.db")
    with Index.open(place, create=True) as index:
        first = add_case(index, *small_case(len(LARGE) // 4, LARGE), "no large", ours=True, key="a-key-of-one")
        add_case(index, *small_case(2), "no child", parent=first)
        for number in range(3):
            add(index, chain(["sin", "cos"]), failing(f"no {'x' * number} \ud800"))
        minify(index, first, chain(["sin"]))
        index.verdicts.asked(1, "Z", "nodes")
        index.verdicts.asked(1, "a", "nodes")
        index.verdicts.flush()
        index.artifacts.save(first, "ablation", {"rows": []})
        index.triage.set(3, BugStatus.IGNORED, more=4)
        index.triage.label(3, add=["p1", "needs-owner"])
        index.triage.merge(4, 5)
        index.sessions.begin(index.tokens.new("t", [TokenScope.READ])[0])
        index.installations.announce({"planted": {"torch": "9"}})
        index.deliveries.collect("team", ("new",))
        index.tasks.join("w", {"backend=planted"})
        index.leases.take(2)
    return place


def rows(place: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of an index, but where its storages lie."""
    with Index.open(place, readonly=True) as index, index.database.reading() as session:
        connection = session.connection()
        return {
            table.name: sorted(map(tuple, connection.execute(select(*(
                c for c in table.columns if (table.name, c.name) not in {("blobs", "data"), ("blobs", "place")}
            ))).all()), key=repr)
            for table in Base.metadata.sorted_tables if table.name not in copying.LEFT_OUT
        }  # fmt: skip


def is_whole(place: str) -> None:
    with Index.open(place) as index:
        assert index.tokens.find() == []  # a copy grants nobody anything
        case = index.captures.case(1)
        assert list(dict(index.blobs.view(case.storages)).values()) == [LARGE]
        assert index.stored(1).captured().ours
        assert add(index, chain(["tan"]), failing("no new")) == 6


def test_a_copy_of_a_file_is_the_same(full: str, tmp_path: Path) -> None:
    done = invoke(tmp_path, "copy", "repro.db", "copy.db")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Copied 5 captures to copy.db, ")
    assert rows(full) == rows(str(tmp_path / "copy.db"))
    (tmp_path / "repro.db").unlink()
    is_whole(str(tmp_path / "copy.db"))
    again = invoke(tmp_path, "copy", "copy.db", "copy.db")
    assert (again.exit_code, again.stderr) == (2, "Error: copy.db exists: name another file\n")
    assert not [name for name in os.listdir(tmp_path) if "copying" in name or name.startswith(".")]


@pytest.mark.server
def test_what_went_to_a_server_and_back_is_the_same(full: str, url: str, tmp_path: Path) -> None:
    copy(full, url)
    assert rows(full) == rows(url)
    back = str(tmp_path / "back.db")
    copy(url, back)
    assert rows(full) == rows(back)
    is_whole(url)
    is_whole(back)
    with pytest.raises(StoreError, match="has an index already: name an empty database"):
        copy(full, url)
    assert not [name for name in os.listdir(tmp_path) if "copying" in name]


@pytest.mark.server
@pytest.mark.parametrize("to_server", [True, False])
def test_an_interrupted_copy_cannot_be_used_and_is_gone_on_with(
    full: str, url: str, tmp_path: Path, to_server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = full, url
    if not to_server:
        copy(full, url)
        source, target = url, str(tmp_path / "back.db")
    before: Callable[..., None] = copying._Copying._rows

    def interrupted(self: Any, read: Any, table: Any) -> None:
        before(self, read, table)
        if table.name == CaptureRow.__tablename__:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patched.setattr(copying._Copying, "_rows", interrupted)
        copy(source, target)
    with pytest.raises(StoreError, match="is a copy that is not whole yet" if to_server else "does not exist"):
        Index.open(target)
    with Index.open(source) as index:  # it goes on to change
        index.captures.seen_again(2, 3)
        add(index, chain(["exp"]), failing("no later"))
    done = copy(source, target)
    assert "blobs" not in done.rows or done.rows["blobs"] < 2  # the large one was there
    assert rows(source) == rows(target)


def test_a_copy_is_one_state_of_what_others_write_to(full: str, tmp_path: Path) -> None:
    ended = threading.Event()

    def write() -> None:
        with Index.open(full) as index:
            number = 0
            while not ended.is_set():
                number += 1
                add(index, chain(["sin", "tan"]), failing(f"no {'y' * number}"))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            target = str(tmp_path / f"copy-{number}.db")
            copy(full, target)
            with Index.open(target) as index:
                found, totals = index.captures.find(), index.bugs.totals()
                assert totals.captures == len(found)
                assert sum(seen.count for bug in index.bugs.page() for seen in index.bugs.sightings(bug.id)) == (
                    totals.occurrences
                )
    finally:
        ended.set()
        writer.join()
