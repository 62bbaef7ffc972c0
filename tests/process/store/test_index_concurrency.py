"""Several processes and threads on one file, and processes that die at the worst moment: nothing lost, nothing half."""

import multiprocessing
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import index_tasks
import pytest
from index_tasks import add, add_many, small_case

from fxminify.store.index import Index

SPAWN = multiprocessing.get_context("spawn")


def check_whole(path: str) -> int:
    """Every capture of the file has its case and its storages; how many there are."""
    with Index.open(path, readonly=True) as index:
        for info in index.captures.find():
            case = index.captures.case(info.id)
            assert set(dict(index.blobs.view(case.storages))) == case.storages
        return len(index.captures.find())


@pytest.mark.parametrize("exists", [True, False])
def test_processes_that_add_at_the_same_time(tmp_path: Path, exists: bool) -> None:
    """Three processes add overlapping failures; without a file, they also make it at the same time."""
    path = str(tmp_path / "repro.db")
    if exists:
        Index.open(path, create=True).close()
    work = [[*range(1, 13), *range(1, 6)], [*range(6, 18)], [*range(12, 0, -1)]]
    processes = [SPAWN.Process(target=add_many, args=(path, widths)) for widths in work]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [p.exitcode for p in processes] == [0, 0, 0]
    assert check_whole(path) == 17
    with Index.open(path, readonly=True) as index:
        counted = {index.captures.case(c.id).tensors[0].shape[0]: c.occurrences for c in index.captures.find()}
    assert counted == Counter(width for widths in work for width in widths)


def test_threads_that_share_an_index(tmp_path: Path) -> None:
    path = str(tmp_path / "repro.db")
    with Index.open(path, create=True, inline_limit=20) as index:
        ids: list[int] = []
        threads = [
            threading.Thread(target=lambda: ids.extend(add(index, *small_case(w)) for w in range(1, 9)))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(ids) == dict.fromkeys(range(1, 9), 20)
        assert [c.occurrences for c in index.captures.find()] == [20] * 8
    assert check_whole(path) == 8


def run_and_die(*args: str) -> None:
    process = SPAWN.Process(target=getattr(index_tasks, args[0]), args=args[1:])
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["_write_file", "stage", "insert"])
def test_a_process_killed_in_the_middle_of_add(tmp_path: Path, moment: str) -> None:
    path = str(tmp_path / "repro.db")
    add_many(path, [1, 2])
    run_and_die("die_in_add", path, moment)
    assert check_whole(path) == 2
    with Index.open(path) as index:
        assert add(index, *small_case(3)) == 3
    assert check_whole(path) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["repro.db", "repro.db.blobs"]


def test_a_process_killed_while_it_makes_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "repro.db")
    run_and_die("die_while_creating", path)
    add_many(path, [1, 2])
    assert check_whole(path) == 2


def test_a_process_killed_at_any_moment(tmp_path: Path) -> None:
    """What was reported as stored is there, whenever the kill comes."""
    path = str(tmp_path / "repro.db")
    for round in range(4):
        ours, theirs = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=index_tasks.add_and_report, args=(path, theirs, round))
        process.start()
        theirs.close()
        stored = [ours.recv() for _ in range(7 + 5 * round)]
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert check_whole(path) >= stored[-1]
        with Index.open(path, readonly=True) as index:
            assert {c.id for c in index.captures.find()} >= set(stored)


def test_a_killed_reduction_goes_on_where_it_was(tmp_path: Path) -> None:
    path = str(tmp_path / "repro.db")
    add_many(path, [4])
    run_and_die("die_in_reduction", path)
    with Index.open(path) as index:
        reduction = index.reductions.begin(1, {"match": "exact"})
        assert (reduction.id, reduction.resumed, reduction.accepted, reduction.nodes_after) == (1, True, 1, 1)
        assert {k: v.outcome for k, v in index.verdicts.find(1).items()} == {"a": "same"}
        assert index.best(reduction) == small_case(1)[0]
        index.verdicts.asked(1, "b", "nodes")
        index.verdicts.answered(1, "b", "pass", None, 0.1, "")
        assert index.verdicts.find(1)["b"].asks == 1  # the first was not written yet
