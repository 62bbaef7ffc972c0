"""The workflow and the container file of ``docs/ci``, run as far as that goes without GitHub and without a registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from indexes import captures

import fxminify

ROOT = Path(fxminify.__file__).parent
SUITE = """
import torch

def test_model():
    fault = {"fault": "compile_error", "op": "relu"}
    model = torch.compile(lambda x: torch.relu(x.sin()) + 1, backend="fxminify_faulty", options=fault)
    model(torch.ones(3))
"""


def steps() -> list[dict[str, Any]]:
    """The steps of the workflow; ``on`` is a boolean for YAML."""
    document = yaml.safe_load((ROOT / "docs/ci/github-actions.yml").read_text())
    (job,) = document["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


@pytest.mark.slow
def test_the_workflow_leaves_a_summary_a_report_and_the_database(tmp_path: Path) -> None:
    (tmp_path / "test_model.py").write_text(SUITE)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state")}
    codes = {}
    for step in steps():
        if "run" in step and step["name"] != "Install":
            command = ["bash", "-e", "-c", step["run"]]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            codes[step["name"]] = done.returncode
    assert codes == {"Test": 1, "Minify": 0, "Report": 0}
    assert [(row.state, row.nodes_after) for row in captures(tmp_path / "repro.db")] == [("verified", 1)]
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Failures of torch.compile backends\n```\n")
    assert "test_model.py:6 <lambda>: PlantedFault: planted: cannot compile relu" in summary
    kept = [step["with"]["path"].split() for step in steps() if "upload-artifact" in step.get("uses", "")]
    assert kept == [["repro.db", "report.html"]]
    assert [name for name in kept[0] if not (tmp_path / name).exists()] == []


@pytest.mark.unit
def test_the_steps_that_follow_failing_tests_are_run() -> None:
    after = [step["if"] for step in steps()[4:]]
    assert after == ["always() && hashFiles('repro.db') != ''"] * 3
    assert [step["uses"].partition("@")[0] for step in steps() if "uses" in step] == [
        "actions/checkout", "actions/setup-python", "actions/upload-artifact",
    ]  # fmt: skip


@pytest.mark.unit
def test_the_container_file_installs_what_is_there() -> None:
    lines = (ROOT / "docs/ci/Containerfile").read_text().replace("\\\n", " ").splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert [name for name, _ in instructions] == ["FROM", "RUN", "COPY", "RUN", "WORKDIR", "ENTRYPOINT", "CMD"]
    (source, target) = instructions[2][1].split()
    assert source == "."
    named = re.findall(rf"{target}(/\S+)?", instructions[3][1])
    assert [name for name in named if not (ROOT / name.lstrip("/")).exists()] == []
    assert named == ["/constraints.txt", ""]
    script = re.search(r"^\[project.scripts\]\n(\w+) = ", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert script is not None
    assert instructions[5][1] == f'["{script[1]}"]'


@pytest.mark.slow
def test_the_image_can_be_built_and_run() -> None:
    tool = next((tool for tool in ("podman", "docker") if shutil.which(tool)), "")
    if not tool or subprocess.run([tool, "info"], capture_output=True, check=False).returncode:
        pytest.skip("neither podman nor a docker daemon is here")
    build = [tool, "build", "-q", "-f", "docs/ci/Containerfile", "-t", "fxminify-test", "."]
    subprocess.run(build, cwd=ROOT, check=True)
    said = subprocess.run(
        [tool, "run", "--rm", "fxminify-test", "--version"], capture_output=True, text=True, check=True
    )
    assert fxminify.__version__ in said.stdout
