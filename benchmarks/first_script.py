"""What a person waits for: from `minify run` to the first verified script, beside what the failing program takes.

    python -m fxminify.benchmarks.first_script [CASE]...

A case is a program with a planted backend. The program is run by itself and under `minify capture`, with two failures,
and both are minified by one command. Each row is a capture, with the seconds of wall time from the start of the command
until the modules are imported, the workers are ready, the replays and the search are done, the first script is stored
(mostly that of the first guess), the final script is verified, all about the capture is done, and the process has
ended. On a busy machine compare the ratios.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BACKEND = """
import os
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
"""
PROGRAM = """
import sys
import torch
import planted

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

activation = {{"gelu": torch.nn.functional.gelu, "tanh": torch.tanh}}[sys.argv[1]]
model = torch.nn.Sequential(*(Block() for _ in range({blocks})))
torch.compile(model, backend="{backend}")(torch.randn(2, 5, 16))
"""
CASES = {"small": (1, "raises"), "transformer": (5, "raises"), "crash": (5, "dies")}
#: The columns of a row, in the order of time.
PHASES = ("imports", "workers", "replays", "search", "first", "script", "all", "end")


def minify(db: str, started: float) -> None:
    """Minify what is pending in ``db``, and print a line for each phase that is over."""
    from fxminify.minifier.session import events
    from fxminify.minifier.session.minify import minify

    def tell(phase: str) -> None:
        print(json.dumps([phase, round(time.time() - started, 2)]), flush=True)

    def listen(event: events.Event) -> None:
        match event:
            case events.CaptureStarted():
                tell("imports")
            case events.ReplayStarted():
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

    minify(db, listener=listen)


def measure(blocks: int, backend: str) -> dict[str, Any]:
    """The row of one case: seconds by phase for its first and its second capture, and those of the program."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "planted.py").write_text(BACKEND)
        (place / "program.py").write_text(PROGRAM.format(blocks=blocks, backend=backend))
        program, _ = _run(place, [sys.executable, "program.py", "gelu"])
        for activation in ("gelu", "tanh"):
            _run(place, [sys.executable, "-m", "fxminify", "capture", "program.py", activation])
        command = [sys.executable, "-m", __spec__.name, "--minify", "repro.db", "--started", str(time.time())]
        end, text = _run(place, command)
    rows: list[dict[str, float]] = []
    for line in text.splitlines():
        phase, at = json.loads(line)
        if phase == "imports":
            rows.append({})
        rows[-1][phase] = at
    rows[-1]["end"] = end
    return {"program": program, "captures": rows}


def _run(place: Path, command: list[str]) -> tuple[float, str]:
    started = time.time()
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    return round(time.time() - started, 2), done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="by default all")
    parser.add_argument("--minify", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.minify:
        minify(arguments.minify, arguments.started)
        return
    for case in arguments.cases or CASES:
        row = measure(*CASES[case])
        program = row["program"]
        print(f"{case}: the program takes {program} s")
        for capture in row["captures"]:
            times = "  ".join(f"{phase} {capture[phase]:.1f}" for phase in PHASES if phase in capture)
            first = capture.get("first", capture.get("script", 0))
            print(f"  {times}  (first script / program: {first / program:.1f})")


if __name__ == "__main__":
    main()
