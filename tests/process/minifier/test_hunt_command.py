"""`minify hunt` as a user types it: bad backends, an interruption, a suite of another package, scripts."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from desks import Desk

pytest.importorskip("expecttest", reason="torch's operator database imports it")
pytestmark = pytest.mark.slow
PACKAGE = Path(__file__).parents[2] / "programs" / "extension"
BACKENDS = """
import os
import pathlib
import sys
import time

from torch._dynamo import register_backend

HERE = pathlib.Path(__file__).parent


def calls(gm, name):
    return any(name in str(node.target) for node in gm.graph.nodes)


@register_backend
def refuses_sin(gm, inputs):
    if calls(gm, "sin"):
        raise NotImplementedError("cannot lower sin")
    return gm.forward


@register_backend
def dies_every_second_time(gm, inputs):
    with (HERE / "compiled").open("a") as file:
        file.write("x")
    if (HERE / "compiled").stat().st_size % 2 == 0:
        os._exit(3)
    return gm.forward


@register_backend
def hangs_every_second_time(gm, inputs):
    with (HERE / "compiled").open("a") as file:
        file.write("x")
    if (HERE / "compiled").stat().st_size % 2 == 0:
        time.sleep(1000)
    return gm.forward


@register_backend
def prints_megabytes(gm, inputs):
    for _ in range(1000):
        os.write(1, b"a line of a compiler that says everything\\n" * 500)
        os.write(2, b"error: a line of a compiler that says everything\\n" * 500)
    return refuses_sin(gm, inputs)


@register_backend
def changes_global_state(gm, inputs):
    import torch

    torch.set_default_dtype(torch.float64)
    os.environ["CHANGED"] = "1"
    return gm.forward


@register_backend
def needs_a_package(gm, inputs):
    import package_that_is_not_installed
