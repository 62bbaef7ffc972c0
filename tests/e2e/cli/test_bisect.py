"""`minify bisect`: from a program of which only the result is wrong to a verified script."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from desks import Desk
from reading import ROOT, blocks

TRAIN = Path(__file__).parents[2] / "programs" / "bisect" / "train.py"
PASSES = "import torch\n\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(3))\n"
HEADING = "Only the result is wrong"


def without_numbers(text: str) -> str:
    """``text`` without the numbers of runs and seconds, which differ, and without the spaces of a table."""
    return " ".join(re.sub(r"\(\d+ runs, \d+ s\)", "", text).split())


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--dynamic"]], ids=["static", "dynamic"])
def test_a_loss_that_is_no_number_ends_in_a_verified_script(options: list[str], desk: Desk) -> None:
    shutil.copy(TRAIN, desk.path)
    told = desk.minify("bisect", "--db", desk.db.name, "train.py", *options)
    assert told.returncode == 0, told.stderr
    if not options:
        (shown,) = (b for b in blocks(ROOT / "docs" / "guide.md") if (b.heading, b.language) == (HEADING, "text"))
        assert without_numbers(told.stdout) == without_numbers(shown.text)
    found = json.loads(desk.minify("bisect", "--json", "--db", desk.db.name, "train.py", *options).stdout)
    (graph,) = found["found"]
    assert graph["graph"]["backend"] == "inductor"
    assert [node["operator"] for node in graph["compiled"]] == ["acosh"]
    assert graph["compiled"][0]["at"].startswith("train.py:14 ")
    (captured,) = found["captured"]
    assert captured["kind"] == "divergence"
    assert f"captured 1 failure (1 divergence); next: minify run {desk.db.name}" in told.stderr
    done = desk.minify("run", desk.db.name)
    assert done.returncode == 0, done.stderr
    row = desk.row()
    assert (row["state"], row["nodes_after"]) == ("verified", 1)


def test_a_program_that_does_not_fail(desk: Desk) -> None:
    (desk.path / "passes.py").write_text(PASSES)
    done = desk.minify("bisect", "passes.py")
    assert done.returncode == 1
    assert done.stdout == "Nothing to bisect: the program does not fail with all graphs compiled (exit code 0).\n"
    assert done.stderr.startswith("run 1: all graphs compiled: passes (exit code 0, ")
    assert not desk.db.exists()
