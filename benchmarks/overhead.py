"""Measure the cost of capture for a program that does not fail, and at a failure: seconds, bytes, memory.

    python -m fxminify.benchmarks.overhead [--rounds N]

**Per call**: a compiled graph is called without the hook, with it installed, with ``check``, and with a check of
every thousandth call (the cost of a check is read off the longest calls). They take turns, call by call and in
random order, in one process, so that a busy machine slows all of them, and medians of many calls are compared.
Graphs are of several durations, from the fastest call there is to one of some milliseconds, without and with
gradients (forward and backward together). **Compile**: how much longer one compilation takes, its snapshot
included. **Training**: 10,000 steps with Adam and a check of every thousandth call take turns, in blocks of a
hundred, with 10,000 steps without the hook; the processor time of both, and the resident memory after the first
thousand steps and at the end. **At a failure**: seconds until the row is written, and the size of the file.
**Memory**: the additional memory of a process with the hook installed, after compiling a model and calling it.

Prints a table, and with ``--json`` one JSON line for each row instead.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: Of so many calls one is compared with eager, where checks are sampled.
EVERY = 1000
#: Elements of the input: the calls take from some microseconds to some milliseconds.
SIZES = (16, 1 << 14, 1 << 18, 1 << 21)


def backend(gm: Any, inputs: Any) -> Any:
    """Return the eager graph: the cheapest backend."""
    return gm.forward


def model(x: Any) -> Any:
    for _ in range(4):
        x = x.sin() * 1.5
    return x.sum()


def compiled_under(settings: dict[str, Any] | None, place: str, function: Callable[..., Any], x: Any) -> Any:
    """``function`` compiled and warmed up; the hook sees it unless ``settings`` is None."""
    import torch

    import fxminify

    if settings is not None:
        fxminify.install(place, **settings)
    namespace: dict[str, Any] = {}
    exec("def step(x, f): return f(x)", {}, namespace)  # noqa: S102  a code object of its own: each has its own cache
    step = torch.compile(namespace["step"], backend=backend)
    for _ in range(5):
        _call(step, function, x)
    fxminify.uninstall()
    return step


def _call(step: Any, function: Any, x: Any) -> None:
    result = step(x, function)
    if x.requires_grad:
        result.backward()


def per_call(rounds: int, place: str) -> list[Row]:
    import torch

    rows = []
    kinds: dict[str, dict[str, Any] | None] = {
        "without": None, "again": None, "installed": {}, "check": {"check": True},
        "sampled": {"check": f"first:2,every:{EVERY}"},
    }  # fmt: skip
    for size in SIZES:
        for gradients in (False, True):
            x = torch.ones(size, requires_grad=gradients)
            steps = {name: compiled_under(settings, place, model, x) for name, settings in kinds.items()}
            times: dict[str, list[float]] = {name: [] for name in kinds}
            began, turn = time.perf_counter(), 0
            names, shuffled = list(kinds), random.Random(0)
            while turn < 200 or (turn < rounds and time.perf_counter() - began < 20):
                for name in names:
                    start = time.perf_counter()
                    _call(steps[name], model, x)
                    times[name].append(time.perf_counter() - start)
                shuffled.shuffle(names)  # a fixed order would favour some variants
                turn += 1
            base = statistics.median(times["without"])
            row: Row = {"what": "call", "elements": size, "gradients": gradients, "microseconds": round(base * 1e6, 1)}
            for name in ("again", "installed", "check", "sampled"):
                cost = statistics.median([b - a for a, b in zip(times["without"], times[name], strict=True)])
                row[name] = round(cost * 1e6, 2)
                row[f"{name}_percent"] = round(100 * cost / base, 2)
            checked = statistics.median(sorted(times["sampled"])[-max(1, turn // EVERY) :])
            row["sampled"] = round(row["sampled"] + (checked - base) / EVERY * 1e6, 2)
            row["sampled_percent"] = round(row["sampled"] / base / 1e4, 2)
            rows.append(row | {"calls": turn})
    return rows


def network(depth: int) -> Any:
    import torch

    layers = [part for _ in range(depth) for part in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers)


def compiling(rounds: int, place: str) -> list[Row]:
    """Seconds of a first call, taking turns."""
    import torch

    import fxminify

    rows = []
    for depth in (4, 64):
        net, x = network(depth), torch.ones(8, 64)
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(max(4, min(rounds, 20))):
            for installed in (False, True) if turn % 2 else (True, False):
                torch._dynamo.reset()
                if installed:
                    fxminify.install(place)
                start = time.perf_counter()
                compiled: Callable[[Any], Any] = torch.compile(net, backend=backend)
                compiled(x)
                seconds[installed].append(time.perf_counter() - start)
                fxminify.uninstall()
        plain, hooked = (statistics.median(seconds[key]) for key in (False, True))
        rows.append({"what": "compile", "nodes": 2 * depth, "seconds": round(plain, 4), "installed": round(hooked, 4)})
    return rows


def failing(folder: Path) -> list[Row]:
    """Seconds that a failing compilation takes longer because it is captured, and what it leaves."""
    import torch

    import fxminify

    def refuses(gm: Any, inputs: Any) -> Any:
        raise RuntimeError("this backend refuses every graph")

    rows = []
    for depth, width in ((4, 64), (64, 64), (4, 2048)):
        layers = [part for _ in range(depth) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        net, x = torch.nn.Sequential(*layers), torch.randn(8, width)
        place = folder / f"{depth}-{width}.db"
        seconds = []
        for captured in (False, True):
            torch._dynamo.reset()
            if captured:
                fxminify.install(str(place))
            start = time.perf_counter()
            try:
                torch.compile(net, backend=refuses)(x)
            except Exception:  # noqa: BLE001  it fails by design
                seconds.append(time.perf_counter() - start)
            fxminify.uninstall()
        size = sum(p.stat().st_size for p in folder.glob(f"{place.name}*") if p.is_file())
        size += sum(p.stat().st_size for d in folder.glob(f"{place.name}*") if d.is_dir() for p in d.rglob("*"))
        data = sum(p.numel() * p.element_size() for p in net.parameters())
        rows.append({
            "what": "failure", "nodes": 2 * depth, "parameters_mib": round(data / 2**20, 2),
            "seconds": round(seconds[1] - seconds[0], 3), "file_mib": round(size / 2**20, 3),
        })  # fmt: skip
    return rows


MEMORY = """\
import ctypes, gc, sys, psutil, torch, fxminify
from fxminify.benchmarks.overhead import backend, network
torch.set_num_threads(1)
if sys.argv[1] != "without":
    fxminify.install(sys.argv[2], check=sys.argv[1] == "check")
