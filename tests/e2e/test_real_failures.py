"""Confirmed failures of torch 2.13.0 on CPU, from program to verified script, as a user would do it.

`failures/` holds one ordinary program a failure; `failures/README.md` says what each is. A failure counts as minified
when its script was verified in fresh processes and has at most ``MIN_NODES`` compute nodes, and no statement of its
reports contradicts what is known of the program (``failures/truth.toml``).
"""

import json
from pathlib import Path
from typing import Any

import pytest
import truths
from desks import invoke
from real_failures import FOLDER, constants, skip_if_gone
from truths import minify

TRUTH = truths.known(FOLDER)
NAMES = sorted(path.stem for path in FOLDER.glob("[0-9]*.py"))
#: Seconds until a program is taken to hang; only the one that hangs needs it.
HANG = 60
#: Through every floor in the default tests. ``tests/process/minifier/test_minify.py`` takes one of TorchScript.
QUICK = {"005_put_stride"}

#: Where the kind is not the one its author gave: onnxruntime refuses while the backend still makes its session.
SEEN = {"047_ort_relu_int64": "compile_error"}

#: Where the result is still larger than it must be, and why.
LARGER = {
    "202_tcn_gapped_unfold": "an input that is written to does not take the place of a result that was computed from it"
}


#: The first of each kind of failure of each backend: of these, every file that is handed out is run.
FIRSTS = {
    (want["KIND"], want["BACKEND"]): name
    for name in reversed(NAMES)
    if name not in (*QUICK, *LARGER) and (want := constants(name))
}


def marks(name: str) -> list[pytest.MarkDecorator]:
    known = [pytest.mark.xfail(strict=True, reason=LARGER[name])] if name in LARGER else []
    return [pytest.mark.slow, *known]


@pytest.mark.parametrize("name", sorted(QUICK))
def test_from_program_to_verified_script_without_more(name: str, tmp_path: Path) -> None:
    minified(name, tmp_path, "--no-explain", "--replays", "1", "--runs", "1")


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in NAMES])
def test_from_program_to_verified_script_and_true_statements(name: str, tmp_path: Path) -> None:
    row = minified(name, tmp_path)
    if name in FIRSTS.values():
        made = minify("report", "repro.db", row["id"], "--bundle", "all.zip", "--json", cwd=tmp_path)
        files = {f["name"]: f for f in json.loads(made.stdout)["files"]}
        ran = [n for n in files if n.endswith((".py", ".ipynb"))]
        assert sorted(ran) == ["bisect_repro.py", "repro.ipynb", "repro.py", "test_repro.py", "test_upstream.py"]
        assert {n: files[n]["tentative"] for n in ran if not files[n]["verified"] or files[n]["tentative"]} == {}
    if name in TRUTH:
        truths.assert_true(name, truths.about_reports(tmp_path, row["id"], TRUTH[name], FOLDER))


def minified(name: str, tmp_path: Path, *options_of_run: str) -> dict[str, Any]:
    """The row of a program's failure, which has its script."""
    skip_if_gone(name)
    want = constants(name)
    options = ["--check", want.get("CHECK", "first:2")] if want["KIND"] == "divergence" else []
    if want["KIND"] == "hang":
        options += ["--timeout", str(HANG)]
    # With more threads the exception of 008 and 060 leaves a parallel region, which ends the process instead.
    captured = minify("capture", *options, FOLDER / "drive.py", name, cwd=tmp_path, OMP_NUM_THREADS="1")
    listed = json.loads(invoke(tmp_path, "list", "--json").stdout)
    assert [row["kind"] for row in listed] == [SEEN.get(name, want["KIND"])], captured.stderr
    done = minify("run", *options_of_run, "--json", cwd=tmp_path)
    row: dict[str, Any]
    (row,) = (r for r in json.loads(done.stdout) if r["parent"] is None)
    assert (row["state"], row["reason"]) == ("verified", ""), done.stderr
    assert row["nodes_after"] <= want["MIN_NODES"]
    script = invoke(tmp_path, "repro", "repro.db", row["id"]).stdout
    assert script.isascii()
    assert want.get("CULPRIT", "") in script
    assert "fxminify." not in script.replace("fxminify 0.", "")
    assert len(script.splitlines()) < want.get("LINES", 40 + want["MIN_NODES"])
    if want["BACKEND"] == "ort_export":
        assert "import ort_export" in script
    return row
