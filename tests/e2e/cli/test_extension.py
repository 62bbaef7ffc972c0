"""A package of somebody else, installed with pip, adds a pass, a format and an adapter, and takes part in a run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from desks import Desk
from real_failures import skip_if_gone

PACKAGE = Path(__file__).parents[2] / "programs" / "extension"
#: torch's backend for TorchScript fails on every graph of Dynamo: tests/failures/026_ts_any_graph.py.
PROGRAM = """
import torch

torch.set_num_threads(1)
torch.compile(lambda x: torch.relu(torch.sin(x) + x).cos() * 2 - 1, backend="ts")(torch.randn(4))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed."""
    source, site = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, source)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*install, "--no-deps", "--no-build-isolation", "--target", site, source], check=True, timeout=300)
    return site


def test_a_package_adds_one_of_each(desk: Desk, site: Path) -> None:
    def listed(verb: str, *names: str) -> Any:
        return desk.json(verb, *names, PYTHONPATH=str(site))

    assert [row["from"] for row in listed("passes") if row["pass"] == "acme-middle"] == ["acme-fxminify"]
    assert [row["package"] for row in listed("formats")["formats"] if row["name"] == "ticket"] == ["acme"]
    assert [row["adapter"] for row in listed("backends", "ts")] == ["acme"]


@pytest.mark.slow
def test_a_real_failure_is_minified_with_all_that_a_package_adds(desk: Desk, site: Path) -> None:
    skip_if_gone("026_ts_any_graph")
    asked, warm = desk.path / "asked.txt", desk.path / "warm.txt"
    environment = {"PYTHONPATH": str(site), "ACME_ASKED": str(asked), "ACME_WARM": str(warm)}
    (desk.path / "fails.py").write_text(PROGRAM)
    captured = desk.minify("capture", "fails.py", **environment)
    assert desk.db.exists(), captured.stderr
    done = desk.minify("run", "repro.db", "--replays", 1, "--runs", 1, "--no-explain", **environment)
    assert done.returncode == 0, done.stderr
    (row,) = desk.json("list", "repro.db", **environment)
    assert (row["state"], row["nodes_after"]) == ("verified", 1)
    assert warm.read_text() == "1", "the adapter prepared the workers"
    desk.minify("capture", "--db", "without.db", "fails.py")
    assert desk.json("list", "without.db")[0]["signature"] != row["signature"], "the adapter masked the message"
    assert asked.read_text().splitlines()[-1] == "1", "the pass was asked until nothing was left to drop"

    ticket = desk.minify("repro", "repro.db", 1, "--format", "ticket", **environment).stdout
    assert ticket.startswith("TICKET ")
    assert "Component: ts\n" in ticket
    assert 'backend="ts"' in ticket
