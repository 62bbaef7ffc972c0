"""Shared parts of the tests of the command line: the command itself, as a user types it, and a folder to work in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result

from fxminify.cli import main

PROGRAMS = Path(__file__).parents[1] / "programs" / "cli"
#: Verbs that read what is stored: see `invoke`.
READING = ("history", "list", "show")


def invoke(folder: Path, *args: object) -> Result:
    """`minify` in this process, for verbs that neither load torch nor ask who is asking: that is much quicker."""
    with contextlib.chdir(folder):
        return CliRunner().invoke(main, [str(a) for a in args], prog_name="minify")


class Desk:
    """A directory with the planted backends and programs, and ``minify`` in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = path / "repro.db"
        for program in PROGRAMS.glob("*.py"):
            shutil.copy(program, path)

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment of a user with a separate home and key, to whom ``python`` is this Python."""
        inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COLUMNS")}
        inherited["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
        return {**inherited, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(self.path / "state"), **changes}

    def command(self, *args: object) -> list[str]:
        return [sys.executable, "-m", "fxminify", *map(str, args)]

    def minify(self, *args: object, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.command(*args), **changes)

    def run(self, command: Sequence[str], **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.path, env=self.environment(**changes), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=900, check=False,
        )  # fmt: skip

    def invoke(self, *args: object) -> Result:
        return invoke(self.path, *args)

    def json(self, *args: object, **changes: str) -> Any:
        """Return the parsed output of ``minify args --json``. A verb of `READING` runs in this process."""
        quick = args[0] in READING and not changes
        done = self.invoke(*args, "--json") if quick else self.minify(*args, "--json", **changes)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def row(self, id: int = 1) -> dict[str, Any]:
        return next(row for row in self.json("list", self.db.name) if row["id"] == id)


class MakeDesk(Protocol):
    """``make_desk(name...)``: a new desk; what the planted backends ``name`` do to the program is in its database."""

    def __call__(self, *names: str, options: Sequence[str] = ()) -> Desk: ...


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture(scope="session")
def make_desk(tmp_path_factory: pytest.TempPathFactory) -> MakeDesk:
    def make(*names: str, options: Sequence[str] = ()) -> Desk:
        desk = Desk(tmp_path_factory.mktemp("desk"))
        if names:
            done = desk.minify("capture", *options, "program.py", *names)
            assert desk.db.exists(), done.stderr
        return desk

    return make
