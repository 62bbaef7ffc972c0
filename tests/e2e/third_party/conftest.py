"""What the tests of third-party backends share: a failure's way from an ordinary program to its verified script."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "programs" / "third_party"
Row = dict[str, Any]


class Journey:
    """``minify`` as a user types it, in a directory of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def minify(self, *args: str) -> str:
        """Standard output of the command; what it says of its work is in the message of a failing test."""
        done = subprocess.run(
            [sys.executable, "-m", "fxminify", *args], cwd=self.path, env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        print(f"$ minify {' '.join(args)}\n{done.stderr[-3000:]}", file=sys.stderr)
        return done.stdout

    def capture(self, program: str, *args: str, check: bool = False) -> list[Row]:
        """The captures that running one of the programs leaves."""
        self.minify("capture", *(["--check"] if check else []), str(PROGRAMS / program), *args)
        return self.rows()

    def run(self, *ids: int) -> list[Row]:
        self.minify("run", "--no-explain", "repro.db", *map(str, ids))
        return self.rows()

    def rows(self) -> list[Row]:
        rows: list[Row] = json.loads(self.minify("list", "--json"))
        return rows

    def script(self, id: int) -> str:
        return self.minify("repro", "repro.db", str(id))


@pytest.fixture
def journey(tmp_path: Path) -> Journey:
    return Journey(tmp_path)


def needs(backend: str) -> list[pytest.MarkDecorator]:
    """Marks for tests of a backend that an installed package brings by entry point."""
    there = entry_points(group="torch_dynamo_backends", name=backend)
    reason = f"no installed package brings the backend {backend}: pip install '.[backends]'"
    return [pytest.mark.backends, pytest.mark.skipif(not there, reason=reason)]


def calls(script: str) -> list[str]:
    """The operators that a script's function calls, as they are written and in their order."""
    tree = ast.parse(script)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    return [ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]


def imports(script: str) -> list[str]:
    """The modules that a script imports."""
    nodes = ast.parse(script).body
    return [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
