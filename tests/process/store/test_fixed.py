"""Bugs become fixed by retests and regress when they are met again, and obsolete when nobody meets them."""

from collections.abc import Iterator

import pytest
from indexes import add, chain, failing, minify

from fxminify.store.index import BugStatus, Index, RetestResult, State, StoreError, TaskInfo, TaskState
from fxminify.store.index.installations import OTHERS, label_of

OLD, NEW, NEWER = ({"torch": version} for version in ("2.13.0+cpu", "2.14.0", "2.15.0"))
CAN = {"trust", "backend=planted"}


@pytest.fixture
def index(place: str) -> Iterator[Index]:
    with Index.open(place, create=True) as index:
        yield index


def bug(index: Index, name: str, *, torch: str = "2.13.0", backend: str = "planted", script: bool = True) -> int:
    """A capture of the bug ``name``, with a verified script. Returns its id."""
    case = chain(["sin", "cos"], backend=backend)
    id = add(index, case, failing(f"no {name}"), provenance={"torch": torch})
    if script:
        minify(index, id, chain(["sin"], backend=backend))
        index.tasks.settle(id)
    return id


def retests(index: Index, *states: TaskState) -> list[TaskInfo]:
    return [task for task in index.tasks.page(states) if task.kind == "retest"]


def told(index: Index) -> list[tuple[str, int | None, str]]:
    return [
        (event.kind, event.bug, event.text)
        for event in index.events.after(0, limit=999)
        if event.kind in ("bug", "fixed", "regressed")
    ]


def age(index: Index, table: str, column: str, time: str = "2020-01-01T00:00:00+00:00") -> None:
    with index.database.writing() as session:
        session.connection().exec_driver_sql(f"UPDATE {table} SET {column} = '{time}'")


def test_what_nobody_had_before_runs_the_scripts_of_its_backend_again(index: Index) -> None:
    bug(index, "a")
    bug(index, "b", backend="other")
    bug(index, "c", script=False)
    bug(index, "d")
    bug(index, "e", backend="own")
    index.triage.set(index.captures.get(4).bug, BugStatus.IGNORED)
    known = {OTHERS: {"torch": "2.13.0"}, "planted": {"torch": "2.13.0"}}
    assert index.installations.announce(known) == 0  # captured with the same versions
    assert index.installations.announce(known) == 0
    assert index.installations.announce({OTHERS: NEW, "planted": NEW, "unheard of": NEW}) == 3
    assert index.installations.announce({OTHERS: NEW, "planted": NEW}) == 0
    found = retests(index)
    assert [task.capture for task in found] == [2, 5, 1]
    assert found[2].needs == f"backend=planted {label_of(NEW)} trust"
    able = CAN | {label_of(NEW)}
    assert index.tasks.claim(index.tasks.join("old", CAN | {label_of(OLD)}), CAN | {label_of(OLD)}) is not None  # c
    assert index.tasks.claim(index.tasks.join("old", CAN), CAN) is None
    taken = index.tasks.claim(index.tasks.join("new", able), able)
    assert taken is not None
    assert taken.kind == "retest"


def test_a_package_of_a_backend_is_a_version_as_well(index: Index) -> None:
    bug(index, "a")
    first, second = NEW | {"planted": "1.0"}, NEW | {"planted": "1.1"}
    assert index.installations.announce({"planted": first}) == 1
    assert index.installations.announce({"planted": second}) == 1
    assert len({task.needs for task in retests(index, TaskState.QUEUED)}) == 2


def test_a_retest_that_no_installation_is_there_for_makes_way_for_a_newer_one(index: Index) -> None:
    bug(index, "a")
    index.installations.announce({"planted": NEW})
    index.tasks.sweep(CAN)
    assert retests(index)[0].state is TaskState.WAITING
    index.installations.announce({"planted": NEWER})
    assert [(task.state, task.why) for task in retests(index)] == [
        (TaskState.CANCELLED, "a newer installation is there, on which it is run again"), (TaskState.QUEUED, ""),
    ]  # fmt: skip


