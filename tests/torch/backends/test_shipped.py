"""The backends fxminify ships besides ONNX Runtime: what they compute, what they say, and what they hide (nothing)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.backends.common import fake_tensor_unsupported
from torch.fx.experimental.proxy_tensor import make_fx

import fxminify
from fxminify.backends.shipped.chain import registered as chain_by_name
from fxminify.backends.shipped.faulty import FAULTS, faulty
from fxminify.backends.shipped.options_reader import InvalidOption
from fxminify.backends.shipped.print_graph import print_graph
from fxminify.backends.shipped.torchscript import optimize_for_inference
from fxminify.store.index import Index

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.sin(x)) * 2


def points() -> torch.Tensor:
    return torch.linspace(-1, 1, 5, requires_grad=True)


def gradient(function: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(function(x).sum(), x)
    return found


def planted(fault: str, op: str = "relu") -> Callable[..., Any]:
    return partial(faulty, options={"fault": fault, "op": op})


@pytest.mark.parametrize("fault", ["compile_error", "runtime_error", "out_of_memory"])
def test_a_chain_goes_on_where_a_backend_fails_and_captures_what_it_was(
    fault: str, tmp_path: Path, own_log: pytest.LogCaptureFixture
) -> None:
    db = str(tmp_path / "repro.db")
    compiled = torch.compile(model, backend=fxminify.chain(planted(fault), "aot_eager", db=db))
    with own_log.at_level(logging.WARNING):
        for _ in range(2):
            assert torch.equal(compiled(points()), model(points()))
            assert torch.equal(gradient(compiled, points()), gradient(model, points()))
    assert "backend partial(faulty) failed" in own_log.text
    assert "trying aot_eager" in own_log.text
    with Index.open(db, readonly=True) as index:
        (row,) = index.captures.find()
    assert (row.kind, row.backend) == (fault, "partial(faulty)")


def test_what_a_chain_cannot_take_over_is_raised_and_captured(tmp_path: Path) -> None:
    db = str(tmp_path / "repro.db")
    with fxminify.capturing(db):
        compiled = torch.compile(model, backend=fxminify.chain(planted("backward_error"), "eager"))
        with pytest.raises(RuntimeError, match="planted: cannot run the backward pass of relu"):
            gradient(compiled, points())
        last = fxminify.chain(planted("compile_error"), planted("compile_error", "sin"))
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="cannot compile sin") as raised:
            torch.compile(lambda x: model(x) + 1, backend=last)(points())
    (note,) = raised.value.inner_exception.__notes__
    assert note == "partial(faulty), tried before: PlantedFault: planted: cannot compile relu"
    with Index.open(db, readonly=True) as index:
        assert [row.phase for row in index.captures.find()] == ["backward", "compile", "compile"]


def test_a_chain_does_not_run_again_what_has_overwritten_its_inputs(tmp_path: Path) -> None:
    def overwrites(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.relu(x)

    backend = fxminify.chain(planted("runtime_error"), "eager", db=str(tmp_path / "repro.db"))
    with pytest.raises(RuntimeError, match="planted") as raised:
        torch.compile(overwrites, backend=backend)(torch.zeros(3))
    assert raised.value.__notes__ == ["eager was not tried: the inputs are overwritten already"]


@pytest.mark.process
def test_a_chain_keeps_dynamic_shapes_when_it_takes_over(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.relu(x.view(-1, x.shape[0]) * n)

    backend = fxminify.chain(planted("runtime_error"), "aot_eager", db=str(tmp_path / "repro.db"))
    compiled = torch.compile(scaled, backend=backend, dynamic=True)
    for size, by in ((3, 7), (4, 8), (5, 9)):
        assert torch.equal(compiled(torch.ones(size, 2), by), scaled(torch.ones(size, 2), by))


@fake_tensor_unsupported  # type: ignore[arg-type]  # its type asks for a third argument that no backend has
def retraces(gm: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """Leaves symbols that come from no input in the frame's shape environment, as OpenVINO's backend does."""
    return make_fx(gm, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)


@pytest.mark.process
@pytest.mark.parametrize("installed", [False, True])
def test_a_chain_goes_on_where_guards_cannot_be_built(installed: bool, tmp_path: Path) -> None:
    def convolved(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.conv1d(x, weight))

    given: list[int] = []

    def last(gm: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
        given.append(sum(isinstance(value, torch.SymInt) for value in inputs))
        return gm

    db = str(tmp_path / "repro.db")
    weight = torch.randn(4, 2, 3)
    compiled = torch.compile(convolved, backend=fxminify.chain(retraces, last, db=db))
    with fxminify.capturing(db) if installed else nullcontext():
        for size in (9, 10, 11):
            x = torch.randn(size, 2, size)
            assert torch.equal(compiled(x, weight), convolved(x, weight))
    assert given == [0, 2], "the second compilation has symbolic sizes, and its guards hold for the third call"
    with Index.open(db, readonly=True) as index:
        assert {(row.phase, row.backend) for row in index.captures.find()} == {("guards", "retraces")}


def test_graph_breaks_go_through_a_chain(tmp_path: Path) -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        torch._dynamo.graph_break()
        return torch.relu(y)

    backend = fxminify.chain("aot_eager", "eager", db=str(tmp_path / "repro.db"))
    assert torch.equal(torch.compile(breaks, backend=backend)(points()), breaks(points()))
    assert not (tmp_path / "repro.db").exists()


def test_faults_show_at_their_operation_and_nowhere_else() -> None:
    for fault in FAULTS:
        torch._dynamo.reset()
        compiled = torch.compile(torch.sin, backend=planted(fault))
        assert torch.equal(compiled(points()), torch.sin(points()))
    torch._dynamo.reset()
    wrong = torch.compile(model, backend=planted("wrong_numbers"))
    assert not torch.allclose(wrong(points()), model(points()))
    torch._dynamo.reset()
    wrong = torch.compile(model, backend=planted("wrong_gradient"))
    assert torch.equal(wrong(points()), model(points()))
    assert torch.allclose(gradient(wrong, points()), gradient(model, points()) * 1.1)
    torch._dynamo.reset()
    random = torch.compile(model, backend=planted("nondeterminism"))
    assert not torch.equal(random(points()), random(points()))


def test_torchscript_computes_what_eager_computes_and_trains() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(5, 4)
    compiled = torch.compile(module, backend=optimize_for_inference)
    compiled(x).sum().backward()
    found = [p.grad for p in module.parameters()]
    module.zero_grad()
    module(x).sum().backward()
    torch.testing.assert_close(found, [p.grad for p in module.parameters()])
    module.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))


def test_torchscript_takes_symbolic_sizes() -> None:
    def sized(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.view(-1, x.shape[0]) * n + x.shape[0]

    compiled = torch.compile(sized, backend=optimize_for_inference, dynamic=True)
    for size in (3, 4, 5):
        assert torch.equal(compiled(torch.ones(size, 2), size), sized(torch.ones(size, 2), size))


def test_graphs_are_printed_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert torch.equal(torch.compile(model, backend=print_graph)(points()), model(points()))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["graph:", "5", "nodes"]
    assert shown[1].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert [line.split()[0] for line in shown[2:]] == ["placeholder", *["call_function"] * 3, "output"]
    torch._dynamo.reset()
    gradient(torch.compile(model, backend=print_graph, options={"level": "aot"}), points())
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in shown if ": " in line and "nodes" in line] == ["forward", "backward"]
    assert any("torch.ops.aten.relu.default" in line for line in shown)


def test_a_report_says_why_there_is_more_than_one_graph_and_who_would_refuse_which() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return y.sin() + y.sin()

    report = fxminify.Explain(backends=["aot_eager", planted("compile_error")])
    torch.compile(breaks, backend=report)(points())
    first, second = report.graphs
    assert (first.ops, second.ops) == ({"torch.relu": 1}, {"sin": 2, "_operator.add": 1})
    assert "graph_break" in first.ends
    assert first.at == f"{Path(__file__).name}:{breaks.__code__.co_firstlineno + 2}"
    assert first.verdicts == {"aot_eager": "", "partial(faulty)": "PlantedFault: planted: cannot compile relu"}
    assert second.ends == ""
    assert second.verdicts == {"aot_eager": "", "partial(faulty)": ""}
    assert str(report).splitlines()[0] == "2 graphs, 4 operations, 1 graph break"
    assert report.to_json()["graphs"][1]["nodes"] == 3


@pytest.mark.parametrize(
    ("backend", "options", "said"),
    [
        (faulty, {"falt": "crash"}, "the backend 'fxminify_faulty' has no option 'falt'; did you mean 'fault'?"),
        (faulty, {"fault": "crsh"}, "the backend 'fxminify_faulty' has no fault 'crsh'; did you mean 'crash'?"),
        (print_graph, {"level": "inductor"}, "has no level 'inductor'; its levels are dynamo, aot"),
        (optimize_for_inference, {"freeze": True}, "has no option 'freeze'; its options are none"),
        (chain_by_name, {"backends": "inductor"}, "is a list of names, not 'inductor'"),
    ],
)
def test_an_unknown_option_is_an_error_with_the_nearest_name(
    backend: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOption) as raised:
        backend(None, [], options=options)
    assert said in str(raised.value)
