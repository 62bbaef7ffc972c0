"""Failures that are stored together, in one transaction, are stored as if each came by itself."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from indexes import chain, failing
from sqlalchemy import event, func, select

from fxminify.store.document.case import Case
from fxminify.store.failure import Failure
from fxminify.store.index import BugStatus, Index, State, TaskState
from fxminify.store.index.arrivals import Arrival, Stored
from fxminify.store.index.tables import BugSightingRow, CaptureRow, SightingRow, UploadRow
from fxminify.store.recording import Recording, backend_of, identity_of, shape_of
from fxminify.store.signature import signature

SIN, COS, TAN = (failing(f"no kernel for {name}") for name in ("sin", "cos", "tan"))
VERSIONS = {"torch": "2.13.0", "python": "3.11.7"}


@pytest.fixture
def index(place: str) -> Iterator[Index]:
    with Index.open(place, create=True) as index:
        yield index


def met(case: Case | None, failure: Failure, **more: Any) -> Recording:
    provenance = {"program": "train.py", **VERSIONS, **more.pop("provenance", {})}
    return Recording(case=case, blobs={}, failure=failure, provenance=provenance, **more)


def identity(one: Recording) -> str:
    shape = shape_of(one.case, one.graph_text, one.reason)
    return identity_of(backend_of(one.case, one.provenance), shape, signature(one.failure).digest)


def store(index: Index, recordings: Sequence[tuple[Recording, str]]) -> list[Stored | None]:
    """Store failures, each under a key, in one transaction."""
    with ExitStack() as stack:
        arrivals = [
            stack.enter_context(index.captures.arriving(one, key=key, actor="training")) for one, key in recordings
        ]
        return index.captures.store(arrivals)


def content(index: Index) -> list[Any]:
    """All that an index says, without times, and with the names of bugs for their numbers."""
    bugs = {bug.id: bug for bug in index.bugs.page()}
    names: dict[int | None, str] = {bug.id: bug.headline for bug in bugs.values()}
    others = {"created": "", "last_seen": "", "at": 0.0, "id": 0, "bug": 0}

    def plain(rows: Sequence[Any]) -> list[Any]:
        fields = {field.name for row in rows[:1] for field in dataclasses.fields(row)}
        changed = {name: value for name, value in others.items() if name in fields}
        return [(names.get(getattr(row, "bug", None)), dataclasses.replace(row, **changed)) for row in rows]

    return [
        plain(index.captures.find()),
        sorted((bug.headline, dataclasses.replace(bug, id=0, created="", last_seen="")) for bug in bugs.values()),
        sorted(plain(index.tasks.page()), key=lambda task: task[1].capture),
        plain(index.events.after(0, limit=100)),
        {name: index.bugs.sightings(id) for id, name in names.items() if id is not None},
    ]


def test_what_comes_together_is_stored_as_if_it_came_alone(index: Index, tmp_path: Any) -> None:
    recordings = [
        (met(chain(["sin"]), SIN), "key-of-sin"),
        (met(chain(["sin", "abs"]), SIN), "key-of-sin-2"),
        (met(chain(["cos"]), COS, provenance={"torch": "2.14.0"}), "key-of-cos"),
        (met(None, failing("cannot store"), reason="node f has no name", graph_text="f(x)"), "key-of-none"),
        (met(chain(["tan"]), TAN, reason="it died outside"), "key-of-tan"),
        (met(chain(["sin"]), SIN, provenance={"torch": "2.14.0"}), "key-again"),
    ]
    stored = store(index, recordings)
    assert [(one.capture, one.occurrences) for one in stored if one] == [(1, 2), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2)]
    assert [one.state for one in index.captures.find()] == [
        State.PENDING, State.PENDING, State.PENDING, State.UNSUPPORTED, State.BLOCKED,
    ]  # fmt: skip
    with Index.open(str(tmp_path / "alone.db"), create=True) as alone:
        for one, key in recordings:
            alone.captures.receive(one, key=key, actor="training")
        assert content(alone) == content(index)


def test_a_key_counts_once_whether_it_is_there_or_comes_twice(index: Index) -> None:
    one = met(chain(["sin"]), SIN)
    first, second = store(index, [(one, "the-same-key"), (one, "the-same-key")])
    assert first == second == Stored(1, 1, 1)
    assert store(index, [(one, "the-same-key"), (one, "another-key"), (met(chain(["cos"]), COS), "a-third-key")]) == [
        Stored(1, 1, 2), Stored(1, 1, 2), Stored(2, 2, 1),
    ]  # fmt: skip
    with index.database.reading() as session:
        assert session.scalars(select(func.count(UploadRow.key))).one() == 3


def test_what_is_known_is_counted_and_what_is_not_is_said(index: Index) -> None:
    one = met(chain(["sin"]), SIN)
    index.captures.receive(one)
    known = Arrival(identity=identity(one), provenance={"torch": "2.14.0"}, times=40)
    unknown = Arrival(identity="0" * 64, provenance={}, key="key-of-none")
    assert index.captures.store([known, unknown, known]) == [Stored(1, 1, 81), None, Stored(1, 1, 81)]
    assert [(seen.versions, seen.count) for seen in index.bugs.sightings(1)] == [
        (VERSIONS, 1), ({"torch": "2.14.0"}, 80),
    ]  # fmt: skip
    assert index.uploads.find("key-of-none") is None


def test_a_bug_that_is_met_again_together_with_others_is_open_again(index: Index) -> None:
    recordings = [(met(chain([name]), failure), f"key-of-{name}") for name, failure in (("sin", SIN), ("cos", COS))]
    store(index, recordings)
    ignored, obsolete = (index.captures.get(id).bug for id in (1, 2))
    index.triage.set(ignored, BugStatus.IGNORED, more=2)
    index.triage.set(obsolete, BugStatus.OBSOLETE)
    again = [(one, f"{key}-again") for one, key in recordings]
    store(index, again)
    assert [index.bugs.get(id).status for id in (ignored, obsolete)] == [BugStatus.IGNORED, BugStatus.OPEN]
    store(index, [(one, f"{key}-{number}") for number in range(3) for one, key in again])
    assert [(bug.status, bug.occurrences) for bug in index.bugs.page()] == [(BugStatus.OPEN, 5), (BugStatus.OPEN, 5)]
    said = [one.text for one in index.events.after(0, limit=100) if one.text.startswith("open again")]
    assert said == [
        "open again: it was obsolete, and occurred again", "open again: it was ignored, and occurred again",
    ]  # fmt: skip


def test_many_cost_hardly_more_statements_than_one(index: Index) -> None:
    statements: list[str] = []
    event.listen(index.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    numbers = []
    for begin, count in ((0, 1), (1, 50)):
        recordings = [
            (met(chain(["sin"] * (1 + number % 7) + ["abs"] * (1 + number // 7)), failing(f"no {number * 'a'}b")), "")
            for number in range(begin, begin + count)
        ]
        with ExitStack() as stack:
            arrivals = [stack.enter_context(index.captures.arriving(one)) for one, _ in recordings]
            statements.clear()
            assert len({stored.capture for stored in index.captures.store(arrivals) if stored}) == count
            numbers.append(len(statements))
    assert numbers[1] <= numbers[0] + 3


def test_sums_of_sightings_follow_the_captures(index: Index) -> None:
    wrong = dataclasses.replace(SIN, message="another")
    recordings = [met(chain(["sin"] * size), SIN) for size in (1, 2, 3)] + [met(chain(["cos"]), wrong)]
    store(index, [(one, f"key-{number}-key") for number, one in enumerate(recordings)])
    for number in range(1, 5):
        index.captures.seen_again(number, number, {"torch": f"2.{number}.0"})

    def sums() -> dict[int, int]:
        """What is summed up, which must be what there is."""
        sums = (BugSightingRow.bug, BugSightingRow.day, BugSightingRow.environment, BugSightingRow.count)
        keys = (CaptureRow.bug, SightingRow.day, SightingRow.environment)
        of_captures = select(*keys, func.sum(SightingRow.count)).join_from(CaptureRow, SightingRow).group_by(*keys)
        with index.database.reading() as session:
            kept = session.execute(select(*sums)).all()
            assert sorted(map(tuple, kept)) == sorted(map(tuple, session.execute(of_captures)))
        found: Counter[int] = Counter()
        for bug, _, _, times in kept:
            found[bug] += times
        return dict(found)

    first, second = (index.captures.get(id).bug for id in (1, 4))
    assert sums() == {first: 9, second: 5}
    index.triage.merge(second, first)
    assert sums() == {first: 14}
    index.captures.receive(recordings[3])
    index.triage.split(second)
    assert sums() == {first: 9, second: 6}
    index.captures.set_state(1, State.UNVERIFIED)
    for task in index.tasks.page([TaskState.QUEUED]):
        index.tasks.cancel(task.id)
    with index.database.writing() as session:
        session.get_one(CaptureRow, 1).last_seen = "2020-01-01T00:00:00+00:00"
    assert index.cleaner.clean().captures == 1
    assert sums() == {first: 7, second: 6}