def test_only_a_retest_makes_a_bug_fixed_and_only_the_same_or_newer_versions_make_it_regress(index: Index) -> None:
    bug(index, "a")
    for status in (BugStatus.FIXED, BugStatus.REGRESSED):
        with pytest.raises(StoreError, match="by a retest"):
            index.triage.set(1, status)
    assert index.triage.retested(1, NEW, fixed=False) is BugStatus.OPEN
    assert index.triage.retested(1, NEWER, fixed=True) is BugStatus.FIXED
    assert index.bugs.get(1).fixed_in == NEWER
    assert index.triage.retested(1, NEW, fixed=True) is BugStatus.FIXED
    assert index.bugs.get(1).fixed_in == NEW  # the oldest that is known
    assert index.triage.retested(1, NEWER, fixed=True) is BugStatus.FIXED
    assert index.triage.retested(1, OLD, fixed=False) is BugStatus.FIXED
    bug(index, "a", torch="2.13.1", script=False)
    index.captures.seen_again(1, 1, {})
    assert index.bugs.get(1).status is BugStatus.FIXED
    index.captures.seen_again(1, 1, {"torch": "2.14.0+cu128"})
    found = index.bugs.get(1)
    assert (found.status, found.fixed_in) == (BugStatus.REGRESSED, NEW)
    index.captures.seen_again(1, 1, {"torch": "2.15.0"})
    assert index.triage.retested(1, NEWER, fixed=True) is BugStatus.FIXED
    assert index.triage.retested(1, NEWER, fixed=False) is BugStatus.REGRESSED
    assert told(index) == [
        ("fixed", 1, "its script and its graph pass with torch 2.15.0"),
        ("regressed", 1, "it was fixed with torch 2.14.0, and fails again with torch 2.14.0+cu128"),
        ("fixed", 1, "its script and its graph pass with torch 2.15.0"),
        ("regressed", 1, "it was fixed with torch 2.15.0, and fails again with torch 2.15.0"),
    ]
    index.triage.set(1, BugStatus.OPEN)
    assert index.bugs.get(1).fixed_in is None


def test_where_the_version_of_the_package_is_not_known_a_bug_does_not_regress(index: Index) -> None:
    bug(index, "a")
    index.triage.retested(1, NEW | {"planted": "1.1"}, fixed=True)
    index.captures.seen_again(1, 1, {"torch": "2.15.0"})
    assert index.bugs.get(1).status is BugStatus.FIXED
    assert index.triage.retested(1, NEW | {"planted": "1.2"}, fixed=False) is BugStatus.REGRESSED


def test_what_people_said_stays_whatever_a_retest_finds(index: Index) -> None:
    bug(index, "a")
    bug(index, "b")
    index.triage.set(1, BugStatus.IGNORED)
    assert index.triage.retested(1, NEW, fixed=True) is BugStatus.IGNORED
    index.triage.merge(1, 2)
    assert index.triage.retested(1, NEW, fixed=True) is BugStatus.FIXED  # the capture is counted under bug 2 now
    assert [bug.status for bug in index.bugs.page()] == [BugStatus.FIXED]


def test_who_lost_the_capture_changes_no_status(index: Index) -> None:
    bug(index, "a")
    assert index.leases.take(1)
    index.database.fences[1] -= 1
    with pytest.raises(StoreError, match="another process took over"):
        index.triage.retested(1, NEW, fixed=True)
    assert index.bugs.get(1).status is BugStatus.OPEN
    del index.database.fences[1]


def test_what_nobody_meets_for_long_is_obsolete_until_it_is_met(index: Index) -> None:
    for name in "abc":
        bug(index, name)
    index.triage.retested(2, NEW, fixed=True)
    index.retests.add(3, "planted", RetestResult.FAILING, shown=2, runs=2, seconds=1.0, versions=NEW)
    assert index.triage.retire() == 0
    age(index, "bugs", "last_seen")
    assert index.triage.retire() == 1
    assert [bug.status.value for bug in index.bugs.page()] == ["obsolete", "fixed", "open"]
    age(index, "retests", "at")
    assert index.triage.retire() == 1
    assert index.triage.retire() == 0
    index.captures.seen_again(1, 1, {"torch": "2.13.0"})
    assert index.triage.retire() == 0
    assert [bug.status.value for bug in index.bugs.page()] == ["open", "fixed", "obsolete"]
    assert told(index)[1:] == [
        ("bug", 1, "obsolete: it was not met for 180 days"),
        ("bug", 3, "obsolete: it was not met for 180 days"),
        ("bug", 1, "open again: it was obsolete, and occurred again"),
    ]
    assert index.captures.get(1).state is State.VERIFIED
