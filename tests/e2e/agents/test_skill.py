"""Every command of the skill, in the order in which it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from desks import Desk

import fxminify

pytestmark = pytest.mark.slow

SKILL = (Path(fxminify.__file__).parent / "docs" / "skill" / "SKILL.md").read_text()
PROGRAM = """\
import sys
import planted, torch

def model(x):
    return torch.relu(torch.sin(x)) * 2

torch.compile(model, backend="raises")(torch.ones(4))
"""
#: Commands that end with another code than 0: a backend failed, or a planted backend has no switches.
CODES = {"minify catch --json train.py": 1, "minify catch --json --check train.py": 1,
         "minify explain --json repro.db 1": 2}  # fmt: skip


def commands() -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", SKILL, re.DOTALL) for line in block.splitlines()]


def shell(desk: Desk, command: str) -> subprocess.CompletedProcess[str]:
    words = command.split()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # `python` has torch
    return desk.run(desk.command(*words[1:]) if words[0] == "minify" else words, PATH=path)


def repository(desk: Desk) -> None:
    """A history of the planted backend: two good commits, then three with the bug. The bisection is begun."""
    bad = (desk.path / "planted.py").read_text()
    good = bad.replace('    if calls(gm, "relu"):\n        raise RuntimeError("planted: cannot lower this")\n', "", 1)
    assert good != bad
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    assert desk.run([*git, "init", "-q"]).returncode == 0
    for number, text in enumerate([good, good, bad, bad, bad]):
        (desk.path / "planted.py").write_text(f"{text}# {number}\n")
        done = desk.run([*git, "add", "planted.py"]), desk.run([*git, "commit", "-qm", f"commit {number}"])
        assert [each.returncode for each in done] == [0, 0]
    for words in (["start"], ["bad"], ["good", "HEAD~4"]):
        assert desk.run([*git, "bisect", *words]).returncode == 0


def test_every_command_of_the_skill_does_what_it_says(desk: Desk) -> None:
    (desk.path / "train.py").write_text(PROGRAM)
    (desk.path / "issue.md").write_text(f"It fails:\n\n```python\n{PROGRAM.replace('sin', 'cos')}```\n")
    ran = []
    for command in commands():
        if command.startswith("git bisect"):
            repository(desk)
        done = shell(desk, command)
        assert done.returncode == CODES.get(command, 0), f"{command}\n{done.stdout}\n{done.stderr}"
        if "--json" in command:
            answer = json.loads(done.stdout)
            assert answer
            if done.returncode == 2:
                assert [*answer] == ["error", "hint", "command"]
        if command.startswith("git bisect"):
            assert "commit 2" in done.stdout
            assert "is the first bad commit" in done.stdout
            desk.run(["git", "bisect", "reset"])
        ran.append(command.split()[1])
    assert ran == [
        "catch", "show", "repro", "catch", "bisect", "import", "run", "explain", "ablate", "repro", "bisect", "retest",
        "verify",
    ]  # fmt: skip


def test_the_skill_has_a_name_and_says_when_to_use_it() -> None:
    front = SKILL.split("---\n")[1]
    assert re.search(r"^name: fxminify$", front, re.MULTILINE)
    assert re.search(r"^description: .{100,1000}$", front, re.MULTILINE)
