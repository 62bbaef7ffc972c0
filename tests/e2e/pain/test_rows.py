"""What users of PyTorch's own minifier complain about, row by row, each as a small failing program.

The failures of `programs/rows.py` are captured by one run of the program and minified by one `minify run`; each test
looks at one of them. Rows that no such program can show are tests of their own below; these are proven elsewhere, too:

* 1, 10, 12 and 23, also where no slow tests are asked for: ``tests/e2e/cli/test_journey.py`` and ``test_elsewhere.py``
* 15, a float64 reference and gradients of random cotangents: ``tests/torch/backends/test_compare.py``
* 27, failures of a later call: ``tests/torch/backends/test_hook.py`` and ``tests/torch/minifier/test_replay.py``
* 28, symbolic sizes: row 20 here, and ``tests/unit/quality/test_exact_graphs.py``
* 29, every ambient state there and back: ``tests/process/backends/test_ambient.py``
* 34, tensors of every layout, and what is refused: ``tests/torch/store/test_tensors.py``

The backends are in `programs/team.py`, a module beside the program, as a team keeps them. The rows are minified only
where slow tests are asked for.
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
from desks import invoke

import fxminify
from fxminify.store.index import Index
from fxminify.store.live.build import build

PROGRAMS = Path(__file__).parents[2] / "programs" / "pain"


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
    found: list[dict[str, Any]] = json.loads(invoke(directory, "list", "--json").stdout)
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
        text = invoke(self.directory, "repro", "repro.db", row["id"]).stdout
        assert len(text.splitlines()) < 45
        return text


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """What is left of every row. Of row 14, half of the replays pass."""
    directory = tmp_path_factory.mktemp("rows")
    minify("capture", str(PROGRAMS / "rows.py"), cwd=directory)
    (flaky,) = (str(row["id"]) for row in rows_of(directory) if row["backend"] == "row14")
    minify("run", "--no-explain", "repro.db", flaky, "--runs", "1", "--replays", "12", cwd=directory)
    minify("run", "--no-explain", "--runs", "1", "--replays", "2", cwd=directory)
    return Session(directory, rows_of(directory))


def body(script: str) -> str:
    """The function of a script."""
    return script.partition("def forward")[2].partition("\n\n")[0]


@pytest.mark.slow
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


@pytest.mark.slow
def test_03_a_divergence_of_a_backend_that_returns_a_function_is_captured(tmp_path: Path) -> None:
    program = "import team, torch\ntorch.compile(lambda x: torch.sin(x * 2) + 1, backend=team.row03)(torch.ones(4))\n"
    (tmp_path / "program.py").write_text(program)
    done = minify("capture", "--check", "program.py", cwd=tmp_path, PYTHONPATH=str(PROGRAMS))
    assert done.returncode == 0
    minify("run", "--no-explain", "--runs", "1", cwd=tmp_path)
    (row,) = rows_of(tmp_path)
    assert (row["kind"], row["state"], row["nodes_after"]) == ("divergence", "verified", 1)
    assert "torch.sin" in body(minify("repro", "repro.db", "1", cwd=tmp_path).stdout)


@pytest.mark.slow
def test_04_a_failure_of_an_aot_backend_in_backward_is_captured_like_any_other(session: Session) -> None:
    (row,) = (r for r in session.rows if r["failure"]["type"] == "ValueError")
    assert (row["state"], row["phase"], row["nodes_after"]) == ("verified", "backward", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "line"),
    [
        ("partial(_limited)", "from team import row05"),
        ("in_script", "def in_script(gm, inputs):"),
    ],
)
def test_05_a_backend_that_is_not_registered_is_imported_or_embedded(session: Session, backend: str, line: str) -> None:
    assert line in session.script(backend)


@pytest.mark.slow
def test_05_the_instance_of_a_method_is_made_again(session: Session) -> None:
    assert 'backend=Compiler(refuses="exp").lower' in session.script("Compiler.lower")


@pytest.mark.slow
def test_05_a_counting_failure_ends_at_the_count(session: Session) -> None:
    assert session.row("partial(_limited)")["nodes_after"] == 3


@pytest.mark.slow
def test_06_options_reach_the_script_and_only_those_that_matter(session: Session) -> None:
    assert 'torch.compile(forward, backend="row06", options={"fuse": True})' in session.script("row06")


@pytest.mark.slow
def test_07_the_graph_is_the_one_that_the_backend_was_given(session: Session) -> None:
    assert "torch.sin" in body(session.script("row07"))


@pytest.mark.slow
def test_09_the_library_of_a_custom_operator_is_imported(session: Session) -> None:
    assert "torch.ops.team.double" in session.script("row09")


@pytest.mark.slow
def test_10_another_bug_with_a_similar_message_is_another_bug(session: Session) -> None:
    script = session.script("row10")
    assert session.row("row10")["nodes_after"] == 1
    assert "torch.relu" in body(script)
    (other,) = (r for r in session.rows if r["parent"] == session.row("row10")["id"])
    assert other["failure"]["message"] == "cannot lower the other function"


@pytest.mark.slow
def test_11_what_eager_refuses_never_reaches_the_backend(session: Session) -> None:
    assert session.row("row11")["nodes_after"] == 1
    assert "matmul" in body(session.script("row11"))


@pytest.mark.slow
def test_12_a_failure_that_does_not_show_again_is_not_minified(session: Session) -> None:
    row = session.row("row12")
    assert (row["state"], row["nodes_after"]) == ("not_reproduced", None)
    done = minify("repro", "repro.db", str(row["id"]), cwd=session.directory)
    assert (done.returncode, "has no script" in done.stderr) == (2, True)


@pytest.mark.slow
def test_13_every_script_was_run_before_it_is_shown(session: Session) -> None:
    assert all(r["verified"] for r in session.rows if r["state"] == "verified")
    states = {r["state"] for r in session.rows if r["parent"] is None and r["backend"] not in ("row12", "row14")}
    assert states == {"verified"}


@pytest.mark.slow
def test_14_a_failure_that_comes_and_goes_is_minified_by_votes(session: Session) -> None:
    """It fails in half of its runs, so all three runs of the script may pass: then the row says so."""
    row = session.row("row14")
    assert row["nodes_after"] == 1
    assert row["state"] in ("verified", "unverified")


@pytest.mark.slow
def test_16_no_backward_pass_where_forward_fails(session: Session) -> None:
    script = session.script("row16")
    assert "backward" not in script
    assert "requires_grad" not in script


def test_17_the_inputs_of_the_caller_stay_as_they_are() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.add_(1)) * 2

    gm, x = torch.fx.symbolic_trace(f), torch.zeros(3)
    smaller, _ = fxminify.reduce(gm, [x], lambda g, i: any(n.target is torch.relu for n in g.graph.nodes))
    assert torch.equal(x, torch.zeros(3))
    assert [n.target for n in smaller.graph.nodes if n.op.startswith("call")] == [torch.relu]
    _, recorded = fxminify.reduce(
        gm, [x], lambda g, i: any(n.target is torch.relu for n in g.graph.nodes), stages=["remove"]
    )
    assert torch.equal(recorded[0], torch.ones(3))
    assert torch.equal(x, torch.zeros(3))


@pytest.mark.slow
def test_18_what_lies_between_two_needed_operations_goes(session: Session) -> None:
    assert session.row("row18")["nodes_before"] == 42
    assert session.row("row18")["nodes_after"] == 2


@pytest.mark.slow
def test_20_a_symbolic_size_stays_where_it_matters(session: Session) -> None:
    assert "torch._dynamo.mark_dynamic(" in session.script("row20")


@pytest.mark.slow
def test_21_a_backend_that_dies_is_minified_to_one_operation(tmp_path: Path) -> None:
    row = died("row21", tmp_path)
    assert (row["kind"], row["state"], row["nodes_after"]) == ("crash", "verified", 1)


@pytest.mark.slow
def test_22_a_backend_that_hangs_is_minified_to_one_operation(tmp_path: Path) -> None:
    row = died("row22", tmp_path, "--timeout", "8")
    assert (row["kind"], row["state"], row["nodes_after"]) == ("hang", "verified", 1)


@pytest.mark.slow
def test_22_what_is_left_of_a_hang_lasts_longer_than_its_script_waits(tmp_path: Path) -> None:
    """A backend that takes longer the more nodes there are: the search for its limit of 3 s ends at 4 nodes, whose
    script would come to its end on a machine that is a little faster. So it goes on where it takes 13.5 s."""
    row = died("row22_slow", tmp_path, "--timeout", "3")
    assert (row["kind"], row["state"], row["nodes_after"]) == ("hang", "verified", 8)
    script = minify("repro", "repro.db", "1", cwd=tmp_path, PYTHONPATH=str(PROGRAMS)).stdout
    assert "signal.alarm(5)\n" in script
    made = minify("report", "repro.db", "1", "--bundle", "all.zip", "--json", cwd=tmp_path, PYTHONPATH=str(PROGRAMS))
    ran = [f for f in json.loads(made.stdout)["files"] if f["runs"]]
    assert [(f["verified"], f["tentative"]) for f in ran] == [(1, ""), (2, ""), (2, ""), (2, "")]


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
    minify("run", "--no-explain", "--runs", "1", cwd=directory)
    (row,) = rows_of(directory)
    return row


@pytest.mark.slow
def test_23_a_backend_that_cannot_be_imported_is_no_failure_of_the_graph(tmp_path: Path) -> None:
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
    minify("run", "--no-explain", cwd=tmp_path)
    (row,) = rows_of(tmp_path)
    assert (row["state"], "gone" in row["reason"]) == ("blocked", True)


@pytest.mark.slow
def test_25_a_second_run_repeats_no_question(session: Session) -> None:
    before = session.row("row18")
    minify("run", "--no-explain", "repro.db", str(before["id"]), "--again", "--runs", "1", cwd=session.directory)
    (after,) = (r for r in rows_of(session.directory) if r["id"] == before["id"])
    assert (after["state"], after["queries"]) == ("verified", before["queries"])


@pytest.mark.slow
def test_26_each_failure_of_a_process_is_a_row_and_is_counted(session: Session) -> None:
    assert session.row("row14")["occurrences"] >= 2
    assert len({r["signature"] for r in session.rows if r["parent"] is None}) == len(
        [r for r in session.rows if r["parent"] is None]
    )


@pytest.mark.slow
def test_27_a_failure_of_the_second_call_is_called_twice(session: Session) -> None:
    script = session.script("row27")
    assert session.row("row27")["nodes_after"] == 1
    assert "for _ in range(2):" in script


def test_15_what_is_nearer_to_the_truth_than_eager_is_no_divergence(tmp_path: Path) -> None:
    """And a loss that is the same on the whole does not hide wrong gradients: each is compared."""

    def exact(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return lambda *args: [r.to(torch.float32) for r in gm(*(a.double() for a in args))]

    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.roll(1)

    def shifts_gradients(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return lambda *args: [Shifted.apply(r) for r in gm(*args)]  # type: ignore[no-untyped-call]

    x = torch.linspace(-1, 1, 64)
    for backend, y in ((exact, x * 1e4), (shifts_gradients, x.clone().requires_grad_())):
        torch._dynamo.reset()
        with fxminify.capturing(str(tmp_path / f"{backend.__name__}.db"), check=True):
            result = torch.compile(lambda x: torch.cumsum(torch.exp(torch.cos(x)), 0), backend=backend)(y)
            if y.requires_grad:
                result.sum().backward()
    torch._dynamo.reset()
    assert not (tmp_path / "exact.db").exists()
    with Index.open(str(tmp_path / "shifts_gradients.db"), readonly=True) as index:
        assert [(row.kind, row.phase) for row in index.captures.find()] == [("divergence", "backward")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "line"),
    [
        ("row29", 'with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):'),
        ("row29_double", "torch.set_default_dtype(torch.float64)"),
    ],
)
def test_29_modes_around_the_call_are_in_the_script(session: Session, backend: str, line: str) -> None:
    assert line in session.script(backend)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "operator"), [("row30_cond", "cond"), ("row30_flex", "ops.higher_order.flex_attention")]
)
def test_30_higher_order_operators_are_captured_and_verified(session: Session, backend: str, operator: str) -> None:
    assert f"torch.{operator}(" in session.script(backend)


@pytest.mark.slow
def test_31_modules_of_a_model_are_operations_on_inputs(session: Session) -> None:
    script = session.script("row31")
    assert "torch.nn.functional.group_norm(" in script
    assert "torch.nn.functional.silu(" in script


class Refused31(torch.nn.Module):
    """Modules that PyTorch's minifier has no text for."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(2, 4)
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.rms = torch.nn.RMSNorm(4)
        self.up = torch.nn.Upsample(scale_factor=2)
        self.bag = torch.nn.EmbeddingBag(8, 4)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x = self.rms(self.norm(x.transpose(1, 2)).transpose(1, 2))
        out: torch.Tensor = self.up(self.attention(x, x, x)[0]) + self.bag(index).sum()
        return out


