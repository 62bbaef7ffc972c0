"""Measure overhead and memory on large graphs: forward and backward of densenet121 in one graph, and chains.

    python -m fxminify.benchmarks.scale [--limit SECONDS] [--write docs/benchmarks.md]

**Overhead** is processor time without the time in the predicate, which looks for two planted operations and
compiles nothing. PyTorch's minifier is ended after ``--limit`` seconds of it: its overhead is then at least the
number in the table. **Memory** is the peak memory of a process beyond the graph and its inputs: for one run of the
graph in eager, and for a whole reduction. The **chains** are synthetic graphs of small tensors, again with one or
two planted operations: *search* is the time of the search per query, including its set-up, and *whole* the
additional time of `fxminify.reduce`, for recording the values and for making the modules that the predicate gets.
**Workers**: the same searches with an oracle that sleeps, answered by one and by two threads.

Each measurement has a process of its own, forked after the graph was made.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import fx

from fxminify.minifier.oracle.scheduler import QueryScheduler
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.passes import Stage, in_stage
from fxminify.minifier.reduce import reduce
from fxminify.minifier.reducer.shrinker import Shrinker
from fxminify.minifier.tracing.recorder import record
from fxminify.minifier.tracing.spill import Spill
from fxminify.store.document.case import Case
from fxminify.store.live.encode import encode

from .apart import apart
from .graphs import Graph, capture, copies
from .page import put
from .plants import Plant, compute, plant
from .tools import TOOLS

Row = dict[str, Any]
CASE, KIND = "densenet121:joint", "b"
PAIR = ("asinh", "atan")
#: What stands around the tables in a page.
NAME = "scale"


class Spent(BaseException):
    """The time is up."""


def overhead(tool: str, planted: Plant, limit: int) -> Row:
    """Measure ``tool``, or its first ``limit`` seconds: queries, seconds, MiB."""
    queries, within, entered = 0, 0.0, 0.0

    def fails(gm: fx.GraphModule, inputs: list[Any]) -> bool:
        nonlocal queries, within, entered
        queries += 1
        entered = time.process_time()
        try:
            return planted.fails(gm, inputs)
        finally:
            within += time.process_time() - entered
            entered = 0.0

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Spent

    signal.signal(signal.SIGPROF, stop)
    inputs = copies(planted.inputs)
    before, clock, started = peak(), time.monotonic(), time.process_time()
    signal.setitimer(signal.ITIMER_PROF, limit)
    left = None
    try:
        left = len(compute(TOOLS[tool](planted.gm, inputs, fails)[0].graph))
    except Spent:
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    taken = time.process_time() - started
    within += time.process_time() - entered if entered else 0.0
    return {
        "tool": tool, "queries": queries, "left": left, "overhead": taken - within, "within": within,
        "seconds": time.monotonic() - clock, "mib": peak() - before,
    }  # fmt: skip


def eager(planted: Plant) -> Row:
    """Measure a run of the graph on inputs of its own."""
    before, started = peak(), time.process_time()
    with torch.no_grad():
        planted.gm(*copies(planted.inputs))
    return {"tool": "eager", "within": time.process_time() - started, "mib": peak() - before}


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def chain(count: int) -> Graph:
    """``count`` operations, each reading the one before and some an earlier one, too."""
    rng, graph, aten = random.Random(0), fx.Graph(), torch.ops.aten
    value = graph.placeholder("x")
    weights, made = [graph.placeholder(f"w{i}") for i in range(8)], [value]
    planted = {count // 4: aten.asinh.default, 3 * count // 4: aten.atan.default}
    for i in range(count):
        common = rng.choice([aten.mul.Tensor, aten.add.Tensor, aten.relu.default, aten.sin.default])
        target: Any = planted.get(i, common)
        other = {aten.mul.Tensor: (weights[i % 8],), aten.add.Tensor: (rng.choice(made),)}.get(target, ())
        value = graph.call_function(target, (value, *other))
        made.append(value)
    graph.output((value,))
    return fx.GraphModule({}, graph), [torch.rand(4, 4) for _ in range(9)]


class Looks:
    """An oracle that looks at what is called."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.targets = [f"aten::{name}.default" for name in names]
        self.seconds = 0.0

    def ask(self, case: Case) -> Verdict:
        started = time.process_time()
        there = {n.target["op"] for n in case.graph.compute}
        self.seconds += time.process_time() - started
        return Verdict(Outcome.SAME if there.issuperset(self.targets) else Outcome.PASS)


def _shrinker(oracle: Looks, jobs: int) -> Shrinker:
    """Return a shrinker that only removes: it makes no storages."""
    return Shrinker(QueryScheduler(oracle, jobs=jobs), Spill(), passes=in_stage(Stage.REMOVE))


def search(graph: Graph, names: tuple[str, ...]) -> Row:
    """The search alone, from a case and its recorded values."""
    blobs: dict[str, bytes] = {}
    encoded = encode(*graph, put=blobs.__setitem__)
    case = Case(encoded.graph, encoded.inputs, encoded.tensors)
    trace, oracle = record(case, blobs, put=blobs.__setitem__), Looks(names)
    started = time.process_time()
    result = _shrinker(oracle, 1).run(case, trace)
    seconds = time.process_time() - started - oracle.seconds
    return {"queries": result.queries, "left": len(result.case.graph.compute), "search": seconds}


