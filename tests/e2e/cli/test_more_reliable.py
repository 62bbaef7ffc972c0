"""What always failed still does when it is small, in the script, too.

The example of README.md (`test_in_order.py`) is such a failure of a real backend: its crash depends on which thread is
first, and below 33 channels on whether there are several.
"""

from __future__ import annotations

import pytest
from desks import MakeDesk


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_steps_that_made_a_failure_come_and_go_are_taken_back(make_desk: MakeDesk, jobs: int) -> None:
    desk = make_desk("fades")
    done = desk.minify("run", "-j", jobs, "--no-explain")
    assert done.returncode == 0, done.stderr
    row = desk.row()
    assert (row["state"], row["verified"], row["runs"], row["nodes_after"]) == ("verified", 3, 3, 2)
    script = desk.minify("repro", "repro.db", 1).stdout
    assert "torch.relu(torch.sigmoid(" in script or ("torch.relu(" in script and "torch.sigmoid(" in script)
    assert "more reliable" in [step["pass_name"] for step in desk.json("history", "repro.db", 1)["steps"]]
