"""A backend that is wrong in every element by less than ten times what `torch.testing.assert_close` allows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from desks import Desk

PROGRAM = Path(__file__).parents[2] / "programs" / "faults" / "within_ten_tolerances.py"


@pytest.mark.slow
def test_what_is_let_pass_is_named_and_reported_by_strict(desk: Desk) -> None:
    shutil.copy(PROGRAM, desk.path / "program.py")
    done = desk.minify("capture", "--check", "program.py")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        0,
        "minify: 1 graph compiled by nearly; compared: 1 call, which differ from eager by up to 7.1 times what "
        "torch.testing.assert_close allows at output 0 (add, program.py:17 <lambda>) (10 times are let pass, "
        "--check strict reports it)",
    )
    assert not desk.db.exists()
    desk.minify("capture", "--check", "strict", "program.py")
    done = desk.minify("run", "repro.db", "--no-explain")
    assert done.returncode == 0, done.stderr
    (row,) = desk.json("list", "repro.db")
    assert (row["state"], row["nodes_after"], row["failure"]["detail"]["class"]) == ("verified", 1, "value")
