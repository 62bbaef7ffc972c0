"""The failures of ``tests/failures``: for how many is a cause named, and does a way around hold?

    python -m fxminify.benchmarks.causes [--failures 017_acosh_overflow,215_mae_randperm_take]
    python -m fxminify.benchmarks.causes --table [--out FILE] [--write docs/causes.md]

Each program runs in an empty directory: ``minify capture``, ``minify run``, and ``minify explain``. A line of ``--out``
says what the report names. Failures that stand there are skipped, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from .page import put

#: The marks of the table in a page.
NAME = "causes"
FAILURES = Path(__file__).parents[1] / "tests" / "failures"
#: Seconds after which a compilation hangs, and that one command may take.
HANG, LIMIT = 60, 1200
#: The results of a switch or of another way to compile, in the words of a report.
PASSES, SAME = "passes", "same failure"
Row = dict[str, Any]


def names() -> list[str]:
    """The names of the failures, in order."""
    return sorted(path.stem for path in FAILURES.glob("[0-9]*.py"))


def constants(name: str) -> dict[str, Any]:
    """The constants that the program of a failure sets, read without running it."""
    tree = ast.parse((FAILURES / f"{name}.py").read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    return {
        node.targets[0].id: ast.literal_eval(node.value)  # type: ignore[attr-defined]
        for node in assigned
        if node.targets[0].id.isupper()  # type: ignore[attr-defined]
    }


def measure(name: str) -> Row:
    """Capture, minify and explain one failure; the row of ``--out``."""
    known = constants(name)
    row: Row = {"failure": name, "backend": known["BACKEND"], "state": "not captured"}
    with tempfile.TemporaryDirectory() as folder:
        for file in FAILURES.glob("*.py"):
            shutil.copy(file, folder)
        options = ["--check", known.get("CHECK", "first:2")] if known["KIND"] == "divergence" else []
        options += ["--timeout", str(HANG)] if known["KIND"] == "hang" else []
        # With more threads two of the failures leave a parallel region, which ends the process.
        minify(folder, "capture", *options, "drive.py", name, OMP_NUM_THREADS="1")
        if not (Path(folder) / "repro.db").exists():
            return row
        row["run_s"] = minify(folder, "run", "repro.db", "1")[1]
        explained, row["explain_s"] = minify(folder, "explain", "repro.db", "1")
        shown, _ = minify(folder, "show", "repro.db", "1", "--json")
        if not shown.stdout:
            return {**row, "state": "error", "detail": shown.stderr[-300:]}
        report = json.loads(shown.stdout)
    row |= {"state": report["state"], "kind": (report["failure"] or {}).get("kind", "")}
    row["nodes"] = (report["minimal"] or {}).get("nodes")
    row["layer"] = (report["layer"] or {}).get("fails_in", "")
    if (cause := report["cause"]) is None:
        return {**row, "detail": explained.stderr.strip()[-300:]}
    helping = [way for way in report["ways_around"] or () if way["helps"]]
    return row | {
        "cause": next((text for text in cause["sentences"] if text.startswith("Fails in: ")), ""),
        "way": "; ".join(helping[0]["lines"]) if helping else "",
        "modes": {twin["change"]: twin["result"] for twin in cause["twins"]},
        "judges": [[judge["assert_close"], judge["same"]] for judge in cause["judgements"]],
        "queries": cause["queries"],
        "stopped": cause["stopped"],
    }


def minify(folder: str, *words: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a verb in ``folder``. Return its end, and its seconds."""
    command, began = [sys.executable, "-m", "fxminify", *words], time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT,
            env={**os.environ, **environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(command, 124, "", f"ended after {LIMIT} s")
    return done, round(time.monotonic() - began, 1)


def table(rows: list[Row]) -> str:
    """Format a line for each failure, and the shares of those whose cause is named and that have a way around."""
    lines = [
        "| failure | backend | nodes | cause | way around | other ways to compile that fail, too | queries | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row["failure"]):
        cause = row.get("cause", "").removeprefix("Fails in: ") or row.get("detail") or row["state"]
        modes = [change for change, result in row.get("modes", {}).items() if result == SAME]
        cells = [
            row["failure"],
            row["backend"],
            row.get("nodes") or "",
            cause,
            f"`{row['way']}`" if row.get("way") else "",
            ", ".join(f"`{change}`" for change in modes),
            row.get("queries", ""),
            row.get("explain_s", ""),
        ]
        lines.append(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, "", *shares(rows)])


def shares(rows: list[Row]) -> list[str]:
    """Sentences about the verified failures of each backend: how many have a cause, and how many a way around."""
    out = []
    for backend in sorted({row["backend"] for row in rows}):
        these = [row for row in rows if row["backend"] == backend and row["state"] == "verified"]
        if not these:
            continue
        named, helped = (sum(bool(row.get(key)) for row in these) for key in ("cause", "way"))
        queries = [row["queries"] for row in these if "queries" in row]
        asked = f", {median(queries):.0f} queries at the median" if queries else ""
        out.append(f"* {backend}: of {len(these)} failures {named} have a cause, {helped} a way around{asked}.")
    return out


def main() -> None:
    """Measure what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("causes.jsonl"))
    parser.add_argument("--failures", default=",".join(names()))
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page, between its marks")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.table:
        print(text := table(rows))
        if given.write is not None:
            given.write.write_text(put(given.write.read_text(), text, NAME))
        return
    done = {row["failure"] for row in rows}
    for name in given.failures.split(","):
        if name not in done:
            row = measure(name)
            print(json.dumps(row), flush=True)
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
