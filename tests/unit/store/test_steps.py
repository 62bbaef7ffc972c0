"""The steps of a reduction: written once, kept with their cases, replaced where a run goes another way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from index_tasks import add, small_case

from fxminify.store.index import Index, StepInfo, reductions
from fxminify.store.index.reductions import LONGEST_DIFFERENCE


def step(number: int, key: str, difference: str = "") -> StepInfo:
    return StepInfo(number, "nodes", key, 1, 1, queries=number, seconds=0.5, difference=difference)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = Index.open(str(tmp_path / "repro.db"), create=True)
    add(index, *small_case(64, os.urandom(256)))
    return index


def test_a_step_keeps_its_case_beside_the_best(index: Index) -> None:
    reduction = index.reductions.begin(1, {})
    first, last = small_case(32, os.urandom(128)), small_case(16, os.urandom(64))
    index.reductions.add_step(reduction.id, step(1, "a", "- x"), *first)
    index.reductions.add_step(reduction.id, step(2, "b", "- y\n+ z"), *last)
    assert [(s.number, s.key, s.difference, s.kept) for s in index.reductions.steps(reduction.id)] == [
        (1, "a", "- x", True),
        (2, "b", "- y\n+ z", True),
    ]
    assert index.reductions.steps(reduction.id)[1].to_json()["difference"] == ["- y", "+ z"]
    kept = index.stored_step(1, 1)
    assert kept is not None
    assert (kept.reduction, kept.case.case, kept.case.ours) == (reduction.id, first[0], False)
    assert dict(index.blobs.view(first[0].storages)) == first[1]
    assert index.best(reduction) == last[0]
    info = index.reductions.last(1)
    assert info is not None
    assert (info.id, info.accepted) == (reduction.id, 2)


def test_a_step_that_is_there_stays_and_another_one_replaces_what_came_after(index: Index) -> None:
    reduction = index.reductions.begin(1, {})
    cases = [small_case(32, os.urandom(128)), small_case(16, os.urandom(64)), small_case(8, os.urandom(32))]
    for number, (case, key) in enumerate(zip(cases, "abc", strict=True), 1):
        index.reductions.add_step(reduction.id, step(number, key), *case)
    index.reductions.add_step(reduction.id, step(1, "a", "said again"), *cases[0])
    assert [(s.key, s.difference) for s in index.reductions.steps(reduction.id)] == [("a", ""), ("b", ""), ("c", "")]
    index.reductions.add_step(reduction.id, step(2, "other"))
    assert [(s.key, s.kept) for s in index.reductions.steps(reduction.id)] == [("a", True), ("other", False)]
    with pytest.raises(Exception, match="has no storage"):
        dict(index.blobs.view(cases[2][0].storages))
    assert index.best(reduction) == cases[0][0]


def test_what_was_not_kept_is_said(index: Index) -> None:
    reduction = index.reductions.begin(1, {})
    index.reductions.add_step(reduction.id, step(1, "a"), *small_case(8))
    index.reductions.add_step(reduction.id, step(2, "b"))
    with pytest.raises(Exception, match="step 2 was not kept, it is too large; those kept are 1"):
        index.stored_step(1, 2)
    with pytest.raises(Exception, match="step 7 does not exist"):
        index.stored_step(1, 7)


def test_a_long_difference_is_cut(index: Index) -> None:
    reduction = index.reductions.begin(1, {})
    index.reductions.add_step(reduction.id, step(1, "a", "x" * (2 * LONGEST_DIFFERENCE)))
    (kept,) = index.reductions.steps(reduction.id)
    assert LONGEST_DIFFERENCE <= len(kept.difference) <= LONGEST_DIFFERENCE + 10


def test_the_reduction_that_was_finished_last_stands_for_its_capture(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was interrupted, and is resumed after another was done, is the newer one."""
    ids = [index.reductions.begin(1, {"run": number}).id for number in (1, 2)]
    for id, width in zip(ids, (8, 4), strict=True):
        index.reductions.accept(id, *small_case(width))
    for hour, id in enumerate(reversed(ids)):
        monkeypatch.setattr(reductions, "now", lambda hour=hour: f"2026-01-01T0{hour}:00:00+00:00")
        index.reductions.finish(id, queries=id, nodes_before=1, nodes_after=1, seconds=1.0)
    info = index.reductions.last(1)
    assert info is not None
    assert (info.id, index.captures.get(1).queries) == (ids[0], ids[0])
    assert index.best(index.captures.get(1)) == small_case(8)[0]
