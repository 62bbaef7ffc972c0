"""Measure models of real sizes: memory and time of capture, of comparisons with eager and of `minify run`.

    python -m fxminify.benchmarks.sizes [--sizes 102M 354M] [--kinds healthy raises wrong] [--write docs/benchmarks.md]

A GPT-2 (`outside/large.py`) runs alone, under ``minify capture``, and under ``minify capture --check``, and its
capture is minified; all in one run, so that ratios can be compared. **Memory** is the proportional set size of all
processes, read from ``/proc/PID/smaps_rollup`` five times a second: a page that several processes share counts
once. **Processor** is the time of all processes; wall time stands beside it. **Eager calls** is the processor time
that a comparison adds to the first call, in calls of the model in eager. Each row is one process tree in a folder
of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from .page import put

#: Width, layers and dtype of each size.
SIZES = {
    "102M": ("1024", "4", "float32"),
    "354M": ("1024", "24", "float32"),
    "1.3B": ("2048", "24", "bfloat16"),
}
STEPS = ("alone", "capture", "capture --check", "run")
KINDS = ("healthy", "raises", "wrong")
PROGRAM = Path(__file__).parent / "outside" / "large.py"
#: Seconds between two readings of the memory.
TICK = 0.2
#: What stands around the table in a page.
NAME = "sizes"
#: The most that a step may take, as multiples of the program alone: memory, then processor time.
MEMORY, RUN_TIME = 1.6, 3.0
#: The most calls in eager that a comparison may cost, where results agree and where they do not.
CALLS = {"healthy": 4.0, "raises": 4.0, "wrong": 12.0}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a process tree: peak bytes, seconds of wall and of processor time, and its output."""

    peak: int
    wall: float
    processor: float
    code: int
    output: str
    errors: str


def measured(command: Sequence[str], folder: Path, limit: float) -> Measured:
    """Run ``command`` in ``folder`` for at most ``limit`` seconds, and measure its process tree."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with open(folder / "out", "w+") as out, open(folder / "err", "w+") as err:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err, env=environment)
        watch = _Watch(process.pid)
        watch.start()
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            for pid in _family(process.pid):
                psutil.Process(pid).kill()
            code = process.wait()
        watch.done.set()
        watch.join()
        out.seek(0), err.seek(0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Measured(watch.peak, time.monotonic() - began, spent, code, out.read(), err.read())


class _Watch(threading.Thread):
    """Reads the memory of a process and all its descendants until it is ``done``."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peak = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(TICK):
            self.peak = max(self.peak, sum(map(proportional, _family(self.pid))))


def _family(pid: int) -> list[int]:
    """The process and its descendants, read without a look at all others."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return [pid]
    return [pid, *(each for child in children for each in _family(child))]


def proportional(pid: int) -> int:
    """The proportional set size of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def steps(size: str, kind: str, limit: float, wanted: Sequence[str]) -> list[Row]:
    """The rows of one size and kind: the program alone, captured, compared, and what was captured minified."""
    minify = [str(Path(sys.executable).with_name("minify"))]
    program = [str(PROGRAM), *SIZES[size], kind]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="sizes-") as place:
        folder = Path(place)
        commands = {
            "alone": [sys.executable, *program],
            "capture": [*minify, "capture", "--db", "plain.db", *program],
            "capture --check": [*minify, "capture", "--db", "repro.db", "--check", *program],
            "run": [*minify, "run", "repro.db", "--trust"],
        }
        for step, command in commands.items():
            if step not in wanted or (step == "run" and kind == "healthy"):
                continue
            found = measured(command, folder, limit)
            lines = (json.loads(line) for line in found.output.splitlines() if line.startswith('{"parameters"'))
            said: Row = next(lines, {})
            rows.append(
                {
                    "size": size, "kind": kind, "step": step, "peak": found.peak, "wall": found.wall,
                    "processor": found.processor, "code": found.code, "call": said.get("call"),
                    "eager": said.get("eager"), "last": (found.errors.strip().splitlines() or [""])[-1][:300],
                }
            )  # fmt: skip
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as a table. Ratios are to the program alone, of the same size and kind."""
    lines = [
        "| size | backend | step | memory, MiB | times alone | processor, s | times alone | wall, s | eager calls | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        alone = next(r for r in rows if (r["size"], r["kind"], r["step"]) == (row["size"], row["kind"], "alone"))
        memory, seconds = row["peak"] / alone["peak"], row["processor"] / alone["processor"]
        calls = added_calls(row, alone)
        met = memory <= MEMORY and (row["step"] != "run" or seconds <= RUN_TIME)
        met = met and (calls is None or calls <= CALLS[row["kind"]])
        mark = "" if row["step"] == "alone" else "✓" if met and not row["code"] else "missed"
        lines.append(
            f"| {row['size']} | {row['kind']} | {row['step']} | {row['peak'] / 2**20:.0f} | {memory:.2f} | "
            f"{row['processor']:.1f} | {seconds:.2f} | {row['wall']:.0f} | {'' if calls is None else f'{calls:.1f}'} | "
            f"{mark} |"
        )
    return "\n".join(lines)


def added_calls(row: Row, alone: Row) -> float | None:
    """The processor time that the step adds to the compiled call, in calls of the model in eager."""
    if row["step"] == "alone" or not row["call"] or not alone["call"]:
        return None
    return float((row["call"][1] - alone["call"][1]) / alone["eager"][1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fxminify.benchmarks.sizes", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["102M", "354M"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that one step may take (default 1800)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page, between its marks")
    options = parser.parse_args()
    rows = [
        row
        for size in options.sizes
        for kind in options.kinds
        for row in steps(size, kind, options.limit, options.steps)
    ]
    text = table(rows)
    print(text)
    if options.write is not None:
        options.write.write_text(put(options.write.read_text(), text, NAME))


if __name__ == "__main__":
    main()
