"""Which entry a run prefers after an interruption, so that it resumes the reduction whose verdicts are logged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from index_tasks import add, small_case

from fxminify.minifier.session.options import MinifyOptions
from fxminify.minifier.session.replays import entry_to_resume
from fxminify.store.index import Index

OPTIONS = MinifyOptions()


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = Index.open(str(tmp_path / "repro.db"), create=True)
    add(index, *small_case())
    return index


def begin(
    index: Index, entry: str, more: dict[str, Any] | None = None, *, best: bool = False, finished: bool = False
) -> int:
    """A reduction of capture 1 as `attempt.reduce` begins it, with one logged query."""
    config = {"entry": entry, "match": "exact", "error_regex": None, **(more or {})}
    reduction = index.reductions.begin(1, config).id
    index.verdicts.asked(reduction, "a", "nodes")
    if best:
        index.reductions.accept(reduction, *small_case(2))
    if finished:
        index.reductions.finish(reduction, queries=1, nodes_before=1, nodes_after=1, seconds=1.0)
    return reduction


def test_a_reduction_without_an_accepted_step_is_resumed(index: Index) -> None:
    reduction = begin(index, "direct")
    assert entry_to_resume(index, 1, OPTIONS) == "direct"
    assert begin(index, "direct") == reduction


def test_an_unfinished_reduction_is_resumed_though_another_one_is_finished(index: Index) -> None:
    begin(index, "compile", best=True, finished=True)
    begin(index, "direct", best=True)
    assert entry_to_resume(index, 1, OPTIONS) == "direct"


def test_a_run_that_was_interrupted_at_its_second_entry_begins_with_its_first_one(index: Index) -> None:
    begin(index, "direct", best=True)
    begin(index, "script")
    assert entry_to_resume(index, 1, OPTIONS) == "direct"


def test_no_entry_is_preferred_where_nothing_can_be_resumed(index: Index) -> None:
    assert not entry_to_resume(index, 1, OPTIONS)
    begin(index, "compile", best=True, finished=True)
    assert not entry_to_resume(index, 1, OPTIONS)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (replace(OPTIONS, match="origin"), {"match": "origin"}),
        (replace(OPTIONS, error_regex="boom"), {"error_regex": "boom"}),
        (replace(OPTIONS, min_rate=0.5), {"min_rate": 0.5}),
    ],
)
def test_only_a_reduction_with_the_same_options_is_resumed(
    index: Index, options: MinifyOptions, more: dict[str, Any]
) -> None:
    begin(index, "direct", more)
    assert entry_to_resume(index, 1, options) == "direct"
    assert not entry_to_resume(index, 1, OPTIONS)


def test_a_reduction_from_a_step_is_resumed_only_from_that_step(index: Index) -> None:
    begin(index, "direct", {"from": [1, 3]})
    assert entry_to_resume(index, 1, OPTIONS, (1, 3)) == "direct"
    assert not entry_to_resume(index, 1, OPTIONS, (1, 2))
    assert not entry_to_resume(index, 1, OPTIONS)
