"""What the tests of backends share: a fresh index for the hook, and backends re-created in another process."""

from __future__ import annotations

import fcntl
import json
import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

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


class Recreated(Protocol):
    """``recreated(program, *path)``: every backend of ``program``, its spec, and what came of re-creating it."""

    def __call__(self, program: str, *path: Path) -> dict[str, Any]: ...


@pytest.fixture(scope="session")
def recreated(tmp_path_factory: pytest.TempPathFactory) -> Recreated:
    """A program runs once, for all of the processes in which pytest-xdist runs tests."""
    known: dict[str, dict[str, Any]] = {}
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def result(program: str, *path: Path) -> dict[str, Any]:
        empty = tmp_path_factory.mktemp("empty")
        recorded = json.loads(run_python(PROGRAMS / "app" / program, cwd=empty, path=(PROGRAMS, *path)))
        file = tmp_path_factory.mktemp("cases") / "cases.json"
        file.write_text(json.dumps({n: c for n, c in recorded.items() if not c["problem"]}))
        again = json.loads(run_python(PROGRAMS / "recorder.py", "backends", file, *path, cwd=empty))
        return {name: {**case, **again.get(name, {})} for name, case in recorded.items()}

    def get(program: str, *path: Path) -> dict[str, Any]:
        if program not in known:
            with (shared / f"{program}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                stored = shared / f"{program}.json"
                if not stored.exists():
                    stored.write_text(json.dumps(result(program, *path)))
                known[program] = json.loads(stored.read_text())
        return known[program]

    return get


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
