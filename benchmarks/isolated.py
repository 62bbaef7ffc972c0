"""One real Inductor failure, minified by PyTorch's isolated minifier and by `minify run`, one after the other.

    python -m fxminify.benchmarks.isolated [--keep DIRECTORY] [--tools fxminify,pytorch]

A multilayer perceptron of nine layers and a planted failure of Inductor's own
(``torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"``: the C++ compiler rejects the code for
relu). The same program gives both tools their capture; then each starts with an empty code cache. Timed is what a
person waits for: ``minifier_launcher.py`` with isolation, its default, and ``minify run``, which also runs the script
it writes three times in fresh processes and finds out what of the result matters. Processor seconds are those of all
processes together: unlike the others they hardly depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = """\
import torch
import torch._inductor.config as config

config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
config.compile_threads = 1
torch.set_num_threads(1)
torch.manual_seed(0)
layers = []
for _ in range(9):
    layers += [torch.nn.Linear(32, 32), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers)
torch.compile(model)(torch.randn(32, 32)).sum().backward()
"""


@dataclass(frozen=True, slots=True)
class Done:
    """``seconds`` on the clock, and of the processors."""

    seconds: float
    processor: float
    output: str

    def row(self) -> dict[str, Any]:
        return {"seconds": round(self.seconds, 1), "processor": round(self.processor, 1)}


def run(command: list[str], place: Path, extra: Mapping[str, str], limit: float) -> Done:
    """``command`` in ``place``, with an Inductor cache that nobody has used."""
    with tempfile.TemporaryDirectory(prefix="cache-") as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", **extra}
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Done(time.monotonic() - started, processor, done.stdout + done.stderr)


def pytorch(place: Path, limit: float) -> dict[str, Any]:
    """The documented way: ``TORCHDYNAMO_REPRO_AFTER=aot``, then the launcher that it writes."""
    place.mkdir()
    (place / "program.py").write_text(PROGRAM)
    debug = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCH_COMPILE_DEBUG_DIR": str(place)}
    run([sys.executable, "program.py"], place, debug, limit)
    launcher = next(place.rglob("minifier_launcher.py"))
    done = run([sys.executable, str(launcher)], place, {}, limit)
    script = next(place.rglob("repro.py")).read_text()
    queries = len(list(place.rglob("isolate/*.py")))
    return done.row() | {"queries": queries, "nodes": len(re.findall(r"= torch\.ops\.", script))}


def ours(place: Path, limit: float) -> dict[str, Any]:
    """``minify capture``, then ``minify run`` with a worker for each processor."""
    place.mkdir()
    (place / "program.py").write_text(PROGRAM)
    minify = [sys.executable, "-m", "fxminify"]
    run([*minify, "capture", "program.py"], place, {}, limit)
    jobs = str(min(4, len(os.sched_getaffinity(0))))
    done = run([*minify, "run", "--json", "--jobs", jobs], place, {}, limit)
    rows = json.loads(done.output[done.output.index("[\n") :])
    (row,) = (r for r in rows if r["parent"] is None)
    return done.row() | {"queries": row["queries"], "nodes": row["nodes_after"], "state": row["state"]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fxminify.benchmarks.isolated", description=__doc__)
    parser.add_argument("--keep", type=Path, help="work here, and leave everything")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one step")
    parser.add_argument("--tools", default="fxminify,pytorch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isolated-") as temporary:
        root = options.keep or Path(temporary)
        root.mkdir(exist_ok=True)
        rows = {}
        for tool, measure in (("fxminify", ours), ("pytorch", pytorch)):
            if tool in options.tools.split(","):
                rows[tool] = measure(root / tool, options.limit)
                print(f"{tool:8} {json.dumps(rows[tool])}", flush=True)
    if len(rows) == 2:
        for what in ("seconds", "processor"):
            print(f"{what}: {rows['pytorch'][what] / rows['fxminify'][what]:.1f} times")


if __name__ == "__main__":
    main()