"""
FOUR = "^(abs|cos|sin|tan)$"


@pytest.fixture
def desk(desk: Desk) -> Desk:
    (desk.path / "bad_backends.py").write_text(BACKENDS)
    return desk


def words(backend: str, only: str = FOUR, *more: str) -> list[str]:
    return ["hunt", backend, "--import", "bad_backends", "--only", only, "--calls", "2", *more]


def states(found: dict[str, Any]) -> dict[str, str]:
    return {cell["program"]["name"]: cell["state"] for cell in found["cells"]}


def test_a_hunt_finds_the_operator_that_fails_and_its_script_is_verified(desk: Desk) -> None:
    done = desk.minify(*words("refuses_sin", FOUR, "--grad", "--dynamic", "--report", "page.html", "-j", "2"))
    assert done.returncode == 1, done.stderr
    assert "16 programs; results go to repro.refuses_sin.hunt.jsonl" in done.stderr
    assert "Minify the failures: minify run repro.db" in done.stdout
    (row,) = desk.json("list", "repro.db")
    assert (row["headline"], row["occurrences"]) == ("NotImplementedError: cannot lower sin", 4)
    assert "NotImplementedError: cannot lower sin" in (desk.path / "page.html").read_text()
    assert desk.minify("run", "repro.db").returncode == 0
    again = desk.minify(*words("refuses_sin", FOUR, "--grad", "--dynamic", "--report", "page.html", "--force"))
    assert again.returncode == 1
    page = re.sub("<[^>]+>", "", (desk.path / "page.html").read_text())
    assert "torch.compile(forward, backend=" in page, "the verified script"
    expecting = [*words("refuses_sin", FOUR, "--grad", "--dynamic"), "--write-expect", "known.toml"]
    assert desk.minify(*expecting).returncode == 1
    expected = desk.minify(*words("refuses_sin", FOUR, "--grad", "--dynamic"), "--expect", "known.toml")
    assert expected.returncode == 0, expected.stdout
    assert desk.json("list", "repro.db")[0]["occurrences"] == 4, "nothing was run again"


def test_an_interrupted_hunt_goes_on_and_ends_like_one_that_was_not(desk: Desk) -> None:
    whole = desk.json(*words("refuses_sin", "^(a|s)", "--db", "whole.db", "--seed", "3"))
    begun = subprocess.Popen(
        desk.command(*words("refuses_sin", "^(a|s)", "--seed", "3")), cwd=desk.path, env=desk.environment(),
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert begun.stderr is not None
    lines = [begun.stderr.readline()]
    while "programs, " not in lines[-1]:
        lines.append(begun.stderr.readline())
    begun.send_signal(signal.SIGINT)
    rest = begun.stderr.read()
    assert begun.wait(60) == 130
    assert "the same command goes on there" in rest
    log = desk.path / "repro.refuses_sin.hunt.jsonl"
    before = log.read_text().splitlines()
    again = desk.minify(*words("refuses_sin", "^(a|s)", "--seed", "3"), "--json")
    assert states(json.loads(again.stdout)) == states(whole)
    after = log.read_text().splitlines()
    assert after[: len(before)] == before
    assert len(after) == len(whole["cells"]) + 1, "each program once, after the first line"
    rows = [
        [(row["signature"], row["occurrences"]) for row in desk.json("list", db)] for db in ("repro.db", "whole.db")
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("backend", ["dies_every_second_time", "hangs_every_second_time"])
def test_a_backend_that_ends_its_process_every_second_time(desk: Desk, backend: str) -> None:
    found = desk.json(*words(backend, FOUR, "--timeout", "8"))
    assert set(states(found)) == {"abs", "cos", "sin", "tan"}
    assert found["totals"]["not tried"] == 0
    assert found["totals"]["fails"] > 0
    kinds = {"crash"} if backend.startswith("dies") else {"hang"}
    assert {bug["kind"] for bug in found["bugs"]} == kinds


def test_a_backend_that_prints_megabytes(desk: Desk) -> None:
    found = desk.json(*words("prints_megabytes"))
    assert states(found) == {"abs": "ok", "cos": "ok", "sin": "fails", "tan": "ok"}
    assert desk.db.stat().st_size < 2 << 20


def test_a_backend_that_changes_the_state_of_its_process(desk: Desk) -> None:
    assert states(desk.json(*words("changes_global_state"))).keys() == {"abs", "cos", "sin", "tan"}


def test_a_backend_that_does_not_load(desk: Desk) -> None:
    missing = desk.minify("hunt", "no_such_backend")
    assert missing.returncode == 2
    assert "registers no backend called 'no_such_backend'" in missing.stderr
    module = desk.minify("hunt", "acme", "--import", "no_such_module")
    assert module.returncode == 2
    assert "cannot import 'no_such_module'" in module.stderr
    package = desk.minify(*words("needs_a_package"))
    assert package.returncode == 2
    assert "the backend needs_a_package cannot run here: " in package.stderr
    assert "package_that_is_not_installed" in package.stderr


def test_a_budget_ends_a_hunt_and_the_next_goes_on(desk: Desk) -> None:
    """Of all operators. The machine decides which are tried, and if one of them fails."""
    first = desk.minify(*words("refuses_sin", "."), "--budget", "15")
    assert first.returncode in (0, 1, 3), first.stderr
    assert "the budget of 15 s is over: " in first.stdout
    done = len((desk.path / "repro.refuses_sin.hunt.jsonl").read_text().splitlines()) - 1
    second = desk.minify(*words("refuses_sin", "."), "--budget", "1")
    assert f", {done} of them were run before" in second.stderr or done == 0


def test_another_package_adds_a_suite(desk: Desk, tmp_path: Path) -> None:
    source, site = tmp_path / "package", tmp_path / "site"
    shutil.copytree(PACKAGE, source)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*install, "--no-deps", "--no-build-isolation", "--target", site, source], check=True, timeout=300)
    words = ["hunt", "refuses_sin", "--import", "bad_backends", "--suite", "acme", "--grad"]
    found = desk.json(*words, PYTHONPATH=str(site), ACME_WARM=str(tmp_path / "warm"))
    assert [(cell["program"]["name"], cell["mode"], cell["state"]) for cell in found["cells"]] == [
        ("layer", "forward", "ok"), ("layer", "gradient", "ok"), ("wave", "forward", "fails"),
        ("wave", "gradient", "fails"),
    ]  # fmt: skip
    assert [bug["names"] for bug in found["bugs"]] == [["wave"]]
