"""A file of real captures that has a row in every table, and trials on changed copies of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import indexes
import pytest
from bombs import BOMBS, case
from desks import Desk, MakeDesk

from fxminify.store.index import Index, RetestResult, State, StepInfo, TokenScope

TRIALS = Path(__file__).parents[1] / "shared" / "hostile_trials.py"
Trials = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def full(make_desk: MakeDesk) -> Desk:
    """A desk whose file has captures of real graphs, and of the first two of them all that a run, a retest, an
    ablation and an explanation leave behind."""
    desk = make_desk("fuses", "no_kernel", "two_bugs")
    with Index.open(str(desk.db)) as index:
        for id in (1, 2):
            _complete(index, id)
        index.tokens.new("job", [TokenScope.SUBMIT])
        index.triage.label(2, add=["p1"])
        index.triage.merge(2, 1)
    return desk


def _complete(index: Index, id: int) -> None:
    capture, case = index.captures.get(id), index.captures.case(id)
    blobs = index.blobs.view(case.storages)
    reduction = index.reductions.begin(id, {"runs": 3})
    for number in (1, 2):
        index.verdicts.asked(reduction.id, f"key {number}", "nodes")
        index.verdicts.answered(reduction.id, f"key {number}", "same", "v1:0", 0.5, "")
        step = StepInfo(number, "nodes", f"key {number}", case.graph.count, 1, queries=number, difference="- a\n+ b")
        index.reductions.add_step(reduction.id, step, case, blobs)
    nodes = case.graph.count
    index.reductions.finish(reduction.id, queries=2, nodes_before=nodes, nodes_after=nodes, seconds=1.0)
    script = '"""It fails."""\n\nimport torch\n\nraise RuntimeError("planted")\n'
    index.repros.save(id, "script", script, verified=3, runs=3, log="", case=case, blobs=blobs)
    index.captures.set_state(id, State.VERIFIED)
    size = {"aspect": "size", "name": "x.shape[0]", "now": "8", "answers": [{"value": "1", "outcome": "pass"}]}
    rows = [{"backend": "eager", "layer": "Dynamo", "result": "passes", "message": "", "seconds": 0.1}]
    failure = json.loads(json.dumps(capture.to_json()["failure"], default=str))
    installed = {"local": ["planted"], "packages": [], "system": [["OS", "Linux"]]}
    installed |= {"platform": "Linux x86_64", "python": "3.11.7", "torch": "2.13.0"}
    record = {"backend": "", "failure": failure, "installed": installed, "inputs": 1, "nodes": 6, "queries": 2,
              "platform": "Linux", "python": "3.11.7", "replays": "", "runs": "3 of 3", "summed": False,
              "tentative": "", "timeout": 10, "torch": "2.13.0"}  # fmt: skip
    picture = {"name": "kernel.py", "text": "x = 1\n", "picture": "", "error": ""}
    for kind, content in {
        "explanation": {"features": [size], "asked": 1, "complete": True, "reduction": reduction.id},
        "ablation": {"rows": rows, "enters": "the backend"},
        "first-node": {"node": case.graph.nodes[-2].name, "position": 1, "of": nodes},
        "rest": {"without": ["torch.relu"], "nodes": 2, "outcome": "pass"},
        "illustrations": {"heading": "Kernels", "items": [picture]},
        "comes-from": "program.py:12 model",
        "record": record,
    }.items():
        index.artifacts.save(id, kind, content)
    index.retests.add(id, capture.backend, RetestResult.FAILING, message="", signature="", shown=2, runs=2,
                      seconds=1.0, versions={"torch": "2.13.0"})  # fmt: skip


@pytest.fixture
def bomb(full: Desk, tmp_path: Path) -> Callable[[str], Path]:
    """``bomb(shape)``: a copy of the file with one more capture, of a graph of `bombs.BOMBS`, that has all the rest."""

    def plant(shape: str) -> Path:
        path = tmp_path / "bomb.db"
        shutil.copyfile(full.db, path)
        with Index.open(str(path)) as index:
            _complete(index, indexes.add(index, case(BOMBS[shape]()), indexes.failing("planted")))
        return path

    return plant


@pytest.fixture
def trials(full: Desk, tmp_path: Path) -> Trials:
    """``trials(kind, seed, count)``: the answer of `hostile_trials` about changed copies of the file."""

    def run(kind: str, seed: int, count: int, db: Path = full.db) -> dict[str, Any]:
        command = [sys.executable, str(TRIALS), kind, str(db), str(tmp_path), str(seed), str(count)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run
