"""Variables, factories and classes of tensors that a failure needs are in its script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from desks import Desk

PROGRAMS = Path(__file__).parents[2] / "programs" / "needs"
pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, tmp_path)
    return Desk(tmp_path)


def script(desk: Desk, program: str, *options: str, **variables: str) -> str:
    """The script of the one failure of ``program``, made where ``variables`` are set for the capture alone."""
    captured = desk.minify("capture", "--db", desk.db, *options, program, **variables)
    assert "captured 1 failure" in captured.stderr, captured.stderr
    done = desk.minify("run", desk.db)
    assert "verified" in done.stdout + done.stderr, done.stderr
    return desk.minify("repro", desk.db, "1").stdout


def exit_code(text: str, folder: Path, **variables: str) -> int:
    (folder / "made").mkdir(exist_ok=True)
    (folder / "made" / "repro.py").write_text(text)
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    return subprocess.run([sys.executable, "repro.py"], cwd=folder / "made", env=known, check=False).returncode


def test_the_variable_that_it_needs_is_set_and_what_matters_says_so(desk: Desk) -> None:
    text = script(desk, "needs_a_variable.py", "--check", ACME_OPT="2", TERM="xterm")
    assert 'os.environ["ACME_OPT"] = "2"' in text
    assert exit_code(text, desk.path) == 1
    assert exit_code(text.replace('os.environ["ACME_OPT"] = "2"', ""), desk.path) == 0
    assert "Needs ACME_OPT = 2" in desk.minify("show", desk.db, "1").stdout


def test_a_factory_of_a_package_is_called_so_that_what_its_vendor_mends_is_gone(desk: Desk) -> None:
    text = script(desk, "factory_of_a_package.py")
    assert "from vendor_cc import make_backend" in text
    assert "torch.compile(forward, backend=make_backend(2))(x)" in text
    assert exit_code(text, desk.path, PYTHONPATH=str(desk.path)) == 1
    vendor = desk.path / "vendor_cc.py"
    vendor.write_text(vendor.read_text().replace("if level > 1 and", "if False and"))
    assert exit_code(text, desk.path, PYTHONPATH=str(desk.path)) == 0
    assert '"result": "fixed"' in desk.minify("retest", desk.db, "--json").stdout


def test_a_tensor_keeps_its_class_where_the_failure_needs_it(desk: Desk) -> None:
    text = script(desk, "plain_tensor_subclass.py")
    assert "class Tagged(torch.Tensor):\n    pass\n" in text
    assert ".as_subclass(Tagged)" in text
    assert exit_code(text, desk.path) == 1
    assert exit_code(text.replace(".as_subclass(Tagged)", ""), desk.path) == 0


def test_a_check_does_not_hide_a_failure_that_needs_the_class(desk: Desk) -> None:
    done = desk.minify("capture", "--db", desk.db, "--check", "plain_tensor_subclass.py")
    assert "captured 1 failure" in done.stderr
