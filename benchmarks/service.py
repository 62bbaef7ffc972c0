"""What an index carries: captures and answers a second from several processes, and how long a listing takes.

    python -m fxminify.benchmarks.service                                   # a SQLite file
    python -m fxminify.benchmarks.service --url postgresql+psycopg://...    # an empty database on a server

Each process opens the index itself. **New captures** differ in their graph; of **one failure** all processes meet the
same; **opened for each** opens the index for every capture, as a program does that fails once. An **answer** is a query
that is logged before it is asked, and its verdict. **Claims** are made by workers while ``--tasks`` are queued that
need ten different things, of which each worker has nine. For the **listing** the index is filled with ``--captures``
rows. Rates are of ``--seconds`` of wall time, with the 99th percentile of single calls in milliseconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from fxminify.store.document.case import Case, Graph, Node, TensorSpec
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.index import Index
from fxminify.store.index.tables import CaptureRow, TaskRow
from fxminify.store.signature import signature

Row = dict[str, Any]
#: Does one thing, the ``number``-th of this process, in an open index.
Action = Callable[[Index, str, int, int], None]

FAILURE = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "no kernel")
#: Rows of a page of a listing.
PAGE = 50


def case_of(width: int) -> Case:
    """``relu`` of ``width`` numbers."""
    graph = Graph(
        (
            Node("x", "placeholder", "L_x_"),
            Node("relu", "call_function", {"fn": "torch.relu"}, ({"ref": "x"},)),
            Node("output", "output", "output", ({"tuple": [{"ref": "relu"}]},)),
        )
    )
    spec = TensorSpec("float32", (width,), (1,), init={"fn": "full", "value": 1.0})
    return Case(graph, ({"tensor": 0},), (spec,), backend={"name": "eager"}, torch="2.13.0")


def add(index: Index, width: int) -> int:
    return index.captures.add(
        case=case_of(width), blobs={}, failure=FAILURE, signature=signature(FAILURE), provenance={"program": "x.py"}
    )


def new_captures(index: Index, place: str, process: int, number: int) -> None:
    add(index, 1_000_000 * (process + 1) + number)


def one_failure(index: Index, place: str, process: int, number: int) -> None:
    add(index, 1)


def opened_for_each(index: Index, place: str, process: int, number: int) -> None:
    with Index.open(place, create=True) as own:
        add(own, 500_000_000 + 1_000_000 * (process + 1) + number)


def answers(index: Index, place: str, process: int, number: int) -> None:
    reduction = index.reductions.begin(1, {"process": process}).id if number == 0 else _reductions[process]
    _reductions[process] = reduction
    index.verdicts.asked(reduction, f"{number:064x}", "nodes")
    index.verdicts.answered(reduction, f"{number:064x}", "SAME", None, 0.1, "")


def claims(index: Index, place: str, process: int, number: int) -> None:
    if process not in _workers:
        _workers[process] = index.tasks.join("", SERVED)
    assert index.tasks.claim(_workers[process], SERVED) is not None


#: What the workers serve, and what the tasks need.
SERVED = {f"backend={number}" for number in range(1, 10)}
NEEDED = [f"backend={number} torch=2.13" for number in range(10)]
_reductions: dict[int, int] = {}
_workers: dict[int, int] = {}
ACTIONS: dict[str, Action] = {
    "new captures": new_captures,
    "one failure": one_failure,
    "opened for each": opened_for_each,
    "answers": answers,
    "claims": claims,
}


def work(place: str, action: str, process: int, seconds: float, began: Any, out: Any) -> None:
    """In a process of its own: repeat ``action`` for ``seconds``, and send the seconds of each call."""
    took: list[float] = []
    with Index.open(place, create=True) as index:
        began.wait()
        end = time.monotonic() + seconds
        while (started := time.monotonic()) < end:
            ACTIONS[action](index, place, process, len(took))
            took.append(time.monotonic() - started)
    out.put(took)


def rate(place: str, action: str, processes: int, seconds: float) -> Row:
    """What ``processes`` processes do together."""
    context = multiprocessing.get_context("spawn")
    began, out = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=work, args=(place, action, number, seconds, began, out)) for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    took = sorted(each for _ in workers for each in out.get())
    for worker in workers:
        worker.join()
    return {"what": action, "a second": round(len(took) / seconds), "p99, ms": _milliseconds(took, 0.99)}


def fill(place: str, captures: int) -> None:
    """Add rows that differ in their identity, in batches, to what is there."""
    with Index.open(place) as index:
        first = index.captures.find(limit=1)[0].id
        with index._database.reading() as session:
            row = session.get(CaptureRow, first)
            assert row is not None
            columns = {c.key: getattr(row, c.key) for c in CaptureRow.__table__.columns if c.key != "id"}
        for begin in range(0, captures, 5000):
            rows = [{**columns, "identity": f"{n:064x}"} for n in range(begin, min(begin + 5000, captures))]
            with index._database.writing() as session:
                session.execute(insert(CaptureRow), rows)


def queue(place: str, tasks: int) -> None:
    """Queue so many tasks, all of one capture."""
    row = {
        "kind": "minify", "bug": 1, "capture": 1, "config": "{}", "state": "queued", "why": "", "attempts": 0,
        "fence": 0, "holder": "", "until": 0.0, "created": "",
    }  # fmt: skip
    with Index.open(place) as index:
        for begin in range(0, tasks, 5000):
            rows = [
                {**row, "open": f"{n}", "needs": NEEDED[n % len(NEEDED)], "priority": -(n * 7919 % 30)}
                for n in range(begin, min(begin + 5000, tasks))
            ]
            with index._database.writing() as session:
                session.execute(insert(TaskRow), rows)


def listings(place: str) -> list[Row]:
    """How long a page takes, and how long all rows and how much memory."""
    with Index.open(place, readonly=True) as index:
        last = max(index.captures.seen_since(""), default=0)
        took = []
        for number in range(100):
            started = time.monotonic()
            index.captures.find(after=last * number // 100, limit=PAGE)
            took.append(time.monotonic() - started)
        before, started = _peak(), time.monotonic()
        rows = len(index.captures.find())
        seconds = time.monotonic() - started
    return [
        {"what": f"a page of {PAGE} of {rows}", "p95, ms": _milliseconds(sorted(took), 0.95)},
        {"what": f"all {rows}", "s": round(seconds, 1), "MiB": round(_peak() - before)},
    ]


def _milliseconds(took: list[float], share: float) -> float:
    return round(1000 * took[min(int(len(took) * share), len(took) - 1)], 1) if took else float("nan")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="", help="An empty database; by default a new SQLite file.")
    parser.add_argument("--captures", type=int, default=20_000, help="Rows for the listing.")
    parser.add_argument("--tasks", type=int, default=100_000, help="Queued tasks for the claims.")
    parser.add_argument("--only", choices=ACTIONS, help="Measure this alone.")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = asked.url or str(Path(folder) / "repro.db")
        with Index.open(place, create=True) as index:
            add(index, 1)
        for action in [asked.only] if asked.only else ACTIONS:
            if action == "claims":
                queue(place, asked.tasks)
            for processes in (1, asked.processes):
                print(processes, rate(place, action, processes, asked.seconds), flush=True)
        if asked.only:
            return
        fill(place, asked.captures)
        for row in listings(place):
            print(row, flush=True)


if __name__ == "__main__":
    main()
