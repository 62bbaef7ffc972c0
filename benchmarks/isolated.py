"""A real Inductor failure, minified by PyTorch's isolated minifier and by `minify run`, one after the other.

    python -m fxminify.benchmarks.isolated [--case mlp|gpt2|densenet] [--keep DIRECTORY] [--tools fxminify,pytorch]

| case | model | failure | |---|---|---| | mlp | a multilayer perceptron of nine layers | planted | | gpt2 | a GPT-2
of four layers with relu, 318 nodes | planted | | densenet | a small DenseNet with fractional max pooling |
pytorch/pytorch#190272, as it is |

The planted one is Inductor's own (``torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"``:
the C++ compiler rejects the code for relu). The same program gives both tools their capture; then each starts with
an empty code cache. The times are waiting times of a person: ``minifier_launcher.py`` with isolation, its default,
and ``minify run``, which also runs its script three times in fresh processes and finds out which parts of the
result matter. Processor seconds are a sum over all processes: unlike the other times they hardly depend on the load
of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

PLANTED = """\
import torch
import torch._inductor.config as config

config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
config.compile_threads = 1
torch.set_num_threads(1)
torch.manual_seed(0)
"""
MLP = """\
layers = []
for _ in range(9):
    layers += [torch.nn.Linear(32, 32), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers)
torch.compile(model)(torch.randn(32, 32)).sum().backward()
"""
GPT2 = """\
from transformers import GPT2Config, GPT2LMHeadModel

shape = {"n_layer": 4, "n_head": 4, "n_embd": 64, "vocab_size": 256, "n_positions": 64}
rest = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "use_cache": False}
model = GPT2LMHeadModel(GPT2Config(activation_function="relu", **shape, **rest)).train()
torch.compile(lambda tokens: model(tokens).logits)(torch.randint(0, 256, (2, 32))).sum().backward()
"""
DENSENET = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, x):
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


layers, channels = [nn.Conv2d(3, 8, 3, padding=1)], 8
for end in (nn.AvgPool2d(2), nn.FractionalMaxPool2d(-1, output_size=(4, 4)), nn.Identity()):
    for _ in range(6):
        layers.append(Layer(channels))
        channels += 4
    layers.append(end)
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)).eval()
with torch.no_grad():
    torch.compile(model)(torch.randn(2, 3, 16, 16))
"""
PROGRAMS = {"mlp": PLANTED + MLP, "gpt2": PLANTED + GPT2, "densenet": DENSENET}


@dataclass(frozen=True, slots=True)
class Done:
    """``seconds`` on the clock, and of the processors. ``ended`` is False where the limit ended it."""

    seconds: float
    processor: float
    output: str
    ended: bool

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"seconds": round(self.seconds, 1), "processor": round(self.processor, 1)}
        return row if self.ended else row | {"ended": False}


def run(command: list[str], place: Path, extra: Mapping[str, str], limit: float) -> Done:
    """Run ``command`` in ``place``, with a new Inductor cache."""
    with tempfile.TemporaryDirectory(prefix="cache-") as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", **extra}
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(
            command, cwd=place, env=environment, stdout=PIPE, stderr=STDOUT, text=True, start_new_session=True
        )
        try:
            output, ended = process.communicate(timeout=limit)[0], True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, ended = process.communicate()[0], False
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Done(time.monotonic() - started, processor, output, ended)


def pytorch(program: str, place: Path, limit: float) -> dict[str, Any]:
    """The documented way: ``TORCHDYNAMO_REPRO_AFTER=aot``, then the launcher that it writes."""
    place.mkdir()
    (place / "program.py").write_text(program)
    debug = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCH_COMPILE_DEBUG_DIR": str(place)}
    run([sys.executable, "program.py"], place, debug, limit)
    launcher = next(place.rglob("minifier_launcher.py"))
    done = run([sys.executable, str(launcher)], place, {}, limit)
    script = "".join(path.read_text() for path in place.rglob("repro.py"))
    queries = len(list(place.rglob("isolate/*.py")))
    return done.row() | {"queries": queries, "nodes": len(re.findall(r"= torch\.ops\.", script))}


def ours(program: str, place: Path, limit: float) -> dict[str, Any]:
    """``minify capture``, then ``minify run`` with a worker for each processor."""
    place.mkdir()
    (place / "program.py").write_text(program)
    minify = [sys.executable, "-m", "fxminify"]
    run([*minify, "capture", "program.py"], place, {}, limit)
    jobs = str(min(4, len(os.sched_getaffinity(0))))
    done = run([*minify, "run", "--jobs", jobs], place, {}, limit)
    listed = subprocess.run([*minify, "list", "--json"], cwd=place, capture_output=True, text=True, check=True)
    (row,) = (r for r in json.loads(listed.stdout) if r["parent"] is None)
    return done.row() | {"queries": row["queries"], "nodes": row["nodes_after"], "state": row["state"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fxminify.benchmarks.isolated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", choices=PROGRAMS, default="mlp")
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
                rows[tool] = measure(PROGRAMS[options.case], root / tool, options.limit)
                print(f"{tool:8} {json.dumps(rows[tool])}", flush=True)
    if len(rows) == 2:
        for what in ("seconds", "processor"):
            least = "" if rows["pytorch"].get("ended", True) else "over "
            print(f"{what}: {least}{rows['pytorch'][what] / rows['fxminify'][what]:.1f} times")


if __name__ == "__main__":
    main()
