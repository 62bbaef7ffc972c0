"""A program that eager mode refuses, in its backward pass: what is said of it, by each verb, from the capture on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from desks import Desk, MakeDesk

PROGRAM = Path(__file__).parents[2] / "programs" / "faults" / "eager_fails_in_backward.py"
FAULT = "the program is wrong, not the backend"
RAISED = "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation"


@pytest.fixture(scope="module")
def caught(make_desk: MakeDesk) -> tuple[Desk, subprocess.CompletedProcess[str]]:
    """A desk after `minify catch` of the program, and what that said."""
    desk = make_desk()
    shutil.copy(PROGRAM, desk.path / "program.py")
    return desk, desk.minify("catch", "program.py")


def test_the_end_of_the_program_says_that_it_is_wrong(caught: tuple[Desk, subprocess.CompletedProcess[str]]) -> None:
    desk, done = caught
    assert done.returncode == 1  # the program's own
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"minify: eager mode fails, too, for 1 failing graph ({RAISED}")
    assert said.endswith(f"; {FAULT}: minify show repro.db 1")
    assert list(desk.path.glob("repro*.py")) == []


def test_no_script_and_no_issue_is_made_of_it(caught: tuple[Desk, subprocess.CompletedProcess[str]]) -> None:
    desk, _ = caught
    assert "eager_refuses" in desk.invoke("list", "repro.db").stdout
    assert f"state  eager_refuses: eager refuses it, too: {RAISED[:20]}" in desk.invoke("show", "repro.db", 1).stdout
    assert desk.minify("run", "repro.db").stdout.startswith("Nothing to do")
    for form in ("script", "issue"):
        done = desk.minify("repro", "repro.db", 1, "--format", form)
        why = "has no script, because it is no failure of the backend: eager refuses it, too: RuntimeError"
        assert (done.returncode, why in done.stderr) == (2, True)


@pytest.mark.slow
def test_no_layer_is_blamed_for_it(caught: tuple[Desk, subprocess.CompletedProcess[str]]) -> None:
    desk, _ = caught
    found = desk.json("ablate", "repro.db", 1)
    assert [(row["backend"], row["result"]) for row in found["rows"]] == [
        ("eager", "passes"), ("aot_eager", "eager refuses it"),
    ]  # fmt: skip
    assert found["enters"] == "nowhere: eager mode fails, too, without a backend"


@pytest.mark.slow
def test_a_program_captured_without_a_command_says_so_as_well(make_desk: MakeDesk) -> None:
    desk = make_desk()
    shutil.copy(PROGRAM, desk.path / "program.py")
    done = desk.run([sys.executable, "program.py"], FXMINIFY="1")
    assert f"; {FAULT}: minify show {desk.db} 1" in done.stderr.splitlines()[-1]
