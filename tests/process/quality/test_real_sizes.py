"""A wrong backend of a model of 354 million parameters is found and minified in little more memory than the model has.

`benchmarks/sizes.py` measures more, and time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fxminify.store.index import Index, State
from fxminify.store.index.captures import CaptureInfo

#: Layers of 16.8 million parameters each, 67 MB in float32.
WIDTH, LAYERS = 4096, 21
WEIGHTS = LAYERS * WIDTH * (WIDTH + 1) * 4
#: torch and its libraries, and one weight in float64.
BESIDE = 900 << 20

PROGRAM = """
import sys
import torch

width, layers = int(sys.argv[1]), int(sys.argv[2])


def wrong(gm, inputs):
    node = [node for node in gm.graph.nodes if "tanh" in str(node.target)][-2]
    with gm.graph.inserting_after(node):
        other = gm.graph.call_function(torch.mul, (node, 1.05))
    node.replace_all_uses_with(other, delete_user_cb=lambda user: user is not other)
    gm.recompile()
    return gm.forward


torch.set_num_threads(2)
torch.manual_seed(0)
layers = [layer for _ in range(layers) for layer in (torch.nn.Linear(width, width), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers)
with torch.no_grad():
    print(torch.compile(model, backend=wrong)(torch.randn(1, width)).shape)
"""


def minify(folder: Path, *args: str, memory: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``minify`` with at most ``memory`` bytes of private data in each process."""

    def limit() -> None:
        if memory:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    command = [sys.executable, "-m", "fxminify", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, preexec_fn=limit, check=False)


def captured(folder: Path, model: Sequence[int], memory: int) -> list[CaptureInfo]:
    """The captures of the program with a model of this width and number of layers, each call compared with eager."""
    (folder / "program.py").write_text(PROGRAM)
    done = minify(folder, "capture", "--check", "--db", "repro.db", "program.py", *map(str, model), memory=memory)
    assert f"torch.Size([1, {model[0]}])" in done.stdout, done.stderr
    if not os.path.exists(folder / "repro.db"):
        return []
    with Index.open(str(folder / "repro.db")) as index:
        return index.captures.find()


@pytest.mark.slow
def test_354_million_parameters_under_a_hard_limit_of_memory(tmp_path: Path) -> None:
    """A second copy of the weights does not fit: each process may have their size and half of it more."""
    (found,) = captured(tmp_path, (WIDTH, LAYERS), WEIGHTS * 3 // 2 + BESIDE)
    assert (found.kind, found.phase) == ("divergence", "forward")
    with Index.open(str(tmp_path / "repro.db")) as index:
        kept = index.blobs.view(index.captures.case(found.id).storages)
        assert sum(kept.size(key) for key in kept) <= 1 << 30
    assert len(str(found.provenance["left_out"]).split("; ")) == LAYERS - (1 << 30) // (WIDTH * WIDTH * 4) + 1
    done = minify(tmp_path, "run", "repro.db", "--memory", f"{(WEIGHTS * 3 // 2 + BESIDE) / 2**30:.2f}")
    with Index.open(str(tmp_path / "repro.db")) as index:
        row = next(row for row in index.captures.find() if row.id == found.id)
        assert (row.state, row.nodes_after) == (State.VERIFIED, 2), done.stderr  # it needs the last tanh but one
