"""`minify gc --values`: what a verified script does without goes, and nothing else."""

from __future__ import annotations

import array
import random
from pathlib import Path

import pytest
from desks import invoke
from index_tasks import add, small_case
from indexes import chain, minify

from fxminify.store.index import Index, State
from fxminify.store.index.documents import loads
from fxminify.store.index.tables import CaptureRow
from fxminify.store.index.trust import is_ours
from fxminify.store.index.unneeded_values import RemovedValues

WIDTH = 1 << 15


@pytest.fixture
def weights() -> bytes:
    drawn = random.Random(0)
    return array.array("f", (drawn.gauss(0, 0.02) for _ in range(WIDTH))).tobytes()


def test_values_of_a_captured_graph_go_when_a_smaller_one_is_verified(path: str, weights: bytes) -> None:
    with Index.open(path, create=True, inline_limit=1000) as index:
        id = add(index, *small_case(WIDTH, weights), ours=True)
        assert index.unneeded_values.remove() == RemovedValues(0, 0)
        minify(index, id, chain(["sin"]))
        expected = RemovedValues(1, 4 * WIDTH)
        assert index.unneeded_values.remove(dry_run=True) == expected
        assert index.captures.case(id).storages
        assert index.unneeded_values.remove() == expected
        (spec,) = index.captures.case(id).tensors
        assert (spec.storage, spec.init, spec.shape) == (None, {"fn": "randn", "std": 0.02}, (WIDTH,))
        row = index.captures.get(id)
        told = {key: row.provenance[key] for key in ("data", "left_out")}
        assert told == {"data": "metadata", "left_out": "removed by minify gc --values"}
        with index.database.reading() as session:
            stored = session.get_one(CaptureRow, id)
            assert is_ours(str(stored.document), stored.identity, loads(stored.provenance)["origin"])
        assert row.state is State.VERIFIED
        assert index.repros.get(id, "script") is not None
        assert index.unneeded_values.remove() == RemovedValues(0, 0)
    assert not [p for p in Path(f"{path}.blobs").rglob("*") if p.is_file()]


def test_what_another_case_needs_stays(path: str, weights: bytes) -> None:
    case, blobs = small_case(WIDTH, weights)
    with Index.open(path, create=True) as index:
        whole = add(index, case, blobs)
        minify(index, whole, chain(["sin"]))
        add(index, *small_case(WIDTH, weights, backend="other"))
        assert index.unneeded_values.remove() == RemovedValues(0, 0)
        assert index.captures.case(whole) == case


def test_a_case_that_could_not_be_made_smaller_keeps_its_values(path: str, weights: bytes) -> None:
    case, blobs = small_case(WIDTH, weights)
    with Index.open(path, create=True) as index:
        id = add(index, case, blobs)
        reduction = index.reductions.begin(id, {})
        index.repros.save(id, "script", "raise SystemExit(1)\n", verified=3, runs=3, log="", case=case, blobs=blobs)
        index.reductions.finish(reduction.id, queries=1, nodes_before=1, nodes_after=1, seconds=1.0)
        index.captures.set_state(id, State.VERIFIED)
        assert index.unneeded_values.remove() == RemovedValues(0, 0)
        assert index.captures.case(id) == case


def test_the_command_says_how_much_went(path: str, weights: bytes) -> None:
    with Index.open(path, create=True) as index:
        minify(index, add(index, *small_case(WIDTH, weights)), chain(["sin"]))
    assert "0.1 MB of values of 1 captured graph" in invoke(Path(path).parent, "gc", path, "--values").output