def test_31_modules_that_stay_in_a_graph_are_stored(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(Refused31().eval())
    assert len([n for n in gm.graph.nodes if n.op == "call_module"]) == 5
    inputs = [torch.randn(2, 3, 4), torch.tensor([[1, 2]])]
    fxminify.record(gm, inputs, backend="eager", db=str(tmp_path / "x.db"), error=RuntimeError("refused"))
    with Index.open(str(tmp_path / "x.db"), readonly=True) as index:
        (row,) = index.captures.find()
        case = index.captures.case(row.id)
        again, values = build(case, index.blobs.view(case.storages))
    assert row.state == "pending"
    assert torch.equal(again(*values), gm(*inputs))


@pytest.mark.slow
def test_32_a_buffer_keeps_the_values_that_matter(session: Session) -> None:
    assert "torch.arange(1000, dtype=torch.float32)" in session.script("row32")


@pytest.mark.slow
def test_33_a_script_alone_shows_the_failure_of_integers(session: Session, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(session.script("row33"))
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS)}
    done = subprocess.run(
        [sys.executable, "alone.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "index outside of the table" in done.stderr) == (1, True)


def tagged() -> torch.Tensor:
    """Of a class that no module has."""

    class Tagged(torch.Tensor):
        pass

    made: torch.Tensor = torch.ones(4, 4).as_subclass(Tagged)
    return made


@pytest.mark.parametrize(
    ("value", "state", "reason"),
    [
        (torch.eye(4).to_sparse(), "pending", ""),
        (torch.eye(4).to_sparse_csr(), "pending", ""),
        (torch.quantize_per_tensor(torch.ones(4, 4), 0.5, 0, torch.qint8), "pending", ""),
        (torch.eye(4).to_mkldnn(), "pending", ""),
        (tagged(), "unsupported", "Tagged"),
    ],
    ids=["coo", "csr", "quantized", "mkldnn", "subclass"],
)
def test_34_a_tensor_comes_back_as_it_was_or_is_refused_by_name(
    value: torch.Tensor, state: str, reason: str, tmp_path: Path
) -> None:
    gm = torch.fx.symbolic_trace(lambda x: x.relu())
    fxminify.record(gm, [value], backend="eager", db=str(tmp_path / "x.db"), error=RuntimeError("refused"))
    with Index.open(str(tmp_path / "x.db"), readonly=True) as index:
        (row,) = index.captures.find()
        assert (row.state, reason in row.reason) == (state, True)
        if state == "pending":
            case = index.captures.case(row.id)
            (again,) = build(case, index.blobs.view(case.storages))[1]
            assert (again.layout, again.dtype) == (value.layout, value.dtype)
            dense = torch.Tensor.dequantize if value.is_quantized else torch.Tensor.to_dense
            assert torch.equal(dense(again), dense(value))


@pytest.mark.slow
def test_35_collectives_run_in_one_process(session: Session) -> None:
    script = session.script("row35")
    assert 'torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)' in script
    assert "torch.ops._c10d_functional.all_reduce(" in script


def test_36_a_triton_kernel_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with the reason and the graph's text; no script is written. On a GPU eager runs it; here it is said to."""
    monkeypatch.setattr("fxminify.backends.capture.manual.refusal", lambda *given, **options: "")
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation

    def scale_rows(pointer: Any) -> None:
        """Stands for what ``triton.jit`` would make of it; Triton needs a GPU."""

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    number = kernel_side_table.add_kernel(scale_rows)
    launch: dict[str, Any] = {
        "kernel_idx": number,
        "constant_args_idx": 0,
        "grid": [(1, 1, 1)],
        "tma_descriptor_metadata": {},
    }
    graph.call_function(triton_kernel_wrapper_mutation, (), {**launch, "kwargs": {"pointer": x}})
    graph.output((x,))
    gm = torch.fx.GraphModule({}, graph)
    db = str(tmp_path / "x.db")
    fxminify.record(gm, [torch.ones(4)], backend="eager", db=db, error=RuntimeError("no Triton"))
    with Index.open(db, readonly=True) as index:
        (row,) = index.captures.find()
    assert row.state == "unsupported"
    assert row.reason.startswith(
        "node 'triton_kernel_wrapper_mutation': the Triton kernel 'scale_rows' cannot be stored"
    )
    assert "triton_kernel_wrapper_mutation" in row.graph_text
    done = minify("repro", "x.db", "1", cwd=tmp_path)
    said = f"Error: capture 1 has no script, and cannot have one: {row.reason}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
