"""Bugs are ignored, obsolete, merged and split; what is met later follows, and splitting gives everything back."""

from collections.abc import Callable

import pytest
from indexes import add, chain, failing, minify

from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import BugStatus, Index, Regrouped, StoreError, TaskState
from fxminify.store.index.bugs import BugFilter
from fxminify.store.index.tables import TriageRow

WRONG = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0 is off by 1", detail={"class": "value"})


def meet(index: Index, name: str, *operations: str) -> int:
    return add(index, chain([*operations] or [name]), failing(f"no {name}"))


def told(index: Index) -> list[tuple[int | None, str]]:
    return [(event.bug, event.text) for event in index.events.after(0, limit=99) if event.kind == "bug"]


def state(index: Index) -> list[tuple[int, tuple[int, ...], int, int]]:
    return [(bug.id, bug.ids, bug.captures, bug.occurrences) for bug in index.bugs.page()]


@pytest.fixture
def three(index: Index) -> Index:
    """Three bugs; of the first there are two captures, and one of them was met twice."""
    for name, *operations in (["sin"], ["cos"], ["tan"], ["sin", "relu", "sin"], ["sin"]):
        meet(index, name, *operations)
    return index


def test_an_ignored_bug_is_open_again_when_it_was_met_often_enough(three: Index) -> None:
    three.triage.set(1, BugStatus.IGNORED, more=2, actor="ana")
    assert three.bugs.get(1).status is BugStatus.IGNORED
    meet(three, "sin")
    assert three.bugs.get(1).status is BugStatus.IGNORED
    meet(three, "sin", "sin", "sin")
    assert three.bugs.get(1).status is BugStatus.OPEN
    assert told(three) == [
        (1, "ignored until it occurs 2 more times"), (1, "open again: it was ignored, and occurred again"),
    ]  # fmt: skip


def test_a_bug_is_ignored_for_good_until_it_is_opened(three: Index) -> None:
    three.triage.set(1, BugStatus.IGNORED)
    three.captures.seen_again(1, 1000)
    assert three.bugs.get(1).status is BugStatus.IGNORED
    three.triage.set(1, BugStatus.OPEN)
    assert [bug.status for bug in three.bugs.page()] == [BugStatus.OPEN] * 3


def test_an_obsolete_bug_is_open_again_when_it_is_met(three: Index) -> None:
    three.triage.set(1, BugStatus.OBSOLETE)
    three.triage.set(2, BugStatus.OBSOLETE)
    meet(three, "sin")
    assert [bug.status.value for bug in three.bugs.page()] == ["open", "obsolete", "open"]


def test_bugs_are_found_by_their_status(three: Index) -> None:
    three.triage.set(1, BugStatus.IGNORED)
    three.triage.merge(2, 3)

    def found(*statuses: BugStatus) -> list[int]:
        return [bug.id for bug in three.bugs.page(wanted=BugFilter(statuses=statuses))]

    assert found() == [1, 3]
    assert found(BugStatus.OPEN) == [3]
    assert found(BugStatus.IGNORED, BugStatus.OPEN) == [1, 3]
    assert found(BugStatus.DUPLICATE) == [2]
    totals = three.bugs.totals()
    assert totals.bugs == {BugStatus.OPEN: 1, BugStatus.IGNORED: 1}
    assert (totals.captures, totals.occurrences) == (4, 5)


def test_merging_moves_what_there_is_and_what_comes(three: Index) -> None:
    before = state(three)
    assert three.triage.merge(1, 2, preview=True) == Regrouped(1, 2, 2, 3)
    assert state(three) == before
    assert three.triage.merge(1, 2, actor="ana") == Regrouped(1, 2, 2, 3)
    assert state(three) == [(2, (1, 2, 4), 3, 4), (3, (3,), 1, 1)]
    assert (three.bugs.get(1).status, three.bugs.get(1).duplicate_of) == (BugStatus.DUPLICATE, 2)
    assert (three.bugs.get(2).merged, three.bugs.get(1).ids) == ((1,), ())
    meet(three, "sin")
    meet(three, "sin", "exp", "sin")
    assert state(three) == [(2, (1, 2, 4, 5), 4, 6), (3, (3,), 1, 1)]
    assert sum(seen.count for seen in three.bugs.sightings(2)) == 6


def test_splitting_gives_back_what_was_merged_and_what_followed(three: Index) -> None:
    before = state(three)
    three.triage.merge(1, 2)
    three.triage.merge(2, 3)
    assert state(three) == [(3, (1, 2, 3, 4), 4, 5)]
    meet(three, "sin", "exp", "sin")
    assert three.triage.split(2) == Regrouped(2, 2, 4, 5)
    assert state(three) == [(2, (1, 2, 4, 5), 4, 5), (3, (3,), 1, 1)]
    assert three.triage.split(1, preview=True) == three.triage.split(1)
    assert state(three) == [(1, (1, 4, 5), 3, 4), before[1], before[2]]
    meet(three, "sin", "cos", "sin")
    assert three.captures.get(6).bug == 1


