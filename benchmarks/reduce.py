"""``python -m fxminify.benchmarks.reduce``: both reducers on every case, one JSON line a run.

Runs that stand in the output file are skipped, so an interrupted benchmark goes on where it was. Each run has a
process of its own, forked after the graph was captured. Ends with a table in Markdown, which ``--write FILE`` puts
into a page.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .apart import apart
from .graphs import Graph, capture
from .page import put
from .plants import PLANTS, NoPlace, plant
from .tools import TOOLS, measure

MODELS = ("mlp", "gpt2_4", "bert_4", "llama_4", "resnet50", "densenet121", "gpt2_12")
CASES = tuple(f"{model}:{level}" for model in MODELS for level in ("dyn", "fw", "bw"))
QUICK = ("mlp:dyn", "mlp:fw", "mlp:bw", "gpt2_4:dyn", "bert_4:dyn")

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fxminify.benchmarks.reduce", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated, `quick` for the small ones")
    parser.add_argument("--plants", default=",".join(PLANTS))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--limit", type=int, default=300, help="seconds a run may take (default 300)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print the table of what was measured")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this page, between its marks")
    args = parser.parse_args(argv)
    cases = QUICK if args.cases == "quick" else args.cases.split(",")
    torch.set_num_threads(1)
    if not args.table:
        run(cases, args.plants.split(","), args.tools.split(","), args.limit, args.out)
    measured = table([r for r in read(args.out) if r["case"] in cases])
    print(measured)
    if args.write is not None:
        args.write.write_text(put(args.write.read_text(), measured))


def bound(nodes: int, needed: int) -> float:
    """Queries that a good search takes for ``needed`` of ``nodes``: half as many again as it takes to tell them apart,
    and two for each to see that it cannot go."""
    return 1.5 * needed * math.log2(nodes / needed) + 2 * needed


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(cases: Any, plants: list[str], tools: list[str], limit: int, out: Path) -> None:
    done = {(r["case"], r["plant"], r["tool"]) for r in read(out)}
    for case in cases:
        todo = [(p, t) for p in plants for t in tools if (case, p, t) not in done]
        if not todo:
            continue
        captured = capture(case)
        for kind, tool in todo:
            found = apart(lambda kind=kind, tool=tool: _run(captured, case, kind, tool, limit))  # type: ignore[misc]  # noqa: B023
            row = {"case": case, "plant": kind, "tool": tool} | (found or {"error": f"no result within {limit} s"})
            with out.open("a") as f:
                f.write(json.dumps(row) + "\n")
            print(json.dumps({k: v for k, v in row.items() if k != "code"}), file=sys.stderr, flush=True)


def _run(captured: Graph, case: str, kind: str, tool: str, limit: int) -> Row:
    signal.alarm(limit)
    try:
        planted = plant(*captured, kind, case.split(":")[1])
    except NoPlace as exc:
        return {"skipped": str(exc)}
    start = sum(n.op.startswith("call") for n in planted.gm.graph.nodes)
    return {"start_nodes": start, "optimum": planted.optimum} | asdict(measure(tool, planted))


def table(rows: list[Row]) -> str:
    """A row for each case and plant, and the summary."""
    runs: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        runs.setdefault((row["case"], row["plant"]), {})[row["tool"]] = row
    lines = [
        "| case | plant | nodes | queries: fxminify | bound | PyTorch | ratio | "
        "final nodes/inputs: fxminify | needed | PyTorch | seconds: fxminify | PyTorch |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios, seconds, worse = [], [], []
    for (case, kind), by_tool in runs.items():
        if any("skipped" in r for r in by_tool.values()):
            continue
        ours, theirs = by_tool.get("fxminify", {}), by_tool.get("pytorch", {})
        ratio = ""
        if "queries" in ours and "queries" in theirs:
            ratios.append(theirs["queries"] / ours["queries"])
            ratio = f"{ratios[-1]:.1f}"
            seconds.append((ours["seconds"], theirs["seconds"]))
            if ours["queries"] >= theirs["queries"] or ours["nodes"] > theirs["nodes"]:
                worse.append(f"{case} {kind}")
        start, needed = ((ours or theirs).get(key, 0) for key in ("start_nodes", "optimum"))
        allowed = f"{bound(start, needed):.0f}" if needed and kind != "c2" else ""
        lines.append(
            f"| {case} | {kind} | {start} | "
            f"{_cell(ours, 'queries')} | {allowed} | {_cell(theirs, 'queries')} | {ratio} | "
            f"{_cell(ours, 'nodes')}/{_cell(ours, 'inputs')} | {needed} | "
            f"{_cell(theirs, 'nodes')}/{_cell(theirs, 'inputs')} | "
            f"{_cell(ours, 'seconds')} | {_cell(theirs, 'seconds')} |"
        )
    if ratios:
        lines += ["", *_summary(runs)]
        lines += [
            "",
            f"{len(ratios)} cases measured with both: median {statistics.median(ratios):.1f} times fewer queries "
            f"(least {min(ratios):.1f}); worse than PyTorch in queries or nodes: {', '.join(worse) or 'none'}. "
            f"Of PyTorch's seconds: median {statistics.median(one / other for one, other in seconds):.2f}, "
            f"all together {sum(one for one, _ in seconds) / sum(other for _, other in seconds):.2f}.",
        ]
    return "\n".join(lines)


def _summary(runs: dict[tuple[str, str], dict[str, Row]]) -> list[str]:
    """Medians by plant, over the cases that both reducers finished."""
    lines = [
        "| plant | cases | queries: fxminify | PyTorch | ratio | final nodes: fxminify | PyTorch | "
        "seconds: fxminify | PyTorch |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in PLANTS:
        both = [r for (_, k), r in runs.items() if k == kind and all("queries" in r.get(t, {}) for t in TOOLS)]
        if not both:
            continue
        ratio = statistics.median(r["pytorch"]["queries"] / r["fxminify"]["queries"] for r in both)
        cells = [
            f"{statistics.median(r[tool][what] for r in both):g}"
            for what in ("queries", "nodes", "seconds")
            for tool in ("fxminify", "pytorch")
        ]
        lines.append("| " + " | ".join([kind, str(len(both)), *cells[:2], f"{ratio:.1f}", *cells[2:]]) + " |")
    return lines


def _cell(row: Row, key: str) -> Any:
    return row.get(key, "-")


if __name__ == "__main__":
    main()
