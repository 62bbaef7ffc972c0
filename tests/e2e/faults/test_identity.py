"""The same bug, or not: whole programs whose messages change with where and how they are run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from desks import Desk

PROGRAMS = Path(__file__).parents[2] / "programs" / "faults"


def minified(desk: Desk, program: str) -> list[dict[str, Any]]:
    """The rows after `minify capture` and `minify run` of a program, those of the program itself."""
    shutil.copy(PROGRAMS / f"{program}.py", desk.path / "program.py")
    desk.minify("capture", "program.py")
    captured = len(desk.json("list", "repro.db"))
    done = desk.minify("run", "repro.db", "--no-explain")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = desk.json("list", "repro.db")[:captured]
    assert [(row["state"], row["verified"], row["runs"]) for row in rows] == [("verified", 3, 3)] * captured
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "headline"),
    [
        # a name of a node depends on what is left of the graph, a list on what is left of its operators
        ("message_quotes_module_stack", r"AssertionError: Not implemented for op_type='Log', node=input: \"\w+\""),
        (
            "order_of_a_set",
            r"NotImplementedError: Unsupported function types \['(diff|embedding)'(, '(diff|embedding)')?\]",
        ),
        ("compiled_autograd", r"NotImplementedError: while executing torch\.logspace"),
    ],
)
def test_one_bug_is_minified_to_its_one_node(desk: Desk, program: str, headline: str) -> None:
    (row,) = minified(desk, program)
    assert row["nodes_after"] == 1
    assert re.fullmatch(headline, row["headline"])


@pytest.mark.slow
def test_two_bugs_with_one_message_and_places_are_verified_apart(desk: Desk) -> None:
    rows = minified(desk, "diagnosis_with_location")
    assert [row["nodes_after"] for row in rows] == [1, 1]
    assert len({row["bug"] for row in rows}) == 2
    listed = desk.invoke("list", "repro.db").stdout
    for row, name in zip(rows, ("lgamma", "cdist"), strict=True):
        assert f'"torch.aten.{name}"' in row["headline"]
        assert f'"torch.aten.{name}"' in listed
        script = desk.invoke("repro", "repro.db", row["id"]).stdout
        assert f"torch.{name}(" in script
