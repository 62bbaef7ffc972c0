"""`pytest --minify-capture`: what a test suite shows of its backends, in one process and with several workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from indexes import captures

ENTRY = "[pytest11]\nfxminify = fxminify.backends.capture.pytest_plugin\n"
CONFTEST = """
import pytest, torch
torch.set_num_threads(1)

@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
"""
SUITE = """
import pytest, torch

def refuses(gm, inputs):
    raise NotImplementedError("no lowering for " + next(n.name for n in gm.graph.nodes if n.op == "call_function"))

def swaps(gm, inputs):
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm.forward

class TestModel:
    @pytest.mark.parametrize("path", ["a b/c.txt"])
    def test_fails(self, path):
        torch.compile(lambda x: torch.sin(x), backend=refuses)(torch.ones(3))

def test_again():
    with pytest.raises(Exception, match="no lowering"):
        torch.compile(lambda x: torch.sin(x), backend=refuses)(torch.ones(3))

def test_expected():
    with pytest.raises(Exception, match="no lowering"):
        torch.compile(lambda x: torch.exp(x), backend=refuses)(torch.ones(3))

@pytest.mark.xfail
def test_expected_too():
    torch.compile(lambda x: torch.cosh(x), backend=refuses)(torch.ones(3))

def test_wrong_numbers():
    torch.compile(lambda x: torch.sin(x) + 1, backend=swaps)(torch.ones(3))

def test_own_mistake():
    raise ValueError("no backend's fault")
"""
HEALTHY = """
import sys

def test_nothing_is_loaded():
    loaded = {m for m in sys.modules if m.startswith("fxminify.")}
    plugins = {"fxminify.backends.capture.pytest_plugin", "fxminify.minifier.regression.pytest_cases"}
    packages = {"fxminify.backends", "fxminify.minifier"} | {name.rpartition(".")[0] for name in plugins}
    assert loaded - packages <= plugins
    assert "fxminify.backends.capture.pytest_plugin" in loaded
    assert "torch" not in sys.modules
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with an installed plugin and a test suite beside it."""
    (tmp_path / "site" / "fxminify_plugin-0.dist-info").mkdir(parents=True)
    (tmp_path / "site" / "fxminify_plugin-0.dist-info" / "entry_points.txt").write_text(ENTRY)
    (tmp_path / "site" / "fxminify_plugin-0.dist-info" / "METADATA").write_text("Name: fxminify-plugin\nVersion: 0\n")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_model.py").write_text(SUITE)
    (tmp_path / "tests" / "unit" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "test_healthy.py").write_text(HEALTHY)
    return tmp_path


def run(folder: Path, *args: str, module: tuple[str, ...] = ("pytest",)) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "FXMINIFY", "COLUMNS"))}
    environment = {**inherited, "PYTHONPATH": str(folder / "site"), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        *module,
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--import-mode=importlib",
        *args,
    ]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_without_the_option_it_does_nothing(suite: Path) -> None:
    done = run(suite, "tests/test_healthy.py")
    assert (done.returncode, done.stdout.splitlines()[-1].partition(" in ")[0]) == (0, "1 passed"), done.stdout
    assert [p.name for p in suite.iterdir() if p.suffix == ".db"] == []


def test_every_failure_of_a_backend_is_a_row_that_names_its_test(suite: Path) -> None:
    """And the tracebacks are those of the suite without us."""
    done = run(suite, "tests/unit", "--minify-capture", "repro.db", "--minify-check")
    rows = captures(suite / "repro.db")
    assert [(r.kind, r.occurrences, r.provenance["test"]) for r in rows] == [
        ("compile_error", 2, "test_model.py::TestModel::test_fails[c.txt]"),
        ("compile_error", 1, "test_model.py::test_expected"),
        ("compile_error", 1, "test_model.py::test_expected_too"),
        ("divergence", 1, "test_model.py::test_wrong_numbers"),
    ]
    shown, _, summary = done.stdout.partition("failures of torch.compile backends ")
    assert summary.splitlines()[4:6] == [
        "4 divergence in swaps: test_model.py::test_wrong_numbers",
        "fxminify: captured 4 new; next: minify run repro.db",
    ]
    assert ("no lowering for sin" in shown, "hook.py" in shown) == (True, False)
    assert "\n2 failed, 3 passed, 1 xfailed" in done.stdout
    assert done.returncode == 1


@pytest.mark.slow
def test_two_workers_write_into_one_file_and_known_failures_are_said_to_be_known(suite: Path) -> None:
    pytest.importorskip("xdist")
    for known in ("3 new", "0 new, 3 known"):
        done = run(suite, "tests/unit", "-n", "2", "--minify-capture", "repro.db")
        assert done.stdout.count(f"fxminify: captured {known}; next: minify run repro.db") == 1
    rows = captures(suite / "repro.db")
    assert sorted((row.kind, row.occurrences) for row in rows) == [
        ("compile_error", 2),
        ("compile_error", 2),
        ("compile_error", 4),
    ]


def test_a_healthy_suite_makes_no_file(suite: Path) -> None:
    (suite / "tests" / "test_healthy.py").write_text("def test_nothing(): pass\n")
    done = run(suite, "tests/test_healthy.py", "--minify-capture", "repro.db")
    assert done.returncode == 0
    assert "fxminify: no failure of a backend was seen" in done.stdout
    assert not (suite / "repro.db").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--minify-check",), "ERROR: --minify-check needs --minify-capture DB"),
        (("--minify-capture", "nowhere/x.db"), "ERROR: --minify-capture: "),
    ],
)
def test_bad_options_are_refused_before_anything_runs(suite: Path, options: tuple[str, ...], said: str) -> None:
    done = run(suite, "tests/unit", *options)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(said)


@pytest.mark.slow
def test_under_minify_capture_the_command_has_the_word(suite: Path) -> None:
    """It outlives crashes, too; the test is named all the same."""
    done = run(
        suite, "tests/unit", "-k", "expected_too", "--minify-capture", "mine.db",
        module=("fxminify", "capture", "--db", "theirs.db", "-m", "pytest"),
    )  # fmt: skip
    assert [r.provenance["test"] for r in captures(suite / "theirs.db")] == ["test_model.py::test_expected_too"]
    assert not (suite / "mine.db").exists()
    assert "minify: captured 1 failure (1 compile error); next: minify run theirs.db" in done.stderr
