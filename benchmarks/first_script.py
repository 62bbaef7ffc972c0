"""Measure the waiting time of a person: from `minify run` to the first verified script, next to the failing
program.

    python -m fxminify.benchmarks.first_script [CASE]... [--json]

| case | program | failure | |---|---|---| | small | one block of a transformer | compile error of a planted backend
| | transformer | five blocks, 87 nodes | the same | | crash | five blocks | the process dies while it compiles | |
hang | five blocks | a compilation that never ends, `--budget 240` | | bert | a tiny BERT of transformers | a wrong
value, found by `--check` | | gpt2 | a tiny GPT-2 of transformers, Inductor | its C++ compiler refuses the code of
relu (planted) | | densenet | a small DenseNet, Inductor | pytorch/pytorch#190272: an index out of bounds | | demo |
the DenseNet of `make demo`, Inductor | it cannot lower `torch.logspace` |

A program is run by itself with an empty code cache of Inductor, and under `minify capture` with another one, which
`minify run` then finds as a program leaves it. Programs of one block and of five are captured with two failures,
and both are minified by one command. Each row is a capture. It has the seconds of wall time from the start of the
command until the modules are imported, the workers are ready, the replays and the search are done, the first script
is stored, the final script is verified, all about the capture is done, and the process has ended. The ratios are to
the program by itself; of a hang to the time limit.

The end of the table has the processor seconds of `minify list`, `show` and `repro`, the seconds of a retest for the
first case and each further one, and how much longer a query of three nodes takes in a warm worker than Inductor
itself (``--only verbs``, ``--only query``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .isolated import PROGRAMS

HERE = Path(__file__).parent
BACKEND = """
import os
import time
import torch
from torch._dynamo import register_backend

def calls(gm, name):
    return any(name in str(node.target) for node in gm.graph.nodes if node.op == "call_function")

@register_backend
def raises(gm, example_inputs):
    for name in ("gelu", "tanh"):
        if calls(gm, name):
            raise RuntimeError(f"planted: no lowering of {name}")
    return gm.forward

@register_backend
def dies(gm, example_inputs):
    if calls(gm, "gelu"):
        os.abort()
    if calls(gm, "tanh"):
        os._exit(3)
    return gm.forward

@register_backend
def hangs(gm, example_inputs):
    while calls(gm, "gelu"):
        time.sleep(0.05)
    return gm.forward
"""
TRANSFORMER = """
import sys
import torch
import planted_here

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(16) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.up, self.down = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 4.0, dim=-1)
        x = x + self.out(weights @ v)
        return x + self.down(activation(self.up(self.norms[1](x))))