def test_a_minified_divergence_follows_as_well(index: Index) -> None:
    for names in (["sin", "relu"], ["exp", "relu"]):
        add(index, chain(names), WRONG)
    minify(index, 1, chain(["sin"]))
    minify(index, 2, chain(["exp"]))
    (sin, exp) = (index.captures.get(id).bug for id in (1, 2))
    index.triage.merge(sin, exp)
    add(index, chain(["sin", "tan"]), WRONG)
    minify(index, 3, chain(["sin"]))
    assert {bug.id: bug.ids for bug in index.bugs.page()} == {exp: (1, 2, 3)}
    index.triage.split(sin)
    assert {bug.id: bug.ids for bug in index.bugs.page()} == {sin: (1, 3), exp: (2,)}


def test_merged_bugs_have_one_open_task(three: Index) -> None:
    three.triage.merge(1, 2)
    tasks = [(task.id, task.bug, task.state.value) for task in three.tasks.page()]
    assert tasks == [(1, 2, "cancelled"), (2, 2, "queued"), (3, 3, "queued")]
    worker = three.tasks.join("", {"backend=planted"})
    three.tasks.cancel(2)
    three.triage.split(1)  # its second capture was not tried yet
    (follows,) = three.tasks.page([TaskState.QUEUED], after=3)
    assert (follows.bug, follows.capture) == (1, 4)
    assert three.tasks.get(1).bug == 1
    assert three.tasks.claim(worker, {"backend=planted", "trust"}) is not None


def test_a_task_at_work_stays(three: Index) -> None:
    worker = three.tasks.join("", {"backend=planted", "trust"})
    task = three.tasks.claim(worker, {"backend=planted", "trust"})
    assert task is not None
    assert task.bug == 1
    three.triage.merge(1, 2)
    assert [(t.id, t.bug, t.state.value) for t in three.tasks.page(after=0, limit=2)] == [
        (1, 2, "leased"), (2, 2, "cancelled"),
    ]  # fmt: skip
    assert three.tasks.finish(task, TaskState.FAILED, "not reproduced")
    (follows,) = three.tasks.page([TaskState.QUEUED], after=3)
    assert (follows.bug, follows.capture) == (2, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda index: index.triage.merge(3, 3), "into itself"),
        (lambda index: index.triage.merge(1, 9), "has no bug 9"),
        (lambda index: index.triage.merge(1, 3), "bug 1 is a duplicate of bug 2: split it"),
        (lambda index: index.triage.merge(3, 1), "bug 1 is a duplicate of bug 2: split it"),
        (lambda index: index.triage.split(3), "bug 3 is no duplicate"),
        (lambda index: index.triage.split(9), "has no bug 9"),
        (lambda index: index.triage.set(1, BugStatus.IGNORED), "bug 1 is a duplicate of bug 2: split it"),
        (lambda index: index.triage.set(3, BugStatus.DUPLICATE), "by merging it"),
        (lambda index: index.triage.set(9, BugStatus.OPEN), "has no bug 9"),
        (lambda index: index.triage.label(9, add=["p1"]), "has no bug 9"),
        (lambda index: index.triage.label(1, add=["p1"]), "bug 1 is a duplicate of bug 2: split it"),
        (
            lambda index: index.triage.label(3, add=["p1"], remove=["P1"]),
            "label p1 cannot be put on bug 3 and taken",
        ),
        *(
            (lambda index, text=text: index.triage.label(3, add=["fine", text]), "a label has 1 to 50 characters")
            for text in ("", " ", "two words", "-x", "é", "a,b", "<b>", "x" * 51, "p1\n2", "\0", "\ud800", "½", "a=b")
        ),
        (lambda index: index.triage.label(3, remove=["two words"]), ": 'two words' is none"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_changes_nothing(
    three: Index, wrong: Callable[[Index], object], message: str
) -> None:
    three.triage.merge(1, 2)
    before = (state(three), told(three))
    with pytest.raises(StoreError, match=message):
        wrong(three)
    assert (state(three), told(three)) == before


def test_a_status_of_a_stranger_is_a_sentence(three: Index) -> None:
    with three.database.writing() as session:
        session.add(TriageRow(bug=1, status="odd", actor="", at=""))
    with pytest.raises(StoreError, match="a status of a bug that cannot be read"):
        three.bugs.get(1)


def test_duplicates_in_a_circle_are_a_sentence(three: Index) -> None:
    three.triage.merge(1, 2)
    with three.database.writing() as session:
        session.add(TriageRow(bug=2, status="duplicate", duplicate_of=1, actor="", at=""))
    with pytest.raises(StoreError, match="a duplicate of itself"):
        meet(three, "sin", "exp", "sin")
    with pytest.raises(StoreError, match="a duplicate of itself"):
        three.triage.split(1)
