"""Statements of reports are true: they are checked against conditions that are known of planted failures.

The statements about real failures are checked by ``tests/e2e/test_real_failures.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import truths
from truths import minify

PROGRAMS = Path(__file__).parents[1] / "programs" / "truth"
PLANTED = truths.known(PROGRAMS)
#: In the default tests: a threshold of a size, an argument, wrong values.
QUICK = {"13_default_stride"}


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
    truths.assert_true(name, truths.about_reports(tmp_path, 1, truth, PROGRAMS))
