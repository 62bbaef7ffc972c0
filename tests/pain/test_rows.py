"""What users of PyTorch's own minifier complain about, row by row, each as a small failing program.

The failures of `programs/rows.py` are captured by one run of the program and minified by one `minify run`; each test
looks at one of them. The backends are in `programs/team.py`, a module beside the program, as a team keeps them. The
rows that `QUICK` does not name are minified only where slow tests are asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import fxminify

PROGRAMS = Path(__file__).parent / "programs"
QUICK = {"row01", "partial(_limited)", "in_script", "row06", "row10", "row12", "row18", "row27"}


def minify(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fxminify", *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def rows_of(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(minify("list", "--json", cwd=directory).stdout)
    return found


@dataclass(frozen=True)
class Session:
    directory: Path
    rows: list[dict[str, Any]]

    def row(self, backend: str) -> dict[str, Any]:
        (found,) = (r for r in self.rows if r["backend"] == backend and r["parent"] is None)
        return found

    def script(self, backend: str) -> str:
        row = self.row(backend)
        assert (row["state"], row["reason"]) == ("verified", "")
        text = minify("repro", "repro.db", str(row["id"]), cwd=self.directory).stdout
        assert len(text.splitlines()) < 40
        return text


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    directory = tmp_path_factory.mktemp("rows")
    minify("capture", str(PROGRAMS / "rows.py"), cwd=directory, ROW12="fails")
    quick = [str(r["id"]) for r in rows_of(directory) if r["backend"] in QUICK]
    minify("run", "repro.db", *quick, "--runs", "1", "--replays", "2", cwd=directory)
    return Session(directory, rows_of(directory))


@pytest.fixture(scope="module")
def whole(session: Session) -> Session:
    """The session after a run of everything that was left."""
    minify("run", "--runs", "1", "--replays", "2", cwd=session.directory)
    return Session(session.directory, rows_of(session.directory))


def body(script: str) -> str:
    """The function of a script."""
    return script.partition("def forward")[2].partition("\n\n")[0]


def test_01_the_script_imports_the_module_that_registers_the_backend(session: Session, tmp_path: Path) -> None:
    script = session.script("row01")
    assert 'import team  # registers the backend "row01"' in script
    (tmp_path / "repro.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS)}
    done = subprocess.run(
        [sys.executable, "repro.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "no lowering for sin" in done.stderr) == (1, True)


@pytest.mark.parametrize("returned", ["function", "method", "graph module", "module"])
def test_02_a_healthy_backend_computes_the_same_bits(returned: str, tmp_path: Path) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        choice = {"function": lambda *a: gm(*a), "method": gm.forward, "graph module": gm, "module": _Wrapped(gm)}
        return choice[returned]

    x = torch.randn(8)
    plain = torch.compile(lambda x: torch.sin(x) * 3, backend=backend)(x)
    torch._dynamo.reset()
    with fxminify.capturing(str(tmp_path / "repro.db"), check=True):
        watched = torch.compile(lambda x: torch.sin(x) * 3, backend=backend)(x)
    torch._dynamo.reset()
    assert torch.equal(plain, watched)
    assert not (tmp_path / "repro.db").exists()


class _Wrapped(torch.nn.Module):
    def __init__(self, inner: torch.fx.GraphModule) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        return self.inner(*args)


def test_03_a_divergence_of_a_backend_that_returns_a_function_is_captured(tmp_path: Path) -> None:
    program = "import team, torch\ntorch.compile(lambda x: torch.sin(x * 2) + 1, backend=team.row03)(torch.ones(4))\n"
    (tmp_path / "program.py").write_text(program)
    done = minify("capture", "--check", "program.py", cwd=tmp_path, PYTHONPATH=str(PROGRAMS))
    assert done.returncode == 0
    minify("run", "--runs", "1", cwd=tmp_path)
    (row,) = rows_of(tmp_path)
    assert (row["kind"], row["state"], row["nodes_after"]) == ("divergence", "verified", 1)
    assert "torch.sin" in body(minify("repro", "repro.db", "1", cwd=tmp_path).stdout)


@pytest.mark.slow
def test_04_a_failure_of_an_aot_backend_in_backward_is_captured_like_any_other(whole: Session) -> None:
    (row,) = (r for r in whole.rows if r["failure"]["type"] == "ValueError")
    assert (row["state"], row["phase"], row["nodes_after"]) == ("verified", "backward", 1)


@pytest.mark.parametrize(
    ("backend", "line"),
    [
        ("partial(_limited)", "from team import row05"),
        ("in_script", "def in_script(gm, inputs):"),
    ],
)
def test_05_a_backend_that_is_not_registered_is_imported_or_carried(session: Session, backend: str, line: str) -> None:
    assert line in session.script(backend)


@pytest.mark.slow
def test_05_the_instance_of_a_method_is_made_again(whole: Session) -> None:
    assert 'backend=Compiler(refuses="exp").lower' in whole.script("lower")


def test_05_a_counting_failure_ends_at_the_count(session: Session) -> None:
    assert session.row("partial(_limited)")["nodes_after"] == 3


def test_06_options_reach_the_script_and_only_those_that_matter(session: Session) -> None:
    assert 'torch.compile(forward, backend="row06", options={"fuse": True})' in session.script("row06")


@pytest.mark.slow
def test_07_the_graph_is_the_one_that_the_backend_was_given(whole: Session) -> None:
    assert "torch.sin" in body(whole.script("row07"))


@pytest.mark.slow
def test_09_the_library_of_a_custom_operator_is_imported(whole: Session) -> None:
    assert "torch.ops.team.double" in whole.script("row09")


def test_10_another_bug_with_a_similar_message_is_another_bug(session: Session) -> None:
    script = session.script("row10")
    assert session.row("row10")["nodes_after"] == 1
    assert "torch.relu" in body(script)
    (other,) = (r for r in session.rows if r["parent"] == session.row("row10")["id"])
    assert other["failure"]["message"] == "cannot lower sin"


@pytest.mark.slow
def test_11_what_eager_refuses_never_reaches_the_backend(whole: Session) -> None:
    assert whole.row("row11")["nodes_after"] == 1
    assert "matmul" in body(whole.script("row11"))


def test_12_a_failure_that_does_not_show_again_is_not_minified(session: Session) -> None:
    row = session.row("row12")
    assert (row["state"], row["nodes_after"]) == ("not_reproduced", None)
    done = minify("repro", "repro.db", str(row["id"]), cwd=session.directory)
    assert (done.returncode, "has no script" in done.stderr) == (2, True)


@pytest.mark.slow
def test_13_every_script_was_run_before_it_is_shown(whole: Session) -> None:
    assert all(r["verified"] for r in whole.rows if r["state"] == "verified")
    states = {r["state"] for r in whole.rows if r["parent"] is None and r["backend"] not in ("row12", "row14")}
    assert states == {"verified"}


@pytest.mark.slow
def test_14_a_failure_that_comes_and_goes_is_minified_by_votes(whole: Session) -> None:
    row = whole.row("row14")
    assert row["nodes_after"] == 1
    assert row["state"] in ("verified", "unverified")


@pytest.mark.slow
def test_16_no_backward_pass_where_forward_fails(whole: Session) -> None:
    script = whole.script("row16")
    assert "backward" not in script
    assert "requires_grad" not in script


def test_17_the_inputs_of_the_caller_stay_as_they_are() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.add_(1)) * 2

    gm, x = torch.fx.symbolic_trace(f), torch.zeros(3)
    smaller, inputs = fxminify.reduce(gm, [x], lambda g, i: any(n.target is torch.relu for n in g.graph.nodes))
    assert torch.equal(x, torch.zeros(3))
    assert [n.target for n in smaller.graph.nodes if n.op.startswith("call")] == [torch.relu]
    assert torch.equal(inputs[0], torch.ones(3))


def test_18_what_lies_between_two_needed_operations_goes(session: Session) -> None:
    assert session.row("row18")["nodes_before"] == 42
    assert session.row("row18")["nodes_after"] == 2


@pytest.mark.slow
def test_20_a_symbolic_size_stays_where_it_matters(whole: Session) -> None:
    assert "dynamic=True" in whole.script("row20")


def test_21_a_backend_that_dies_is_minified_to_one_operation(tmp_path: Path) -> None:
    row = died("row21", tmp_path)
    assert (row["kind"], row["state"], row["nodes_after"]) == ("crash", "verified", 1)


@pytest.mark.slow
def test_22_a_backend_that_hangs_is_minified_to_one_operation(tmp_path: Path) -> None:
    row = died("row22", tmp_path, "--timeout", "8")
    assert (row["kind"], row["state"], row["nodes_after"]) == ("hang", "verified", 1)


def died(backend: str, directory: Path, *options: str) -> dict[str, Any]:
    """The row of a backend that takes the process with it."""
    (directory / "program.py").write_text(
        "import team, torch\n"
        "def f(x):\n"
        "    for _ in range(4):\n"
        "        x = torch.cos(x) + 1\n"
        "    return torch.softmax(x, 0) * 2\n"
        f"torch.compile(f, backend={backend!r})(torch.ones(4))\n"
    )
    minify("capture", *options, "program.py", cwd=directory, PYTHONPATH=str(PROGRAMS))
    minify("run", "--runs", "1", cwd=directory)
    (row,) = rows_of(directory)
    return row


def test_23_a_backend_that_cannot_be_imported_is_no_failure_of_the_graph(session: Session, tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text(
        "from torch._dynamo import register_backend\n"
        "@register_backend\n"
        "def gone(gm, inputs):\n"
        "    raise RuntimeError('no lowering')\n"
    )
    program = "import gone, torch\ntorch.compile(lambda x: torch.sin(x), backend='gone')(torch.ones(2))\n"
    (tmp_path / "program.py").write_text(program)
    minify("capture", "program.py", cwd=tmp_path)
    (tmp_path / "gone.py").unlink()
    minify("run", cwd=tmp_path)
    (row,) = rows_of(tmp_path)
    assert (row["state"], "gone" in row["reason"]) == ("blocked", True)


def test_25_a_second_run_repeats_no_question(session: Session) -> None:
    before = session.row("row18")
    minify("run", "repro.db", str(before["id"]), "--again", "--runs", "1", cwd=session.directory)
    (after,) = (r for r in rows_of(session.directory) if r["id"] == before["id"])
    assert (after["state"], after["queries"]) == ("verified", before["queries"])


def test_26_each_failure_of_a_process_is_a_row_and_is_counted(session: Session) -> None:
    assert session.row("row14")["occurrences"] >= 2
    assert len({r["signature"] for r in session.rows if r["parent"] is None}) == len(
        [r for r in session.rows if r["parent"] is None]
    )


def test_27_a_failure_of_the_second_call_is_called_twice(session: Session) -> None:
    script = session.script("row27")
    assert session.row("row27")["nodes_after"] == 1
    assert "for _ in range(2):" in script
