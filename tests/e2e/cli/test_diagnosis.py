"""Failures whose messages are alike: what their compiler prints tells them apart, and is what a person reads."""

from __future__ import annotations

import pytest
from desks import Desk


@pytest.mark.slow
def test_two_bugs_with_one_message_are_two_from_the_capture_on(desk: Desk) -> None:
    assert "captured 2 failures" in desk.minify("capture", "tightlipped.py").stderr
    before = desk.json("list", "repro.db")
    assert len({row["headline"] for row in before}) == len({row["bug"] for row in before}) == 2
    done = desk.minify("run", "repro.db", "--replays", 1, "--runs", 2, "--no-explain")
    assert done.returncode == 0, done.stderr
    rows = desk.json("list", "repro.db")
    assert [row["state"] for row in rows] == ["verified"] * 2
    assert len({row["bug"] for row in rows}) == 2
    for row, name in zip(rows, ("erfinv", "lgamma"), strict=True):
        said = f"failed to legalize operation 'torch.aten.{name}'"
        assert said in row["headline"]
        assert said in " ".join(desk.invoke("show", "repro.db", row["id"]).stdout.split())
    assert desk.invoke("list", "repro.db").stdout.count("RuntimeError: failed to legalize") == 2
    again = desk.minify("capture", "tightlipped.py")
    assert "captured" in again.stderr
    assert [row["occurrences"] for row in desk.json("list", "repro.db")] == [2, 2]
