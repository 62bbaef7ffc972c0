"""Models of many architectures, each with a fault of a backend that knows nothing of fxminify: what becomes of them?

    python -m fxminify.benchmarks.generality [--sample 40] [--faults compile,value]
        [--architectures bert,vit] [--keep FOLDER]
    python -m fxminify.benchmarks.generality --table [--out FILE] [--write docs/benchmarks.md]

Each pair of architecture and fault is a program of its own in an empty directory: ``minify capture``, then
``minify run``. A line of ``--out`` says how many nodes were captured and are left, whether the script is verified, and
how long it took. Pairs that stand there are skipped, so an interrupted run goes on. ``--keep`` names a folder for the
scripts and for the indexes of what was missed. The programs and their backend are in ``benchmarks/outside``.

The pairs are in an order in which any number of them from the start has all faults about equally often, and as many
architectures as it can: ``--sample 60`` are five of each fault, on sixty architectures.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from .page import put

#: The marks of the table in a page.
NAME = "generality"
OUTSIDE = Path(__file__).parent / "outside"
#: Seconds after which a compilation hangs, and that `minify run` may take.
HANG, LIMIT = 40, 900
Row = dict[str, Any]


@cache  # the backend can be registered once
def outside(module: str) -> Any:
    """A module of ``benchmarks/outside``, which is no package."""
    spec = importlib.util.spec_from_file_location(module, OUTSIDE / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def pairs(architectures: Sequence[str], faults: Sequence[str]) -> list[tuple[str, str]]:
    """Each architecture with each fault once, in an order of which every beginning has much of both."""
    mixed = list(architectures)
    random.Random(0).shuffle(mixed)
    turns = range(len(faults))
    return [(name, faults[(i + turn) % len(faults)]) for turn in turns for i, name in enumerate(mixed)]


def is_small(row: Row, sizes: Mapping[str, int], silent: Collection[str]) -> bool:
    """Whether a program has a verified script of as many nodes as the fault takes, by ``sizes``.

    A wrong result that the next operator refuses takes that one, too: float64 among float32, say.
    """
    refused = row["fault"] in silent and row.get("kind") == "runtime_error"
    return row["state"] == "verified" and int(row["after"]) <= sizes[row["fault"]] + refused


def measure(
    architecture: str, fault: str, sizes: Mapping[str, int], silent: Collection[str], keep: Path | None = None
) -> Row:
    """Capture and minify one program; the row of `--out`.

    The script goes to the folder ``keep``, and where it is missing or too large, the index beside it.
    """
    row: Row = {"architecture": architecture, "fault": fault, "state": "not captured"}
    with tempfile.TemporaryDirectory() as name:
        for file in OUTSIDE.glob("*.py"):
            shutil.copy(file, name)
        options = ["--check"] if fault in silent else ["--timeout", str(HANG)] if fault == "hang" else []
        started = time.monotonic()
        captured = minify(name, "capture", *options, "program.py", architecture, fault)
        row["capture_s"] = round(time.monotonic() - started, 1)
        planted = [line for line in captured.stdout.splitlines() if line.startswith("planted:")]
        row["planted"] = planted[0].split()[2:] if planted else []
        if not planted:
            return {**row, "state": "not planted", "detail": captured.stderr[-300:]}
        if not (Path(name) / "repro.db").exists():
            return {**row, "detail": captured.stderr[-300:]}
        started = time.monotonic()
        done = minify(name, "run", "repro.db", "1", "--no-explain")
        row["run_s"] = round(time.monotonic() - started, 1)
        listed = minify(name, "list", "repro.db", "--each", "--json")
        if not listed.stdout:
            return {**row, "state": "error", "detail": (done.stderr + listed.stderr)[-300:]}
        found = next(item for item in json.loads(listed.stdout) if item["id"] == 1)
        row.update(state=found["state"], kind=found["kind"], before=found["nodes_before"], after=found["nodes_after"])
        if found["state"] != "verified":
            row["detail"] = str(found.get("reason") or done.stdout[-300:])
        if keep is not None:
            of = f"{architecture.replace('/', '_')}_{fault}"
            minify(name, "repro", "repro.db", "1", "-o", str(keep.resolve() / f"{of}.py"), "--force")
            if not is_small(row, sizes, silent):
                shutil.copy(Path(name) / "repro.db", keep / f"{of}.db")
    return row


def minify(directory: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fxminify", *words]
    try:
        return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired as exc:
        return subprocess.CompletedProcess(command, 124, str(exc.stdout or ""), f"ended after {LIMIT} s")


def table(rows: list[Row], sizes: Mapping[str, int], silent: Collection[str]) -> str:
    """Format a table with one line per fault: programs, shares, seconds."""
    lines = [
        "| fault | programs | captured | verified | at the planted size | median seconds of `minify run` |",
        "|---|---|---|---|---|---|",
    ]
    rows = [row for row in rows if row["state"] != "not planted"]
    for fault in (*sizes, "all"):
        these = [row for row in rows if fault in (row["fault"], "all")]
        if not these:
            continue
        captured = [row for row in these if row["state"] != "not captured"]
        verified = [row for row in these if row["state"] == "verified"]
        small = [row for row in verified if is_small(row, sizes, silent)]
        seconds = [row["run_s"] for row in captured if "run_s" in row]
        shares = (f"{len(part)} ({len(part) / len(these):.0%})" for part in (captured, verified, small))
        lines.append(f"| {fault} | {len(these)} | {' | '.join(shares)} | {median(seconds):.0f} |" if seconds else "")
    return "\n".join(line for line in lines if line)


def main() -> None:
    """Measure what is missing, or print the table."""
    planted, models = outside("planted"), outside("tiny_models")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("generality.jsonl"))
    parser.add_argument("--faults", default=",".join(planted.FAULTS))
    parser.add_argument("--architectures", default=",".join(models.ARCHITECTURES))
    parser.add_argument("--sample", type=int, help="only the first so many pairs")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="put the scripts there, and the indexes of misses")
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page, between its marks")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.table:
        print(text := table(rows, planted.FAULTS, planted.SILENT))
        if given.write is not None:
            given.write.write_text(put(given.write.read_text(), text, NAME))
        return
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    done = {(row["architecture"], row["fault"]) for row in rows}
    for architecture, fault in pairs(given.architectures.split(","), given.faults.split(","))[: given.sample]:
        if (architecture, fault) not in done:
            row = measure(architecture, fault, planted.FAULTS, planted.SILENT, given.keep)
            print(json.dumps(row), flush=True)
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
