"""Whole programs, each of another kind: `minify capture` and `minify run` end with a true script of the bug."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from desks import Desk

PROGRAMS = Path(__file__).parents[2] / "programs"

pytestmark = pytest.mark.slow


def minified(desk: Desk, program: str, *options: str) -> tuple[dict[str, Any], str]:
    """The only row after `minify capture` and `minify run` of a program, and its script."""
    shutil.copy(PROGRAMS / f"{program}.py", desk.path / "program.py")
    desk.minify("capture", *options, "program.py")
    done = desk.minify("run", "repro.db", 1)
    assert done.returncode == 0, done.stderr
    (row,) = desk.json("list", "repro.db")
    assert row["state"] == "verified"
    return row, desk.invoke("repro", "repro.db", 1).stdout


def test_a_package_of_aot_inductor_that_fails_is_a_script_of_torch_alone(desk: Desk) -> None:
    row, script = minified(desk, "faults/aot_inductor_package")
    assert (row["backend"], row["kind"], row["verified"], row["nodes_after"]) == ("aot_inductor", "compile_error", 3, 1)
    assert "torch._inductor.aoti_compile_and_package(" in script
    assert "torch.logspace(" in script
    assert "fxminify." not in script


def test_a_failure_of_the_first_call_alone_is_seen_with_check_too(desk: Desk) -> None:
    row, script = minified(desk, "needs/plain_tensor_subclass", "--check")
    assert (row["kind"], row["verified"], row["nodes_after"]) == ("runtime_error", 3, 1)
    assert "class Tagged(torch.Tensor):" in script


def test_bodies_of_a_loop_stay_legal(desk: Desk) -> None:
    row, script = minified(desk, "faults/while_loop_with_counter")
    assert (row["verified"], row["nodes_after"] <= 5) == (3, True)
    assert "torch.while_loop(" in script


def test_a_wrong_gradient_is_minimized_without_leaving_it(desk: Desk) -> None:
    row, script = minified(desk, "faults/upsampled_gradient", "--check")
    assert (row["kind"], row["verified"], row["nodes_after"] <= 4) == ("divergence", 3, True)
    assert "max_pool2d(" in script


def test_the_argument_that_matters_is_named(desk: Desk) -> None:
    minified(desk, "truth/20_ceil_mode", "--check")
    shown = " ".join(desk.invoke("show", "repro.db", 1).stdout.split())
    needed, _, innocent = shown.partition("Does not matter")
    assert "ceil_mode=True of torch.nn.functional.avg_pool" in needed
    assert "ceil_mode" not in innocent.partition("layer")[0]
    assert "stride" not in innocent.partition("layer")[0]


def test_the_script_of_a_coin_says_how_often_to_run_it(desk: Desk) -> None:
    shutil.copy(PROGRAMS / "faults" / "flaky_three_of_ten.py", desk.path / "program.py")
    desk.minify("capture", "program.py")
    done = desk.minify("run", "repro.db", 1, "--replays", 20)  # of fewer, none may show it
    script = " ".join(desk.invoke("repro", "repro.db", 1).stdout.split())
    assert re.search(r"It failed in \d+ of \d\d fresh runs", script), (done.stderr, script)
    assert re.search(r"Run it often: it fails now and then while the bug is there; \d+ runs in a row", script)
    assert "exit code 0 means the bug is gone" not in script
