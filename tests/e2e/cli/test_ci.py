"""The workflow and the container file of ``docs/ci``, run as far as that goes without GitHub and without a registry."""

from __future__ import annotations

import json
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
#: The decomposition of `logspace` refuses a negative base: tests/failures/212_wavelet_logspace_negative.py.
SUITE = """
import torch


def test_model():
    model = torch.compile(lambda x: torch.relu(x.sin()) + torch.logspace(0, 2, 3, base=-2.0))
    assert model(torch.ones(3)).shape == (3,)


def test_that_passes():
    assert torch.compile(torch.sin, backend="eager")(torch.zeros(2)).sum() == 0
"""


ACTION = "./.github/actions/fxminify"
THERE = "always() && hashFiles(inputs.database) != ''"


def read(name: str) -> dict[str, Any]:
    """A file of ``docs/ci``."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "docs/ci" / name).read_text())
    return document


def steps() -> list[dict[str, Any]]:
    """The steps of the only job of the workflow, those of the action among them, with its inputs put in."""
    (job,) = read("github-actions.yml")["jobs"].values()
    found: list[dict[str, Any]] = []
    for step in job["steps"]:
        if step.get("uses") != ACTION:
            found.append(step)
            continue
        action = read("action.yml")
        given = {name: one["default"] for name, one in action["inputs"].items()} | step["with"]
        assert set(given) == set(action["inputs"])
        found += [{key: put_in(value, given) for key, value in one.items()} for one in action["runs"]["steps"]]
    return found


def put_in(value: Any, given: dict[str, Any]) -> Any:
    """``value`` with the inputs of the action, as GitHub puts them in."""
    if isinstance(value, dict):
        return {key: put_in(one, given) for key, one in value.items()}
    if not isinstance(value, str):
        return value
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: str(given[found[1]]), value)


@pytest.mark.slow
def test_the_workflow_leaves_a_summary_a_report_and_the_database(tmp_path: Path) -> None:
    (tmp_path / "test_model.py").write_text(SUITE)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}
    codes = {}
    for step in steps():
        if "run" in step and step["name"] != "Install":
            own = {name: str(value) for name, value in step.get("env", {}).items()}
            command = ["bash", "-e", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment | own, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=500, check=False,
            )  # fmt: skip
            codes[step["name"]] = done.returncode
    assert codes == {"Test": 1, "Minify": 0, "Report": 0}
    assert [(row.state, row.nodes_after) for row in captures(tmp_path / "repro.db")] == [("verified", 1)]
    heading, fence, columns, row, what, *end = (tmp_path / "summary.md").read_text().splitlines()
    assert (heading, fence, end) == ("### Failures of torch.compile backends", "```", ["```"])
    assert columns.split() == ["id", "state", "failure", "backend", "nodes", "seen"]
    assert row.split() == ["1", "verified", "compile", "error", "inductor", "4→1", "1"]
    assert what.startswith("    NotImplementedError")
    (kept,) = [step["with"]["path"].split() for step in steps() if "upload-artifact" in step.get("uses", "")]
    assert kept == ["repro.db", "report.html"]
    assert [name for name in kept if not (tmp_path / name).exists()] == []


@pytest.mark.unit
def test_the_action_is_run_after_failing_tests_and_each_shell_step_names_its_shell() -> None:
    (job,) = read("github-actions.yml")["jobs"].values()
    assert [step["if"] for step in job["steps"] if step.get("uses") == ACTION] == ["always()"]
    shells = [step.get("shell") for step in read("action.yml")["runs"]["steps"] if "run" in step]
    assert shells == ["bash", "bash"]


@pytest.mark.unit
def test_the_steps_that_follow_failing_tests_are_run_where_there_is_a_failure() -> None:
    after = {step.get("name", step.get("uses", "")).partition("@")[0]: step.get("if") for step in steps()}
    assert after == {
        "actions/checkout": None, "actions/setup-python": None, "Install": None, "Test": None, "Minify": THERE,
        "Report": THERE, "actions/upload-artifact": THERE,
    }  # fmt: skip


def test_the_steps_of_the_workflow_and_of_the_container_are_shell() -> None:
    scripts = [step["run"] for step in steps() if "run" in step] + [text for name, text in image() if name == "RUN"]
    assert len(scripts) == 6
    for script in scripts:
        done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script


def image() -> list[tuple[str, str]]:
    """The instructions of the container file and their text."""
    lines = (ROOT / "docs/ci/Containerfile").read_text().replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        if line and not line.startswith("#"):
            name, _, text = line.partition(" ")
            found.append((name, text))
    return found


def context(target: Path) -> None:
    """Copy what `COPY .` copies: the checkout without what ``.dockerignore`` names.

    Of its patterns only those forms are read that it uses.
    """
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    everywhere = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    top = [rule for rule in rules if not rule.startswith("**/")]
    assert not any(mark in rule for rule in top + everywhere for mark in ("!", "/", "["))

    def ignored(folder: str, names: list[str]) -> set[str]:
        patterns = everywhere + (top if Path(folder) == ROOT else [])
        return shutil.ignore_patterns(*patterns)(folder, names)

    shutil.copytree(ROOT, target, ignore=ignored, symlinks=True)


@pytest.mark.slow
def test_what_the_container_file_installs_is_the_command(tmp_path: Path) -> None:
    """Its instructions in order, with a folder in place of the image, without what pip would load."""
    instructions = image()
    assert [name for name, _ in instructions] == ["FROM", "RUN", "COPY", "RUN", "WORKDIR", "ENTRYPOINT", "CMD"]
    packages, install = (text for name, text in instructions if name == "RUN")
    if shutil.which("apt-get"):
        (wanted,) = [part for part in packages.split("&&") if "apt-get install" in part]
        subprocess.run(["bash", "-e", "-c", f"{wanted} --simulate"], capture_output=True, check=True)

    source, target = instructions[2][1].split()
    assert source == "."
    copied, site = tmp_path / "source", tmp_path / "site"
    context(copied)
    assert sorted({"tests", "benchmarks", ".git", ".venv"} & set(os.listdir(copied))) == []
    pip, *arguments = install.replace(target, str(copied)).split()
    assert pip == "pip"
    here = ["--no-deps", "--no-build-isolation", "--quiet", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", *arguments, *here], check=True, timeout=300)

    environment = {**os.environ, "PYTHONPATH": str(site)}
    entry, default = json.loads(instructions[5][1]), json.loads(instructions[6][1])
    command = [sys.executable, str(site / "bin" / entry[0]), *entry[1:]]
    for words, said in ((default, "Usage: minify "), (["--version"], fxminify.__version__)):
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert said in done.stdout
    where = [sys.executable, "-c", "import fxminify; print(fxminify.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()) == site / "fxminify" / "__init__.py"


@pytest.mark.slow
def test_the_image_can_be_built_and_run() -> None:
    usable = (
        tool
        for tool in ("podman", "docker", "buildah")
        if shutil.which(tool) and not subprocess.run([tool, "info"], capture_output=True, check=False).returncode
    )
    tool = next(usable, None)
    if tool is None:
        pytest.skip("neither podman nor buildah nor a docker daemon is here")
    subprocess.run([tool, "build", "-f", "docs/ci/Containerfile", "-t", "fxminify-test", "."], cwd=ROOT, check=True)
    if tool != "buildah":  # which builds only
        run = [tool, "run", "--rm", "fxminify-test", "--version"]
        assert fxminify.__version__ in subprocess.run(run, capture_output=True, text=True, check=True).stdout
