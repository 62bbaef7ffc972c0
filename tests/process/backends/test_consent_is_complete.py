"""What a person agreed to is all that is run: every code object that our loader executes is in the list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIB = Path(__file__).parents[2] / "programs" / "backends" / "lib"
WATCH = """
import importlib, json, sys
from fxminify.backends.provenance import libraries
from fxminify.backends.provenance.spec import BackendSpec
import torch

doc = json.loads(sys.argv[1])
executed = []

def hook(event, args):
    if event == "exec" and armed:
        frame = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None and "/backends/provenance/" in frame.f_code.co_filename:
            executed.append(args[0].co_filename)

armed = False
sys.addaudithook(hook)
spec = BackendSpec.from_json(doc["backend"])
lines = [*libraries.executes(doc["imports"]), *spec.executes()]
armed = True
libraries.load(doc["imports"])
spec.load()
spec.options_dict()
armed = False
names = {getattr(m, "__file__", None): n for n, m in list(sys.modules.items())}
print(json.dumps({"lines": lines, "executed": [names.get(file, file) for file in executed]}))
"""
PATH = {"search_path": [str(LIB)]}
SOURCE = {"imports": [], "text": "LEVEL = 2\n\ndef f(gm, inputs):\n    return gm.forward\n", "file": "train.py"}


@pytest.mark.parametrize(
    ("backend", "imports"),
    [
        ({"name": "team_plain", "target": "team_plain", "module": "team.plugin", **PATH}, []),
        ({"name": "e", "target": "e", "entry_point": "team.entry:compile_entry", "distribution": "team", **PATH}, []),
        ({"name": "f", "target": {"embedded": "f"}, "source": SOURCE}, []),
        (
            {"name": "f", "target": {"call": {"func": {"import": ["functools", "partial"]},
                                              "args": [{"embedded": "f"}], "kwargs": {}}}, "source": SOURCE,
             "options": {"dict": [["plugin", {"module": "team.plugin"}]]}, **PATH},
            [{"module": "team.ops", "ops": [], **PATH}],
        ),
    ],
)  # fmt: skip
def test_all_that_is_executed_was_listed(backend: dict[str, Any], imports: list[dict[str, Any]]) -> None:
    doc = json.dumps({"backend": backend, "imports": imports})
    done = subprocess.run([sys.executable, "-c", WATCH, doc], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    executed = [name for name in found["executed"] if name.partition(".")[0] not in ("torch", "fxminify")]
    assert executed != []
    listed = [line for line in found["lines"] if line.startswith(("imports ", "loads ", "runs "))]
    for name in executed:  # a package is imported with its module
        assert any(name in line for line in listed), found
