"""Scripts that are written in one way or another, as the failure needs it: from program to verified script."""

from __future__ import annotations

import pytest
from desks import MakeDesk

pytestmark = pytest.mark.slow

QUICK = ("--replays", "1", "--runs", "2", "--no-explain")


def test_a_backend_that_takes_all_memory_may_not_do_so_where_its_script_is_run(make_desk: MakeDesk) -> None:
    desk = make_desk("greedy")
    done = desk.minify("run", *QUICK, "--memory", "2")
    assert done.returncode == 0, done.stderr
    assert (desk.row()["kind"], desk.row()["nodes_after"]) == ("out_of_memory", 1)
    assert "resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))" in desk.minify("repro", "repro.db", 1).stdout


@pytest.mark.parametrize(("backend", "asked"), [("negates", "forward(x).sum(), [x]"), ("flips", "cotangents")])
def test_gradients_are_asked_for_as_a_person_would_where_that_shows_it(
    make_desk: MakeDesk, backend: str, asked: str
) -> None:
    """Gradients in the wrong order are those of the sum in any order."""
    desk = make_desk(backend, options=("--check",))
    done = desk.minify("run", *QUICK)
    assert done.returncode == 0, done.stderr
    assert (desk.row()["kind"], desk.row()["phase"]) == ("divergence", "backward")
    assert asked in desk.minify("repro", "repro.db", 1).stdout
    issue = desk.minify("repro", "repro.db", 1, "--format", "issue").stdout
    assert asked in issue
