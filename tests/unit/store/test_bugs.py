"""Captures that are one bug, and their counters."""

import sqlite3
import threading
from contextlib import closing

import pytest
from indexes import add, chain, failing, minify

from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import BugStatus, Index, State, StoreError
from fxminify.store.index.bugs import LISTED, BugFilter, BugOrder
from fxminify.store.index.tables import BugRow

WRONG = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0 is off by 1", detail={"class": "value"})


def test_one_signature_under_one_backend_is_one_bug(index: Index) -> None:
    add(index, chain(["sin", "cos"]), failing("no sin"))
    add(index, chain(["sin"]), failing("no sin"))
    add(index, chain(["sin"]), failing("no sin"))
    add(index, chain(["sin"], backend="other"), failing("no sin"))
    first, other = index.bugs.page()
    assert (first.ids, first.captures, first.occurrences, first.nodes_before) == ((1, 2), 2, 3, (1, 2))
    assert (first.states, first.nodes_after, first.headline) == ({State.PENDING: 2}, None, "RuntimeError: no sin")
    assert (other.ids, other.backend, other.signature == first.signature) == ((3,), "other", True)
    assert [row.bug for row in index.captures.find()] == [first.id, first.id, other.id]
    minify(index, 1, chain(["sin"]))
    assert (index.bugs.get(1).nodes_after, index.bugs.get(1).states) == (1, {State.PENDING: 1, State.VERIFIED: 1})


def test_what_a_compiler_printed_in_a_replay_tells_bugs_apart(index: Index) -> None:
    captured = failing("JIT compilation failed. See diagnostics.")
    for number, name in enumerate(("erfinv", "lgamma", "lgamma")):
        add(index, chain(["sin"] * number + [name]), captured)
    assert [bug.captures for bug in index.bugs.page()] == [3]
    for id, name in enumerate(("erfinv", "lgamma", "lgamma"), 1):
        shown = failing(captured.message, diagnostics=f"error: failed to legalize operation 'torch.aten.{name}'")
        index.captures.diagnose(id, captured)
        index.captures.diagnose(id, shown)
        index.captures.diagnose(id, failing(captured.message, diagnostics="error: something later"))
    assert [(bug.ids, bug.headline.partition("torch.aten.")[2]) for bug in index.bugs.page()] == [
        ((1,), "erfinv'"), ((2, 3), "lgamma'")
    ]  # fmt: skip
    minify(index, 2, chain(["lgamma"]))
    assert [bug.ids for bug in index.bugs.page()] == [(1,), (2, 3)]
    told = failing(captured.message, diagnostics="error: failed to legalize operation 'torch.aten.lgamma'")
    assert index.captures.get(add(index, chain(["lgamma"]), told)).bug == index.captures.get(3).bug


def test_a_message_that_says_enough_stays_as_it_is(index: Index) -> None:
    id = add(index, chain(["sin"]), failing("no sin"))
    index.captures.diagnose(id, failing("no sin", diagnostics="error: something else"))
    assert index.bugs.page()[0].headline == "RuntimeError: no sin"


def test_a_bug_is_listed_by_what_the_script_of_its_first_capture_showed(index: Index) -> None:
    for node in ("sin", "cos"):
        add(index, chain([node]), failing("index 4096 is out of range"))
    index.captures.show_as(2, failing("index 7 is out of range"))
    assert [bug.headline for bug in index.bugs.page()] == ["RuntimeError: index 4096 is out of range"]
    index.captures.show_as(1, failing("index 1 is out of range"))
    assert [bug.headline for bug in index.bugs.page()] == ["RuntimeError: index 1 is out of range"]
    assert [row.headline for row in index.captures.find()] == [
        "RuntimeError: index 1 is out of range", "RuntimeError: index 7 is out of range"
    ]  # fmt: skip
    captured = index.captures.get(1).failure
    assert captured is not None
    assert captured.message == "index 4096 is out of range"  # what replays are compared with


def test_failures_that_cannot_be_run_are_told_apart_by_their_text(index: Index) -> None:
    for reason in ("node a has no name", "node b has no name"):
        add(index, None, None, provenance={"backend": "x"}, reason=reason)
    assert [bug.headline for bug in index.bugs.page()] == ["node a has no name", "node b has no name"]


def test_pages_are_read_by_key(index: Index) -> None:
    for name in ("sin", "cos", "exp", "tan", "log"):
        add(index, chain([name]), failing(f"no {name}"))
    pages = [index.bugs.page(limit=2)]
    while pages[-1]:
        pages.append(index.bugs.page(after=pages[-1][-1].id, limit=2))
    assert [[bug.ids for bug in page] for page in pages] == [[(1,), (2,)], [(3,), (4,)], [(5,)], []]
    with pytest.raises(StoreError, match="has no bug 9"):
        index.bugs.get(9)


