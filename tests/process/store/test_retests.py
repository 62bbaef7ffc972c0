"""Retests in the index: resumed rounds, files of the first schema, hostile values, and which files are ours."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from index_tasks import add, add_retests, small_case

from fxminify.store.index import Index, RetestResult, StepInfo, StoreError

ANSWER: dict[str, Any] = {"shown": 2, "runs": 2, "seconds": 1.5, "versions": {"torch": "2.13.0"}}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True) as index:
        add(index, *small_case())
    return path


def edit(path: str, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_retest_is_kept_with_its_versions(path: str) -> None:
    with Index.open(path) as index:
        kept = index.retests.add(1, "inductor", RetestResult.CHANGED, message="KeyError: 1", signature="v1:b", **ANSWER)
    with Index.open(path, readonly=True) as index:
        assert index.retests.find() == index.retests.find([1]) == [kept]
        assert index.retests.find([2]) == []
    assert (kept.id, kept.result, kept.message) == (1, "changed", "KeyError: 1")
    assert dict(kept.versions) == {"torch": "2.13.0"}


def test_an_unfinished_round_goes_on_and_a_finished_one_does_not(path: str) -> None:
    with Index.open(path) as index:
        first, answered = index.retests.begin_round({"cases": ["1"]})
        assert answered == []
        kept = index.retests.add(1, "inductor", RetestResult.FIXED, round_id=first, **ANSWER)
        assert index.retests.begin_round({"cases": ["1"]}) == (first, [kept])
        assert index.retests.begin_round({"cases": ["1", "2"]}) == (first + 1, [])
        again, _ = index.retests.begin_round({"cases": ["1"]}, resume=False)
        assert again == first + 2
        index.retests.finish_round(again)
        assert index.retests.begin_round({"cases": ["1"]}) == (first + 3, [])


def test_a_round_of_another_day_is_not_resumed(path: str) -> None:
    with Index.open(path) as index:
        first, _ = index.retests.begin_round({})
    before = (datetime.now(UTC) - timedelta(days=2)).isoformat(timespec="seconds")
    edit(path, f"UPDATE rounds SET started = '{before}'")
    with Index.open(path) as index:
        assert index.retests.begin_round({})[0] != first


def test_two_processes_on_one_index_lose_nothing(path: str) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_retests, args=(path, name, 15)) for name in ("one", "two")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    with Index.open(path, readonly=True) as index:
        assert Counter(r.backend for r in index.retests.find()) == {"one": 15, "two": 15}


@pytest.mark.parametrize("revision", ["0000", "", "0002a"])
def test_a_schema_that_never_was_is_refused(path: str, revision: str) -> None:
    edit(path, f"UPDATE alembic_version SET version_num = '{revision}'")
    for readonly in (True, False):
        with pytest.raises(StoreError, match="fxminify"):
            Index.open(path, readonly=readonly)


@pytest.mark.parametrize(
    "change",
    [
        "result = 'gone'", "versions = '[]'", "versions = '{\"torch\": 7}'", "at = 'yesterday'", "shown = 'two'",
        "message = x'00'", f"versions = '{{\"torch\": \"{'9' * 101}\"}}'",
        f"versions = '{json.dumps(dict.fromkeys(map(str, range(200)), 'x'))}'",
    ],
)  # fmt: skip
def test_values_we_never_write(path: str, change: str) -> None:
    with Index.open(path) as index:
        index.retests.add(1, "inductor", RetestResult.FAILING, **ANSWER)
        good = index.retests.add(1, "inductor", RetestResult.FIXED, **ANSWER)
    edit(path, f"UPDATE retests SET {change} WHERE id = 1")
    with Index.open(path, readonly=True) as index:
        with pytest.raises(StoreError, match=r"^a retest of capture 1 cannot be read: .*fxminify never wrote"):
            index.retests.find([1])
        assert index.retests.find() == [good]


def test_too_many_versions_are_cut_down_when_they_are_written(path: str) -> None:
    versions = {f"{n:03}" * 40: "9" * 500 for n in range(200)}
    with Index.open(path) as index:
        index.retests.add(1, "inductor", RetestResult.FIXED, **{**ANSWER, "versions": versions})
        (kept,) = index.retests.find()
    assert (len(kept.versions), {len(v) for v in kept.versions.values()}) == (100, {100})


def is_our_step(index: Index) -> bool:
    step = index.stored_step(1, 1)
    assert step is not None
    return step.case.ours


@pytest.fixture
def minimal(tmp_path: Path) -> str:
    """A capture of ours with a minimal case and a script of ours."""
    path = str(tmp_path / "minimal.db")
    case, blobs = small_case()
    with Index.open(path, create=True) as index:
        add(index, case, blobs, ours=True)
        add(index, *small_case(backend="another"))
        reduction = index.reductions.begin(1, {}, ours=True)
        index.reductions.add_step(reduction.id, StepInfo(1, "nodes", "a", 1, 1), *small_case(1))
        best, values = small_case(1)
        index.repros.save(1, "script", "raise 1", verified=3, runs=3, log="", case=best, blobs=values, ours=True)
        assert index.stored(1).ours
        assert is_our_step(index)
        assert not index.stored(2).ours
    return path


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE repros SET text = 'import os'",
        "UPDATE repros SET origin = NULL",
        "UPDATE repros SET document = (SELECT document FROM captures WHERE id = 2)",
        # Without the case of the script, the best of the reduction is what runs.
        "UPDATE repros SET verified = 0; UPDATE reductions SET best = (SELECT document FROM captures WHERE id = 2)",
        "UPDATE repros SET verified = 0; UPDATE reductions SET origin = NULL",
        "UPDATE captures SET provenance = '{}'",
        "UPDATE captures SET document = (SELECT document FROM captures WHERE id = 2) WHERE id = 1",
        "UPDATE captures SET signature = 'v2:000000000000'",
        # A case of ours in the row of another capture.
        "UPDATE captures SET provenance = (SELECT provenance FROM captures WHERE id = 1), "
        "document = (SELECT document FROM captures WHERE id = 1), signature = 'v2:000000000000'",
    ],
)
def test_what_was_changed_is_not_ours(minimal: str, change: str) -> None:
    edit(minimal, *change.split("; "))
    with Index.open(minimal, readonly=True) as index:
        assert not index.stored(1).ours


@pytest.mark.parametrize(
    "change",
    ["UPDATE steps SET document = (SELECT document FROM captures WHERE id = 2)", "UPDATE steps SET origin = ''"],
)
def test_a_changed_step_is_not_ours(minimal: str, change: str) -> None:
    edit(minimal, change)
    with Index.open(minimal, readonly=True) as index:
        assert index.stored(1).ours
        assert not is_our_step(index)


def test_saving_a_changed_script_again_does_not_make_it_ours(minimal: str) -> None:
    """That is what `minify verify` does with one that it was told to trust."""
    edit(minimal, "UPDATE repros SET text = 'import os'")
    with Index.open(minimal) as index:
        index.repros.save(1, "script", "import os", verified=3, runs=3, log="")
        assert not index.stored(1).ours
        index.repros.save(1, "script", "raise 2", verified=3, runs=3, log="")
        assert not index.stored(1).ours
        index.repros.save(1, "script", "raise 2", verified=3, runs=3, log="", ours=True)
        assert index.stored(1).ours


def test_what_was_made_of_a_case_of_somebody_else_is_never_ours(minimal: str) -> None:
    """Not even for a capture of this user: else one run of theirs that somebody agreed to would be all runs."""
    theirs, values = small_case(1, backend="another")
    with Index.open(minimal) as index:
        reduction = index.reductions.begin(2, {})
        index.reductions.add_step(reduction.id, StepInfo(1, "nodes", "a", 1, 1), theirs, values)
        index.repros.save(2, "script", "raise 2", verified=3, runs=3, log="", case=theirs, blobs=values)
        step, found = index.stored_step(2, 1), index.stored(2)
        assert (step is not None and step.case.ours, found.script is not None and found.script.ours) == (False, False)
    edit(minimal, "DELETE FROM repros WHERE capture = 1", "UPDATE repros SET capture = 1")
    with Index.open(minimal, readonly=True) as index:
        script = index.stored(1).script
        assert (script is not None and script.text, script is not None and script.ours) == ("raise 2", False)


def test_a_script_of_one_capture_is_not_ours_in_the_row_of_another(minimal: str) -> None:
    with Index.open(minimal) as index:
        other = add(index, *small_case(3), "no c", ours=True)
        script = index.stored(1).script
        assert script is not None
        assert script.ours
    edit(minimal, f"UPDATE repros SET capture = {other}")
    with Index.open(minimal, readonly=True) as index:
        moved = index.stored(other).script
        assert moved is not None
        assert moved.repro == replace(script.repro, capture=other)
        assert not moved.ours