activation = {"gelu": torch.nn.functional.gelu, "tanh": torch.tanh}[sys.argv[1]]
model = torch.nn.Sequential(*(Block() for _ in range(int(sys.argv[2]))))
torch.compile(model, backend=sys.argv[3])(torch.randn(2, 5, 16))
"""
#: Seconds after which a compilation counts as a hang.
HANG = 20.0


@dataclass(frozen=True, slots=True)
class Program:
    """``file`` is run with each of ``runs``, and captured with ``options``; ``minify`` are options of `minify`."""

    file: str
    runs: tuple[tuple[str, ...], ...] = ((),)
    options: tuple[str, ...] = ()
    budget: float | None = None
    limit: float | None = None


def blocks(number: int, backend: str) -> tuple[tuple[str, ...], ...]:
    return tuple((activation, str(number), backend) for activation in ("gelu", "tanh"))


CASES = {
    "small": Program("transformer.py", blocks(1, "raises")),
    "transformer": Program("transformer.py", blocks(5, "raises")),
    "crash": Program("transformer.py", blocks(5, "dies")),
    "hang": Program("transformer.py", blocks(5, "hangs")[:1], ("--timeout", str(HANG)), 240.0, HANG),
    "bert": Program("program.py", (("bert", "value"),), ("--check",)),
    "gpt2": Program("gpt2.py"),
    "densenet": Program("pooling.py"),
    "demo": Program("densenet.py"),
}
#: The columns of a row, in the order of time.
PHASES = ("imports", "workers", "replays", "search", "first", "script", "all", "end")


def minify(db: str, started: float, budget: float | None) -> None:
    """Minify what is pending in ``db``, and print a line for each phase that is over."""
    from fxminify.minifier.session import events
    from fxminify.minifier.session.minify import minify
    from fxminify.minifier.session.options import MinifyOptions

    def tell(phase: str) -> None:
        print(json.dumps([phase, round(time.time() - started, 2)]), flush=True)

    def listen(event: events.Event) -> None:
        match event:
            case events.CaptureStarted():
                tell("imports")
            case events.HeadStartBegan() | events.ReplayStarted():
                tell("workers")
            case events.ReplayFinished():
                tell("replays")
            case events.QueryAnswered(stage="verifying the script"):
                tell("search")
            case events.FirstScript():
                tell("first")
            case events.ScriptVerified():
                tell("script")
            case events.CaptureFinished():
                tell("all")

    minify(db, options=MinifyOptions(budget=budget), listener=listen)


def measure(name: str) -> dict[str, Any]:
    """Return the row of a case: seconds by phase for each of its captures, and the seconds of the program."""
    program = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        place = prepared(Path(folder))
        if program.limit is not None:
            alone = program.limit
        else:
            alone, _ = timed(place, [sys.executable, program.file, *program.runs[0]], cache="alone")
        for words in program.runs:
            timed(place, [*FXMINIFY, "capture", *program.options, program.file, *words])
        command = [sys.executable, "-m", __spec__.name, "--minify", "repro.db"]
        command += [] if program.budget is None else ["--budget", str(program.budget)]
        end, text = timed(place, [*command, "--started", str(time.time())])
    rows: list[dict[str, float]] = []
    for line in text.splitlines():
        phase, at = json.loads(line)
        if phase == "imports":
            rows.append({})
        rows[-1].setdefault(phase, at)
    rows[-1]["end"] = end
    return {"case": name, "program": alone, "captures": rows}


FXMINIFY = (sys.executable, "-m", "fxminify")


def prepared(place: Path) -> Path:
    """``place`` with all programs in it."""
    (place / "planted_here.py").write_text(BACKEND)
    (place / "transformer.py").write_text(TRANSFORMER)
    (place / "gpt2.py").write_text(PROGRAMS["gpt2"])
    (place / "pooling.py").write_text(PROGRAMS["densenet"])
    for file in (*(HERE / "outside").glob("*.py"), HERE.parent / "docs" / "demo" / "densenet.py"):
        shutil.copy(file, place)
    return place


def timed(place: Path, command: Sequence[str], cache: str = "cache") -> tuple[float, str]:
    """Seconds that ``command`` takes, and what it prints. ``cache`` is the folder of the code cache in ``place``."""
    begun = time.time()
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(place / cache)}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    return round(time.time() - begun, 2), done.stdout


def shown(row: dict[str, Any]) -> str:
    """The row in words, one line a capture."""
    program, lines = row["program"], [f"{row['case']}: the program takes {row['program']} s"]
    before = 0.0
    for capture in row["captures"]:
        times = "  ".join(f"{phase} {capture[phase]:.1f}" for phase in PHASES if phase in capture)
        first = min(capture.get("first", 1e9), capture.get("script", 1e9))
        ratios = f"first script {(first - before) / program:.2f}, all {(capture.get('all', 0) - before) / program:.2f}"
        lines.append(f"  {times}  (/ program: {ratios})")
        before = capture.get("all", 0.0)
    return "\n".join(lines)


def verbs() -> None:
    """Processor seconds of what only reads, and the seconds of retests."""
    with tempfile.TemporaryDirectory() as folder:
        place = prepared(Path(folder))
        for words in CASES["transformer"].runs:
            timed(place, [*FXMINIFY, "capture", "transformer.py", *words])
        timed(place, [*FXMINIFY, "run", "repro.db", "--no-explain"])
        alone, _ = timed(place, [sys.executable, "transformer.py", *CASES["transformer"].runs[0]])
        for verb in (["list"], ["show", "repro.db", "1"], ["repro", "repro.db", "1"]):
            seconds = median(processor(place, [*FXMINIFY, *verb]) for _ in range(7))
            print(f"minify {verb[0]}: {seconds:.2f} s of a processor")
        one, _ = timed(place, [*FXMINIFY, "retest", "repro.db", "1", "--again"])
        both, _ = timed(place, [*FXMINIFY, "retest", "repro.db", "--again"])
        print(f"a retest: {one:.1f} s, a further one {both - one:.1f} s (the program: {alone:.1f} s)")


def processor(place: Path, command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=place, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def query(rounds: int = 20) -> None:
    """Milliseconds of a query of three nodes in a warm worker, and of them those in which Inductor compiles."""
    from dataclasses import replace

    from fxminify.minifier.oracle import tasks
    from fxminify.minifier.sandbox.pool import Pool
    from fxminify.store.document.case import Case, Graph, Node, TensorSpec

    inductor = {"name": "inductor", "how": "registered", "target": "inductor"}

    def case(number: int) -> Case:
        graph = Graph(
            (
                Node("x", "placeholder", "x"),
                Node("a", "call_function", {"fn": "torch.sin"}, ({"ref": "x"},)),
                Node("b", "call_function", {"fn": "torch.cos"}, ({"ref": "a"},)),
                Node("c", "call_function", {"fn": "torch.add"}, ({"ref": "b"}, float(number))),
                Node("output", "output", "output", ({"tuple": [{"ref": "c"}]},)),
            )
        )
        spec = TensorSpec("float32", (4 + number,), (1,), init={"fn": "randn"})
        return Case(graph, ({"tensor": 0},), (spec,), backend=inductor, torch="2.13.0")

    took, beyond = [], []
    with Pool(inductor) as pool:
        for number in range(rounds + 3):
            asked = replace(case(number), compare=False)
            started = time.perf_counter()
            reply = pool.submit("observe", tasks.observe_argument(asked, "direct"), timeout=120).result()
            took.append(time.perf_counter() - started)
            compiling = reply.marks["forward"] - reply.marks["compile"]
            beyond.append(took[-1] - compiling)
    print(
        f"a query of three nodes: {1000 * median(took[3:]):.0f} ms, of which Inductor takes all but "
        f"{1000 * median(beyond[3:]):.0f} ms (medians of {rounds})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="by default all")
    parser.add_argument("--only", choices=["cases", "verbs", "query"], help="a part of it")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each case")
    parser.add_argument("--minify", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.minify:
        minify(given.minify, given.started, given.budget)
        return
    if given.only in (None, "cases"):
        for name in given.cases or CASES:
            row = measure(name)
            print(json.dumps(row) if given.json else shown(row), flush=True)
    if given.only == "verbs" or not (given.only or given.cases):
        verbs()
    if given.only == "query" or not (given.only or given.cases):
        query()


if __name__ == "__main__":
    main()
