"""Labels of bugs: put on and taken off, found by, merged and split, also where several people do it at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from indexes import add, chain, failing

from fxminify.store.index import BugStatus, Index, StoreError
from fxminify.store.index.bug_labels import MOST
from fxminify.store.index.bugs import BugFilter, BugOrder
from fxminify.store.index.tables import BugLabelRow


@pytest.fixture
def four(place: str) -> Iterator[Index]:
    """Four bugs."""
    with Index.open(place, create=True) as index:
        for name in ("sin", "cos", "tan", "exp"):
            add(index, chain([name]), failing(f"no {name}"))
        yield index


def labels(index: Index) -> dict[int, tuple[str, ...]]:
    return {bug.id: bug.labels for bug in index.bugs.page() if bug.labels}


def found(index: Index, *wanted: str, statuses: tuple[BugStatus, ...] = ()) -> list[int]:
    return [bug.id for bug in index.bugs.page(wanted=BugFilter(labels=wanted, statuses=statuses))]


def told(index: Index) -> list[tuple[int | None, str, str]]:
    return [(e.bug, e.text, e.actor) for e in index.events.after(0, limit=99) if e.kind == "bug"]


def test_labels_are_put_on_and_taken_off_and_it_is_told_who_did(four: Index) -> None:
    assert four.triage.label(1, add=["P1", " needs-owner "], actor="ana") == ("needs-owner", "p1")
    assert four.triage.label(2, add=["p1"]) == ("p1",)
    assert four.triage.label(1, add=["p1", "x/y:1+2_3.4"], remove=["needs-owner", "gone"], actor="ben") == (
        "p1", "x/y:1+2_3.4",
    )  # fmt: skip
    assert four.triage.label(1, add=["p1"], remove=["gone"]) == ("p1", "x/y:1+2_3.4")  # changes nothing
    assert labels(four) == {1: ("p1", "x/y:1+2_3.4"), 2: ("p1",)}
    assert four.bugs.labels() == ["p1", "x/y:1+2_3.4"]
    assert told(four) == [
        (1, "labelled needs-owner, p1", "ana"), (2, "labelled p1", ""),
        (1, "labelled x/y:1+2_3.4; no longer labelled needs-owner", "ben"),
    ]  # fmt: skip


def test_bugs_are_found_by_all_of_their_labels_and_read_by_key(four: Index) -> None:
    for bug in (1, 2, 4):
        four.triage.label(bug, add=["p1"])
    four.triage.label(4, add=["new"])
    assert found(four, "p1") == found(four, "P1") == [1, 2, 4]
    assert found(four, "p1", "new") == [4]
    assert found(four, "p") == found(four, "two words") == found(four, "\0\ud800") == found(four, "p1", "x") == []
    wanted = BugFilter(labels=["p1"])
    assert [bug.id for bug in four.bugs.page(after=1, limit=1, wanted=wanted)] == [2]
    part = four.bugs.ranked(wanted, BugOrder.NEW, limit=2)
    assert [bug.id for bug in part.bugs] == [4, 2]
    assert [bug.id for bug in four.bugs.ranked(wanted, BugOrder.NEW, key=part.after, limit=2).bugs] == [1]
    four.triage.set(2, BugStatus.IGNORED)
    assert found(four, "p1", statuses=(BugStatus.IGNORED,)) == [2]
    assert found(four, "p1", statuses=(BugStatus.OPEN,)) == [1, 4]


def test_a_merged_bug_brings_its_labels_and_takes_them_away_again(four: Index) -> None:
    four.triage.label(1, add=["a", "both"])
    four.triage.label(2, add=["b", "both"])
    four.triage.label(3, add=["c"])
    four.triage.merge(1, 2)
    four.triage.merge(2, 3)
    assert labels(four) == {3: ("a", "b", "both", "c")}
    assert four.bugs.get(2).labels == ("a", "b", "both")
    assert found(four, "a") == found(four, "a", "b", "c") == [3]
    assert found(four, "b", statuses=(BugStatus.DUPLICATE,)) == [2]
    assert four.triage.label(3, add=["a"], remove=["both"]) == ("a", "b", "c")
    four.triage.split(2)
    assert labels(four) == {2: ("a", "b"), 3: ("c",)}
    four.triage.split(1)
    assert labels(four) == {1: ("a",), 2: ("b",), 3: ("c",)}


def test_a_bug_has_no_more_labels_than_people_can_look_at(four: Index) -> None:
    many = [f"l{number}" for number in range(MOST)]
    assert len(four.triage.label(1, add=many)) == MOST
    with pytest.raises(StoreError, match=r"bug 1 would have 21 labels, and 20 is the most: remove others first"):
        four.triage.label(1, add=["more"])
    assert len(four.triage.label(1, add=["more"], remove=["l0"])) == MOST
    four.triage.label(2, add=["other", "again"])
    four.triage.merge(2, 1)
    assert len(four.bugs.get(1).labels) == MOST + 2
    assert len(four.triage.label(1, remove=["l1"])) == MOST + 1
    with pytest.raises(StoreError, match=r"bug 1 would have 21 labels"):
        four.triage.label(1, add=["l1"], remove=["l2"])


def test_several_people_put_the_same_label_on_a_bug_at_once(four: Index) -> None:
    def put(number: int) -> tuple[str, ...]:
        return four.triage.label(1, add=["p1", f"from-{number % 4}"])

    with ThreadPoolExecutor(4) as people:
        list(people.map(put, range(12)))
    assert four.bugs.get(1).labels == ("from-0", "from-1", "from-2", "from-3", "p1")
    assert len(told(four)) == 4


def test_a_label_alone_keeps_no_bug_without_captures(four: Index) -> None:
    four.triage.label(1, add=["p1"])
    four.triage.label(2, add=["p1", "kept"])
    four.triage.set(2, BugStatus.IGNORED)
    for task in four.tasks.page():
        four.tasks.cancel(task.id)
    with four.database.writing() as session:
        session.connection().exec_driver_sql("UPDATE captures SET state = 'unverified', last_seen = '2020'")
    four.cleaner.clean()
    with four.database.reading() as session:
        left = session.query(BugLabelRow).order_by(BugLabelRow.label).all()
    assert [(row.bug, row.label) for row in left] == [(2, "kept"), (2, "p1")]