@pytest.fixture
def seven(index: Index) -> Index:
    """Seven bugs. Two and two were met last at the same time and equally often."""
    for number, name in enumerate(("sin", "cos", "exp", "tan", "log", "neg", "abs")):
        add(index, chain([name], backend=f"b{number % 2}"), failing(f"no {name}: 100%_"))
    with index.database.writing() as session:
        for id, (minute, times) in enumerate([(3, 9), (1, 5), (3, 5), (2, 70), (5, 1), (5, 2), (4, 3)], 1):
            row = session.get_one(BugRow, id)
            row.last_seen, row.occurrences = f"2026-11-23T10:0{minute}:00+00:00", times
    return index


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (BugOrder.SEEN, [[6, 5, 7], [3, 1, 4], [2]]),
        (BugOrder.NEW, [[7, 6, 5], [4, 3, 2], [1]]),
        (BugOrder.OFTEN, [[4, 1, 3], [2, 7, 6], [5]]),
    ],
)
def test_a_list_is_read_by_key_in_both_directions(seven: Index, order: BugOrder, expected: list[list[int]]) -> None:
    parts = [seven.bugs.ranked(BugFilter(), order, limit=3)]
    while parts[-1].after:
        parts.append(seven.bugs.ranked(BugFilter(), order, key=parts[-1].after, limit=3))
    assert [[bug.id for bug in part.bugs] for part in parts] == expected
    assert [bool(part.before) for part in parts] == [False, True, True]
    back = seven.bugs.ranked(BugFilter(), order, key=parts[2].before, back=True, limit=3)
    assert ([bug.id for bug in back.bugs], bool(back.before), bool(back.after)) == (expected[1], True, True)
    first = seven.bugs.ranked(BugFilter(), order, key=back.before, back=True, limit=3)
    assert ([bug.id for bug in first.bugs], first.before) == (expected[0], "")


@pytest.mark.parametrize("key", ["x", "7", " 7", "x 7", "7 x", "1 " + "9" * 40, "'; -- 7"])
def test_what_is_no_key_of_a_list_is_refused(index: Index, key: str) -> None:
    with pytest.raises(ValueError, match="is no key of a list"):
        index.bugs.ranked(BugFilter(), key=key, limit=3)


def test_bugs_are_found_by_what_a_list_says_of_them(seven: Index) -> None:
    minify(seven, 2, chain(["cos", "acosh"]))
    seven.triage.set(3, BugStatus.IGNORED)

    def found(**wanted: object) -> list[int]:
        chosen = BugFilter(**wanted)  # type: ignore[arg-type]
        ids = [bug.id for bug in seven.bugs.ranked(chosen, BugOrder.NEW, limit=9).bugs]
        assert sorted(ids) == [bug.id for bug in seven.bugs.page(wanted=chosen)]
        return ids

    assert found(text="NO COS") == found(text="acosh") == found(state=State.VERIFIED) == [2]
    assert found(text="#3") == found(statuses=(BugStatus.IGNORED,)) == [3]
    assert found(text="100%_") == found(kind="compile_error") == [7, 6, 5, 4, 3, 2, 1]
    assert found(text="1%0") == found(text="n_ sin") == found(kind="crash") == found(text="#9" * 40) == []
    assert found(backend="b1") == found(text="b1") == [6, 4, 2]
    assert found(backend="b1", state=State.PENDING, text="tan") == [4]
    assert found(statuses=(BugStatus.OPEN,)) == [7, 6, 5, 4, 2, 1]
    assert seven.bugs.backends() == ["b0", "b1"]
    assert [bug.calls for bug in seven.bugs.page(limit=2)] == ["", "acosh, cos"]


