"""Shared parts of the tests of backends: Python in a process of its own, and a running script."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs" / "backends"


def run_python(*argv: object, cwd: Path, path: tuple[Path, ...] = ()) -> str:
    """Standard output of ``python argv`` in ``cwd`` with only ``path`` on PYTHONPATH."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join(map(str, path))
    done = subprocess.run(
        [sys.executable, *map(str, argv)], cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """``script(text)``: the module of a running script with this text, as ``__main__`` of this process."""

    def load(text: str) -> ModuleType:
        file = tmp_path / "work.py"
        file.write_text(text)
        linecache.clearcache()
        module = ModuleType("__main__")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(text, str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102
        return module

    return load
