"""`minify catch`: one command from a failing program to its script, which runs by the command that is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from desks import Desk, MakeDesk

BACKEND = """
import torch
from torch._dynamo import register_backend


@register_backend
def without_relu(gm, inputs):
    if any(node.target is torch.relu for node in gm.graph.nodes):
        raise NotImplementedError("no lowering for relu")
    return gm.forward
"""
PROGRAM = """
import sys
import torch

sys.path.insert(0, "lib")
import without_relu

try:
    torch.compile(lambda x: torch.relu(torch.tanh(x) + 1).sum(), backend="without_relu")(torch.randn(2, 4))
except Exception:
    if sys.argv[1:] == ["--raise"]:
        raise
"""


@pytest.fixture(scope="module")
def caught(make_desk: MakeDesk) -> tuple[Desk, subprocess.CompletedProcess[str]]:
    """A desk after ``minify catch`` of `PROGRAM`, and what that said."""
    desk = make_desk()
    (desk.path / "lib").mkdir()
    (desk.path / "lib" / "without_relu.py").write_text(BACKEND)
    (desk.path / "program.py").write_text(PROGRAM)
    return desk, desk.minify("catch", "-o", "scripts", "program.py")


def test_a_program_ends_as_a_script_that_the_printed_command_runs(
    caught: tuple[Desk, subprocess.CompletedProcess[str]],
) -> None:
    desk, done = caught
    assert done.returncode == 1, done.stderr
    script = (desk.path / "scripts" / "repro_1.py").read_text()
    assert "torch.relu(" in script
    assert "tanh" not in script
    assert done.stdout.endswith(script)
    assert "minify: captured 1 failure (1 compile error)\n" in done.stderr
    said = "minify: scripts/repro_1.py shows failure 1: PYTHONPATH=lib python scripts/repro_1.py"
    assert done.stderr.splitlines()[-1] == said
    command = said.partition("failure 1: ")[2].replace(" python ", f" {sys.executable} ")
    ran = subprocess.run(command, shell=True, cwd=desk.path, capture_output=True, text=True, check=False)
    assert (ran.returncode, "no lowering for relu" in ran.stderr) == (1, True)


@pytest.mark.slow
def test_a_script_that_is_there_is_not_overwritten(caught: tuple[Desk, subprocess.CompletedProcess[str]]) -> None:
    desk, _ = caught
    script = (desk.path / "scripts" / "repro_1.py").read_text()
    again = desk.minify("catch", "-o", "scripts", "program.py", "--raise")
    assert again.returncode == 1
    assert "scripts/repro_1.py shows failure 1" in again.stderr  # it is the same script
    assert (desk.path / "scripts" / "repro_1.py").read_text() == script


def test_show_names_the_script_that_was_written(caught: tuple[Desk, subprocess.CompletedProcess[str]]) -> None:
    desk, _ = caught
    shutil.copy(desk.path / "scripts" / "repro_1.py", desk.path / "repro_1.py")
    (desk.path / "repro_2.py").write_text("# another script\n")
    said = desk.minify("show", "repro.db", 1).stdout
    assert re.search(r"^ +script +repro_1\.py$", said, re.MULTILINE), said
    (desk.path / "repro_1.py").unlink()
    said = desk.minify("show", "repro.db", 1).stdout
    assert re.search(r"^ +script +minify repro repro\.db 1 -o repro\.py$", said, re.MULTILINE), said


def test_where_nothing_fails_the_exit_code_is_that_of_the_program(desk: Desk) -> None:
    (desk.path / "program.py").write_text("import sys\nsys.exit(7)\n")
    done = desk.minify("catch", "program.py")
    assert (done.returncode, done.stdout, desk.db.exists()) == (7, "", False)


ONCE = """
from pathlib import Path
import torch

def once(gm, inputs):
    if not (done := Path("DONE")).exists():
        done.touch()
        raise RuntimeError("only once")
    return gm.forward

torch.compile(torch.sin, backend=once)(torch.ones(2))
"""


def test_a_quiet_run_says_why_there_is_no_script(desk: Desk) -> None:
    (desk.path / "program.py").write_text(ONCE.replace("DONE", str(desk.path / "done")))
    done = desk.minify("catch", "-q", "program.py")
    assert done.returncode == 1, done.stderr
    assert "minify: 1 failure without a verified script:" in done.stderr
    assert "minify: 1 not_reproduced: captured: RuntimeError: only once\n" in done.stderr