def test_of_many_captures_the_first_are_listed(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(LISTED + 2):
        add(index, chain(["sin"] * (number + 1)), failing("no sin"))
    add(index, chain(["cos"]), failing("no cos"))
    bugs = index.bugs.page()
    assert [(bug.ids, bug.captures) for bug in bugs] == [(tuple(range(1, LISTED + 1)), LISTED + 2), ((LISTED + 3,), 1)]
    monkeypatch.setattr("fxminify.store.index.bugs._OWN_QUERY_CAPTURES", LISTED)  # of which not all ids are read
    assert index.bugs.page() == bugs


def test_a_minified_divergence_goes_to_the_bug_of_what_its_graph_calls(index: Index) -> None:
    for names in (["sin", "relu"], ["exp", "relu"], ["sin", "cos"]):
        add(index, chain(names), WRONG)
        add(index, chain(names), WRONG)
    (all_of_them,) = index.bugs.page()
    assert (all_of_them.ids, all_of_them.occurrences) == ((1, 2, 3), 6)
    for id, name in ((1, "sin"), (2, "exp"), (3, "sin")):
        minify(index, id, chain([name]))
    found = {bug.operators: (bug.ids, bug.captures, bug.occurrences) for bug in index.bugs.page()}
    assert found == {"sin": ((1, 3), 2, 4), "exp": ((2,), 1, 2)}
    add(index, chain(["sin", "relu"]), WRONG)  # known, and counted where it is now
    add(index, chain(["tan"]), WRONG)
    assert [(bug.ids, bug.occurrences) for bug in index.bugs.page() if not bug.operators] == [((4,), 1)]
    assert index.bugs.get(index.captures.get(1).bug).occurrences == 5


def test_sightings_are_counted_by_day_and_by_versions(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def see(torch: str, day: str, times: int = 1) -> None:
        for module in ("bugs", "captures"):
            monkeypatch.setattr(f"fxminify.store.index.{module}.now", lambda: f"{day}T00:00:00+00:00")
        for _ in range(times):
            add(index, chain(["sin"]), failing("no sin"), provenance={"torch": torch, "python": "3.11.7"})

    see("2.13.0", "2026-11-01", 2)
    see("2.14.0", "2026-11-01")
    see("2.14.0", "2026-11-03")
    index.captures.seen_again(1, 7, {"torch": "2.14.0", "python": "3.11.7"})
    index.captures.seen_again(1)
    assert [(s.day, s.versions["torch"], s.count) for s in index.bugs.sightings(1)] == [
        ("2026-11-01", "2.13.0", 2), ("2026-11-01", "2.14.0", 1), ("2026-11-03", "2.13.0", 1),
        ("2026-11-03", "2.14.0", 8),
    ]  # fmt: skip
    (bug,) = index.bugs.page()
    assert (bug.occurrences, bug.created[:10], bug.last_seen[:10]) == (12, "2026-11-01", "2026-11-03")


def test_writers_at_once_lose_no_count(path: str) -> None:
    def write(number: int) -> None:
        with Index.open(path) as own:
            for _ in range(10):
                add(own, chain(["sin"]), failing("no sin"))
                add(own, chain(["cos"]), failing(f"no cos {'x' * number}"))

    Index.open(path, create=True).close()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Index.open(path) as index:
        assert sorted(bug.occurrences for bug in index.bugs.page()) == [10, 10, 10, 10, 40]
        assert [sum(s.count for s in index.bugs.sightings(bug.id)) for bug in index.bugs.page()] == [
            bug.occurrences for bug in index.bugs.page()
        ]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE bugs SET occurrences = 'many'", "occurrences"),
        ("UPDATE bugs SET headline = x'00'", "headline"),
        ("UPDATE captures SET state = 'odd'", "state"),
        ("UPDATE environments SET versions = '[]'", "object"),
    ],
)
def test_a_tampered_row_is_a_sentence(path: str, statement: str, message: str) -> None:
    with Index.open(path, create=True) as index:
        add(index, chain(["sin"]), failing("no sin"))
        add(index, chain(["exp"]), failing("no exp"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"{statement} {'' if 'environments' in statement else 'WHERE id = 1'}")
    connection.close()
    with Index.open(path, readonly=True) as index:
        with pytest.raises(StoreError, match=message):
            _ = (index.bugs.get(1), index.bugs.sightings(1))
        bad, good = index.bugs.page()
        assert (bad.ids, good.ids, good.headline) == ((1,), (2,), "RuntimeError: no exp")
        assert bad.headline.startswith("cannot be read: ") or "environments" in statement


def test_a_bug_whose_captures_are_gone_is_named(path: str) -> None:
    with Index.open(path, create=True) as index:
        add(index, chain(["sin"]), failing("no sin"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM captures")
    with Index.open(path, readonly=True) as index:
        (bug,) = index.bugs.page()
    assert (bug.ids, bug.states) == ((), {State.BLOCKED: 1})
    assert "bug 1 without its captures" in bug.headline


def test_what_a_verified_script_shows_counts_though_its_reduction_was_interrupted(index: Index) -> None:
    id = add(index, chain(["sin", "cos", "exp"]), failing("no sin"))
    reduction = index.reductions.begin(id, {})
    index.reductions.accept(reduction.id, chain(["sin", "cos"]), {})
    index.repros.save(id, "script", "raise 1", verified=0, runs=1, log="", case=chain(["sin"]), blobs={})
    assert (index.captures.get(id).nodes_after, index.bugs.get(1).nodes_after) == (2, 2)
    assert index.best(index.captures.get(id)) == chain(["sin", "cos"])
    index.repros.save(id, "script", "raise 1", verified=1, runs=1, log="")  # the same text, of the same case
    assert (index.captures.get(id).nodes_after, index.bugs.get(1).nodes_after) == (1, 1)
    assert index.best(index.captures.get(id)) == chain(["sin"])
    index.repros.save(id, "script", "raise 2", verified=1, runs=1, log="")  # of a case that is not known
    assert (index.captures.get(id).nodes_after, index.best(index.captures.get(id))) == (2, chain(["sin", "cos"]))
