"""Passes of other distributions: found by their entry points, listed, run, and reported where they cannot be loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from made import Fails, has, ops, shrinker, tower

from fxminify.minifier.passes import PASSES, Stage, in_stage, installed
from fxminify.store import extensions

MODULE = """
from fxminify.minifier.candidate.patch import Patch
from fxminify.minifier.passes import Pass, Stage, each


def propose(view, step):
    return each(tuple(Patch(drop=frozenset([name])) for name in view.compute)) if step == 0 else None


PASSES = (Pass("b-nodes", "Takes nodes out.", propose), Pass("a-last", "Replaces nothing.", propose, Stage.REPLACE))
TWICE = Pass("nodes", "Has a name that is taken.", propose)
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution, as pip leaves it."""
    info = tmp_path / "other_passes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-passes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fxminify.passes]\nmine = other_passes:PASSES\ngone = other_passes:NOWHERE\ntwice = other_passes:TWICE\n"
    )
    (tmp_path / "other_passes.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "other_passes", raising=False)
    extensions.installed.cache_clear()
    yield
    extensions.installed.cache_clear()


@pytest.mark.usefixtures("distribution")
def test_they_stand_at_the_end_of_their_stage() -> None:
    table = installed()
    assert in_stage(Stage.REMOVE, passes=table.passes)[-1].name == "b-nodes"
    assert in_stage(Stage.REPLACE, passes=table.passes)[-1].name == "a-last"
    assert [p for p in table.passes if p.name not in table.sources] == list(PASSES)
    assert table.sources == {"b-nodes": "other-passes", "a-last": "other-passes"}


@pytest.mark.usefixtures("distribution")
def test_what_cannot_be_loaded_is_reported_and_the_others_run() -> None:
    gone, twice = installed().problems
    assert gone.startswith("gone of other-passes: other_passes:NOWHERE does not load: AttributeError")
    assert twice == "twice of other-passes: ValueError: there is a pass called 'nodes' already"


@pytest.mark.usefixtures("distribution")
def test_the_shrinker_runs_them() -> None:
    (theirs,) = (p for p in installed().passes if p.name == "b-nodes")
    case, trace = tower(10, {4: "asinh"})
    assert ops(shrinker(Fails(has("asinh")), passes=(theirs,)).run(case, trace).case) == ["asinh"]


def test_without_other_distributions_the_table_is_ours() -> None:
    assert (installed().passes, installed().sources, installed().problems) == (PASSES, {}, ())
