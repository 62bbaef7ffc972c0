"""`minify repro -o`: the file, and the command that runs it."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from desks import Desk
from indexes import add, chain, failing, minify

from fxminify.minifier.commands.repro import run_command
from fxminify.store.index import Index

SCRIPT = "import torch\n\ntorch.compile(torch.sin)(torch.ones(2))\n"


@pytest.mark.parametrize(
    ("module", "output", "command"),
    [
        ("lib", "out.py", "PYTHONPATH=lib python out.py"),
        ("lib", "lib/out.py", "python lib/out.py"),
        ("my lib", "out.py", "PYTHONPATH='my lib' python out.py"),
        ("", "out.py", "python out.py"),
    ],
)
def test_the_command_names_the_directory_of_the_backend_where_python_needs_it(
    desk: Desk, module: str, output: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}")
    case = chain(["sin"])
    if module:
        (desk.path / module).mkdir()
        case = replace(case, backend={**case.backend, "search_path": [str(desk.path / module)]})
    with Index.open(str(desk.db), create=True) as index:
        minify(index, add(index, case, failing("no sin")), case, script=SCRIPT)
    done = desk.invoke("repro", "repro.db", 1, "-o", output)
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert done.stderr.splitlines()[-1] == f"minify: {output} is written; run it: {command}"
    assert (desk.path / output).read_text() == SCRIPT


def test_the_command_names_the_python_that_has_torch_where_a_shell_finds_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    named, script = shlex.split(run_command(Path("repro.py"), []))
    assert (Path(named).resolve(), script) == (Path(sys.executable).resolve(), "repro.py")
