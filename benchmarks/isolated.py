"""One real Inductor failure, minified by PyTorch's isolated minifier and by `minify run`, one after the other.

    python -m fxminify.benchmarks.isolated [--keep DIRECTORY]

A multilayer perceptron of nine layers and a planted failure of Inductor's own
(``torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"``: the C++ compiler rejects the code for
relu). The same program gives both tools their capture; then each starts with an empty code cache. Timed is what a
person waits for: ``minifier_launcher.py`` with isolation, its default, and ``minify run``, which also runs the script
it writes three times in fresh processes. ``cpp`` compiles take most of both, so a slower disk or compiler changes the
times more than the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
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


def run(command: list[str], place: Path, extra: Mapping[str, str], limit: float) -> tuple[float, str]:
    """Seconds and output of ``command`` in ``place``, with an Inductor cache that nobody has used."""
    with tempfile.TemporaryDirectory(prefix="cache-") as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", **extra}
        started = time.monotonic()
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
        return time.monotonic() - started, done.stdout + done.stderr


def pytorch(place: Path, limit: float) -> dict[str, Any]:
    """The documented way: ``TORCHDYNAMO_REPRO_AFTER=aot``, then the launcher that it writes."""
    place.mkdir()
    (place / "program.py").write_text(PROGRAM)
    debug = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCH_COMPILE_DEBUG_DIR": str(place)}
    run([sys.executable, "program.py"], place, debug, limit)
    launcher = next(place.rglob("minifier_launcher.py"))
    seconds, _ = run([sys.executable, str(launcher)], place, {}, limit)
    script = next(place.rglob("repro.py")).read_text()
    queries = len(list(place.rglob("isolate/*.py")))
    return {"seconds": round(seconds, 1), "queries": queries, "nodes": len(re.findall(r"= torch\.ops\.", script))}


def ours(place: Path, limit: float) -> dict[str, Any]:
    """``minify capture``, then ``minify run``."""
    place.mkdir()
    (place / "program.py").write_text(PROGRAM)
    minify = [sys.executable, "-m", "fxminify"]
    run([*minify, "capture", "program.py"], place, {}, limit)
    seconds, output = run([*minify, "run", "--json"], place, {}, limit)
    rows = json.loads(output[output.index("[\n") :])
    (row,) = (r for r in rows if r["parent"] is None)
    return {"seconds": round(seconds, 1), "queries": row["queries"], "nodes": row["nodes_after"], "state": row["state"]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fxminify.benchmarks.isolated", description=__doc__)
    parser.add_argument("--keep", type=Path, help="work here, and leave everything")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one step")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isolated-") as temporary:
        root = options.keep or Path(temporary)
        mine = ours(root / "fxminify", options.limit)
        print(f"minify run:         {json.dumps(mine)}", flush=True)
        theirs = pytorch(root / "pytorch", options.limit)
        print(f"PyTorch's minifier: {json.dumps(theirs)}", flush=True)
    print(f"ratio of seconds: {theirs['seconds'] / mine['seconds']:.1f}")


if __name__ == "__main__":
    main()