net, x = network(64), torch.ones(4096, 64)
compiled = torch.compile(net, backend=backend)
for _ in range(20):
    compiled(x).sum().backward()
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
print(psutil.Process().memory_info().rss, peak)
"""


#: Steps of training, and steps of one kind at a time.
STEPS, BLOCK = 10_000, 100
TRAINING = """\
import json, sys, time, psutil, torch, fxminify
from fxminify.benchmarks.overhead import backend, network
steps, block = int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)

def trained(check):
    torch.manual_seed(0)
    net = network(16)
    optimizer = torch.optim.Adam(net.parameters())
    namespace = {"net": net}
    exec("def loss(x): return net(x).square().mean()", namespace)
    if check:
        fxminify.install(sys.argv[1], check=check)
    compiled = torch.compile(namespace["loss"], backend=backend)
    def step():
        optimizer.zero_grad()
        compiled(torch.randn(128, 64)).backward()
        optimizer.step()
    step()
    fxminify.uninstall()
    return step

kinds = {"alone": trained(""), "checked": trained("first:2,every:1000")}
seconds, resident = dict.fromkeys(kinds, 0.0), []
for done in range(0, steps, block):
    for name, step in kinds.items():
        start = time.process_time()
        for _ in range(block):
            step()
        seconds[name] += time.process_time() - start
    if done + block in (1000, steps):
        resident.append(psutil.Process().memory_info().rss)
print(json.dumps([seconds, resident]))
"""


def training(place: str) -> list[Row]:
    """Processor seconds of a training run without the hook and with sampled checks, and MiB of resident memory."""
    command = [sys.executable, "-c", TRAINING, place, str(STEPS), str(BLOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, resident = json.loads(done.stdout)
    first, last = (round(held / 2**20, 1) for held in resident)
    return [{
        "what": "training", "steps": STEPS,
        "alone": round(seconds["alone"], 2), "checked": round(seconds["checked"], 2),
        "percent": round(100 * (seconds["checked"] / seconds["alone"] - 1), 2), "mib_1000": first, "mib_last": last,
    }]  # fmt: skip


def memory(place: str) -> list[Row]:
    """Resident bytes of three processes that do the same: at the end, and at the most."""
    held: dict[str, list[float]] = {}
    for kind in ("without", "installed", "check"):
        done = subprocess.run([sys.executable, "-c", MEMORY, kind, place], capture_output=True, text=True, check=True)
        held[kind] = [int(word) / 2**20 for word in done.stdout.split()]
    rows = []
    for index, when in enumerate(("at the end", "at the most")):
        more = {kind: round(held[kind][index] - held["without"][index], 1) for kind in ("installed", "check")}
        rows.append({"what": "memory", "resident": when, "mib": round(held["without"][index], 1), **more})
    return rows


def table(rows: list[Row]) -> str:
    lines = []
    for what in dict.fromkeys(row["what"] for row in rows):
        chosen = [{k: v for k, v in row.items() if k != "what"} for row in rows if row["what"] == what]
        lines += ["", f"**{what}**", "", "| " + " | ".join(chosen[0]) + " |", "|" + "---|" * len(chosen[0])]
        lines += ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in chosen]
    return "\n".join(lines[1:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fxminify.benchmarks.overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000, help="calls of each kind (default 5000, at most 20 s)")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        place = str(Path(folder) / "healthy.db")
        rows = [
            *per_call(options.rounds, place),
            *compiling(options.rounds, place),
            *training(place),
            *failing(Path(folder)),
        ]
        rows += memory(place)
    print("\n".join(map(json.dumps, rows)) if options.json else table(rows))


if __name__ == "__main__":
    main()
