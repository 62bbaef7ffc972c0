"""A backend that cannot be made again, and gives pieces of its graphs to Inductor: the piece that fails is captured."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from desks import Desk

SPLIT = Path(__file__).parents[2] / "programs" / "pieces" / "split.py"


def test_the_piece_that_inductor_cannot_compile_is_the_only_row(desk: Desk) -> None:
    shutil.copy(SPLIT, desk.path)
    done = desk.minify("capture", "split.py", "standalone", "raises")
    assert done.stderr.endswith("minify: captured 1 failure (1 compile error); next: minify run repro.db\n")
    row = desk.row()
    assert (row["state"], row["backend"], row["nodes_before"]) == ("pending", "inductor", 4)
    assert row["provenance"]["within"] == "Splitter"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["standalone", "compile_fx"])
def test_a_piece_that_is_wrong_ends_in_a_verified_script(how: str, desk: Desk) -> None:
    shutil.copy(SPLIT, desk.path)
    desk.minify("capture", "--check", "split.py", how, "wrong")
    assert desk.row()["nodes_before"] == 6
    done = desk.minify("run", desk.db.name)
    assert done.returncode == 0, done.stderr
    (row,) = desk.json("list", desk.db.name)
    assert (row["state"], row["backend"], row["nodes_after"], row["operators"]) == ("verified", "inductor", 1, "acosh")


@pytest.mark.slow
def test_pieces_that_are_right_are_compared(desk: Desk) -> None:
    shutil.copy(SPLIT, desk.path)
    done = desk.minify("capture", "--check", "split.py", "standalone", "fine")
    assert done.returncode == 0, done.stderr
    watched = "1 graph compiled by Splitter, 2 graphs compiled by inductor, none failed; compared: 6 calls"
    assert watched in done.stderr
    assert not desk.db.exists()
