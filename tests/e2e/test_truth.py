"""Statements of reports are true: they are checked against conditions that are known of the programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import real_failures
import truths
from truths import Checked

PROGRAMS = Path(__file__).parents[1] / "programs" / "truth"
PLANTED, REAL = truths.known(PROGRAMS), truths.known(real_failures.FOLDER)
#: In the default tests: a threshold of a size, an argument, wrong values.
QUICK = {"13_default_stride"}


def minify(*args: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fxminify", *map(str, args)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def reported(cwd: Path, id: int) -> tuple[dict[str, Any], dict[str, str]]:
    """What `minify show --json` says of a capture, and the words of every report."""
    found = json.loads(minify("show", "repro.db", id, "--json", cwd=cwd).stdout)
    issue = minify("repro", "repro.db", id, "--format", "issue", cwd=cwd).stdout
    (cwd / "repro.py").write_text(minify("repro", "repro.db", id, cwd=cwd).stdout)
    minify("report", "repro.db", id, "-o", "report.html", cwd=cwd)
    reports = {
        "list": minify("list", "repro.db", cwd=cwd, COLUMNS="1000").stdout,
        "show": minify("show", "repro.db", id, cwd=cwd).stdout,
        "issue": issue,
        "page": (cwd / "report.html").read_text().partition("<main")[2],
        "script": (cwd / "repro.py").read_text(),
    }
    return found, {name: truths.plain(text) for name, text in reports.items()}


def checked(cwd: Path, id: int, truth: dict[str, Any], modules: Path) -> Checked:
    """The statements about capture ``id``, of which those that contradict ``truth`` or the script are false."""
    found, reports = reported(cwd, id)
    out = truths.about_features(found, truth) + truths.about_the_rest(found, truth)
    out += truths.about_sentences(found, reports)
    if "off by" in reports["script"]:
        out += truths.about_numbers(cwd / "repro.py", reports, modules)
    return out


def shown(name: str, found: Checked) -> None:
    """Write down how many statements were checked, for whoever asks for it, and fail for a false one."""
    if path := os.environ.get("FXMINIFY_TRUTH"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"program": name, "statements": found.count, "false": found.false}) + "\n")
    assert found.false == []
    assert found.count > 0


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else (pytest.mark.slow,)) for n in sorted(PLANTED)]
)
def test_no_statement_about_a_planted_failure_is_false(name: str, tmp_path: Path) -> None:
    truth = PLANTED[name]
    options = ["--check"] if truth.get("check") else []
    captured = minify("capture", *options, PROGRAMS / f"{name}.py", cwd=tmp_path, OMP_NUM_THREADS="1")
    done = minify("run", "repro.db", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, (captured.stderr, done.stderr)
    (row,) = (r for r in json.loads(done.stdout) if r["id"] == 1)
    assert (row["state"], row["kind"]) == ("verified", truth["kind"]), done.stderr
    script = minify("repro", "repro.db", "1", cwd=tmp_path).stdout
    assert truth["culprit"] in script
    assert row["nodes_after"] == truth.get("nodes", 1), script
    shown(name, checked(tmp_path, 1, truth, PROGRAMS))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REAL))
def test_no_statement_about_a_real_failure_is_false(name: str, tmp_path: Path) -> None:
    real_failures.skip_if_gone(name)
    want = real_failures.constants(name)
    options = ["--check", want.get("CHECK", "first:2")] if want["KIND"] == "divergence" else []
    if want["KIND"] == "hang":
        options += ["--timeout", "60"]
    drive = real_failures.FOLDER / "drive.py"
    captured = minify("capture", *options, drive, name, cwd=tmp_path, OMP_NUM_THREADS="1")
    done = minify("run", "repro.db", "1", "--json", cwd=tmp_path)
    (row,) = (r for r in json.loads(done.stdout) if r["id"] == 1)
    assert row["state"] == "verified", (captured.stderr, done.stderr)
    shown(name, checked(tmp_path, 1, REAL[name], real_failures.FOLDER))
