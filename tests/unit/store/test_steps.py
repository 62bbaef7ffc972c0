"""The steps of a reduction: written once, kept with their cases, replaced where a run goes another way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from index_tasks import add, small_case
from sqlalchemy import create_engine

from fxminify.store.index import Index, StepInfo, reductions, sqlite, tables
from fxminify.store.index.steps import LONGEST
from fxminify.store.index.tables import SCHEMA


def step(number: int, key: str, difference: str = "") -> StepInfo:
    return StepInfo(number, "nodes", key, 1, 1, queries=number, seconds=0.5, difference=difference)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    index = Index.open(str(tmp_path / "repro.db"), create=True)
    add(index, *small_case(64, os.urandom(256)))
    return index


def test_a_step_keeps_its_case_beside_the_best(index: Index) -> None:
    reduction = index.begin_reduction(1, {})
    first, last = small_case(32, os.urandom(128)), small_case(16, os.urandom(64))
    index.add_step(reduction.id, step(1, "a", "- x"), *first)
    index.add_step(reduction.id, step(2, "b", "- y\n+ z"), *last)
    assert [(s.number, s.key, s.difference, s.kept) for s in index.steps(reduction.id)] == [
        (1, "a", "- x", True),
        (2, "b", "- y\n+ z", True),
    ]
    assert index.steps(reduction.id)[1].to_json()["difference"] == ["- y", "+ z"]
    assert index.step_case(reduction.id, 1) == first[0]
    assert dict(index.blobs(first[0].storages)) == first[1]
    assert index.best(reduction) == last[0]
    info = index.last_reduction(1)
    assert info is not None
    assert (info.id, info.accepted) == (reduction.id, 2)


def test_a_step_that_is_there_stays_and_another_one_replaces_what_came_after(index: Index) -> None:
    reduction = index.begin_reduction(1, {})
    cases = [small_case(32, os.urandom(128)), small_case(16, os.urandom(64)), small_case(8, os.urandom(32))]
    for number, (case, key) in enumerate(zip(cases, "abc", strict=True), 1):
        index.add_step(reduction.id, step(number, key), *case)
    index.add_step(reduction.id, step(1, "a", "said again"), *cases[0])
    assert [(s.key, s.difference) for s in index.steps(reduction.id)] == [("a", ""), ("b", ""), ("c", "")]
    index.add_step(reduction.id, step(2, "other"))
    assert [(s.key, s.kept) for s in index.steps(reduction.id)] == [("a", True), ("other", False)]
    with pytest.raises(Exception, match="has no storage"):
        dict(index.blobs(cases[2][0].storages))
    assert index.best(reduction) == cases[0][0]


def test_what_was_not_kept_is_said(index: Index) -> None:
    reduction = index.begin_reduction(1, {})
    index.add_step(reduction.id, step(1, "a"), *small_case(8))
    index.add_step(reduction.id, step(2, "b"))
    with pytest.raises(Exception, match="step 2 was not kept, it is too large; those kept are 1"):
        index.step_case(reduction.id, 2)
    with pytest.raises(Exception, match="step 7 does not exist"):
        index.step_case(reduction.id, 7)


def test_a_long_difference_is_cut(index: Index) -> None:
    reduction = index.begin_reduction(1, {})
    index.add_step(reduction.id, step(1, "a", "x" * (2 * LONGEST)))
    (kept,) = index.steps(reduction.id)
    assert LONGEST <= len(kept.difference) <= LONGEST + 10


def test_steps_of_an_older_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with create_engine(f"sqlite:///{path}").begin() as connection:
        sqlite.stamp(connection)
        config = Config()
        config.set_main_option("script_location", str(Path(tables.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.exec_driver_sql(
            "INSERT INTO captures (id, identity, state, reason, kind, phase, backend, headline, signature, provenance, "
            "graph_hash, graph_text, occurrences, created, last_seen) "
            "VALUES (1, 'i', 'pending', '', 'hang', 'compile', 'b', 'h', 's', '{}', 'g', '', 1, 'c', 'l')"
        )
        connection.exec_driver_sql(
            "INSERT INTO reductions (id, capture, config, config_digest, accepted, queries, seconds, started) "
            "VALUES (1, 1, '{}', 'd', 1, 4, 2.0, 's')"
        )
        connection.exec_driver_sql("INSERT INTO steps VALUES (1, 1, 'slices', 3, 2, 'then')")
    with Index.open(str(path)) as index:
        (old,) = index.steps(1)
        assert index._database.revision() == SCHEMA
    assert (old.pass_name, old.nodes, old.inputs, old.key, old.kept, old.at) == ("slices", 3, 2, "", False, "then")


def test_the_reduction_that_was_finished_last_stands_for_its_capture(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was interrupted, and is resumed after another was done, is the newer one."""
    ids = [index.begin_reduction(1, {"run": number}).id for number in (1, 2)]
    for id, width in zip(ids, (8, 4), strict=True):
        index.accept(id, *small_case(width))
    for hour, id in enumerate(reversed(ids)):
        monkeypatch.setattr(reductions, "now", lambda hour=hour: f"2026-01-01T0{hour}:00:00+00:00")
        index.finish_reduction(id, queries=id, nodes_before=1, nodes_after=1, seconds=1.0)
    info = index.last_reduction(1)
    assert info is not None
    assert (info.id, index.capture(1).queries) == (ids[0], ids[0])
    assert index.best(index.capture(1)) == small_case(8)[0]