def whole(graph: Graph, names: tuple[str, ...]) -> Row:
    """`fxminify.reduce`."""
    targets = {getattr(torch.ops.aten, name).default for name in names}
    within = 0.0

    def fails(gm: fx.GraphModule, _: list[Any]) -> bool:
        nonlocal within
        started = time.process_time()
        found = targets <= {node.target for node in gm.graph.nodes}
        within += time.process_time() - started
        return found

    started = time.process_time()
    reduce(*graph, fails, stages=["remove"])
    return {"whole": time.process_time() - started - within}


class Sleeps(Looks):
    """Takes its time, in one of ``jobs`` threads."""

    def __init__(self, names: tuple[str, ...], jobs: int) -> None:
        super().__init__(names)
        self.threads = ThreadPoolExecutor(jobs)

    def ask(self, case: Case) -> Verdict:
        time.sleep(1.0)
        return super().ask(case)

    def submit(self, case: Case) -> Future[Verdict]:
        return self.threads.submit(self.ask, case)


def workers(runs: int) -> Row:
    """Seconds of ``runs`` searches with one worker and with two."""
    seconds = dict.fromkeys((1, 2), 0.0)
    for seed in range(runs):
        for names in (PAIR, PAIR[:1]):
            encoded = encode(*chain(200 + 100 * seed))
            case = Case(encoded.graph, encoded.inputs, encoded.tensors)
            blobs = dict(encoded.blobs)
            trace = record(case, blobs, put=blobs.__setitem__)
            for jobs in seconds:
                started = time.monotonic()
                _shrinker(Sleeps(names, jobs), jobs).run(case, trace)
                seconds[jobs] += time.monotonic() - started
    return {"one": seconds[1], "two": seconds[2]}


def densenet(limit: int) -> list[Row]:
    planted = plant(*capture(CASE), KIND, CASE.split(":")[1])
    rows = [apart(lambda: eager(planted))]
    for tool in TOOLS:
        rows.append(apart(lambda tool=tool: overhead(tool, planted, limit)))  # type: ignore[misc]
        print(rows[-1], file=sys.stderr, flush=True)
    return [{"nodes": len(compute(planted.gm.graph))} | row for row in rows]


def chains(counts: tuple[int, ...], runs: int) -> list[Row]:
    rows = []
    for count in counts:
        for names in (PAIR, PAIR[:1]):
            graph = chain(count)
            found = [apart(lambda: search(graph, names)) for _ in range(runs if count <= 1000 else 1)]  # noqa: B023
            best = min(found, key=lambda row: row["search"])
            rows.append({"nodes": count, "planted": len(names)} | best | apart(lambda: whole(graph, names)))  # noqa: B023
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def tables(large: list[Row], small: list[Row], working: Row) -> str:
    plain, ours, theirs = large
    more = "" if theirs["left"] is not None else "more than "
    lines = [
        f"| {plain['nodes']} nodes | queries | nodes left | overhead, s | in the predicate, s | memory, MiB |",
        "|---|---|---|---|---|---|",
        f"| one run in eager | | | | {plain['within']:.1f} | {plain['mib']:.0f} |",
    ]
    for row in (ours, theirs):
        cut = "" if row is ours else more
        name = "`fxminify.reduce`" if row is ours else "PyTorch's minifier"
        lines.append(
            f"| {name} | {cut}{row['queries']} | {'not ended' if row['left'] is None else row['left']} | "
            f"{cut}{row['overhead']:.1f} | {row['within']:.1f} | {row['mib']:.0f} |"
        )
    share, memory = 100 * ours["overhead"] / theirs["overhead"], ours["mib"] / plain["mib"]
    said = "less than " if more else ""
    lines += [
        "",
        f"Overhead: {said}{share:.1f} % of PyTorch's. Memory: {memory:.2f} times the memory of one run in eager.",
        "",
    ]
    lines += [
        "| nodes | planted | queries | nodes left | search, ms a query | search, s | whole, s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['nodes']} | {row['planted']} | {row['queries']} | {row['left']} | "
        f"{1000 * row['search'] / row['queries']:.2f} | {row['search']:.3f} | {row['whole']:.2f} |"
        for row in small
    ]
    ratio = working["one"] / working["two"]
    lines += ["", f"With an oracle that takes all the time two workers are {ratio:.2f} times as fast as one."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fxminify.benchmarks.scale", description=__doc__)
    parser.add_argument("--limit", type=int, default=400, help="processor seconds that a run may take (default 400)")
    parser.add_argument("--runs", type=int, default=5, help="of which the best counts, for graphs of 1000 nodes")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this page, between its marks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = tables(densenet(options.limit), chains((1000, 5000, 20_000), options.runs), apart(lambda: workers(2)))
    print(text)
    if options.write is not None:
        options.write.write_text(put(options.write.read_text(), text, NAME))


if __name__ == "__main__":
    main()
