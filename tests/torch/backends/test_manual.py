"""`fxminify.record`: a function, a module or a graph module and its inputs, given by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

import fxminify
from fxminify.store.index import Index, State


def refuses(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
    if any("sin" in str(n.target) for n in gm.graph.nodes):
        raise NotImplementedError("no lowering for sin")
    return gm.forward


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, batch: dict[str, torch.Tensor], *, scale: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.layer(batch["x"])) * scale


def exported() -> fx.GraphModule:
    program = torch.export.export(Model(), ({"x": torch.randn(3, 4)},), {"scale": torch.ones(1)})
    return program.module()


def test_what_the_backend_does_with_it_is_stored_and_not_raised(db: str) -> None:
    gm = fx.symbolic_trace(lambda x, y: torch.sin(x) + y)
    inputs = [torch.ones(3), torch.zeros(3)]
    assert fxminify.record(gm, inputs, backend=refuses, db=db) == 1
    with Index.open(db) as index:
        (row,) = index.captures.find()
        assert (row.kind, row.nodes_before, row.occurrences) == ("compile_error", 2, 1)
        assert next(n.target for n in index.captures.case(1).graph.compute) == {"fn": "torch.sin"}
    assert fxminify.record(gm, inputs, backend=refuses, db=db) == 1
    assert fxminify.record(gm, inputs, backend="eager", db=db) is None


def test_what_was_compiled_before_is_compiled_again(db: str) -> None:
    """Dynamo would call again what it has made of the same graph module, and not ask the backend."""

    def fails_later(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        def run(*args: Any) -> Any:
            raise RuntimeError("no kernel")

        return run

    gm = fx.symbolic_trace(lambda x: torch.sin(x) + 1)
    with pytest.raises(RuntimeError, match="no kernel"):
        torch.compile(gm, backend=fails_later)(torch.ones(3))
    assert fxminify.record(gm, [torch.ones(3)], backend=fails_later, db=db) == 1


def test_a_failure_that_was_seen_elsewhere_is_stored_as_told(db: str) -> None:
    """And nothing is run; a graph of ``torch.export`` has its placeholders as inputs."""
    gm = exported()
    inputs = ({"x": torch.ones(3, 4)}, torch.full((1,), 2.0))
    error = RuntimeError("device lost")
    assert fxminify.record(gm, inputs, backend="inductor", db=db, error=error, phase="forward") == 1
    with Index.open(db) as index:
        (row,) = index.captures.find()
        case = index.captures.case(1)
    assert (row.state, row.kind, row.phase, row.nodes_before) == (State.PENDING, "runtime_error", "forward", 3)
    assert row.failure is not None
    assert row.failure.message == "device lost"
    assert len(case.inputs) == 2


def test_an_error_belongs_to_a_graph_module(db: str) -> None:
    with pytest.raises(TypeError, match=r"with an error record takes a torch\.fx\.GraphModule, not Model"):
        fxminify.record(Model(), [], backend="eager", db=db, error=RuntimeError("device lost"))


def test_every_failing_graph_of_a_function_is_a_row(db: str) -> None:
    def function(x: torch.Tensor, *, twice: bool) -> torch.Tensor:
        x = torch.sin(x) + 1
        torch._dynamo.graph_break()
        return torch.sin(x * 2) if twice else x

    given: dict[str, Any] = {"backend": refuses, "db": db, "kwargs": {"twice": True}}
    assert fxminify.record(function, [torch.ones(3)], **given) == 1
    assert fxminify.record(function, [torch.ones(3)], **given) == 1, "it is not what Dynamo made before"
    with Index.open(db) as index:
        rows = sorted(index.captures.find(), key=lambda row: row.id)
        graphs = [[str(n.target["fn"]) for n in index.captures.case(row.id).graph.compute] for row in rows]
    assert graphs == [["torch.sin", "_operator.add"], ["_operator.mul", "torch.sin"]]
    assert fxminify.record(function, [torch.ones(3)], backend="eager", db=db, kwargs={"twice": True}) is None


def test_a_module_is_compiled_with_its_options_and_differentiated(db: str) -> None:
    def fails_behind(gm: fx.GraphModule, example_inputs: list[Any], **given: Any) -> Any:
        if given != {"options": {"level": 3}}:
            raise AssertionError(given)
        return aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=refuses_all)(gm, example_inputs)

    def refuses_all(gm: fx.GraphModule, example_inputs: list[Any]) -> Any:
        raise NotImplementedError("no backward graph")

    inputs, scale = [{"x": torch.ones(2, 4)}], torch.ones(1)
    asked: dict[str, Any] = {"backend": fails_behind, "db": db, "kwargs": {"scale": scale}, "options": {"level": 3}}
    assert fxminify.record(Model(), inputs, **asked, backward=True) == 1
    with Index.open(db) as index:
        (row,) = index.captures.find()
    assert (row.kind, row.backend) == ("compile_error", "fails_behind")


def test_what_eager_raises_itself_is_raised(db: str) -> None:
    with pytest.raises(RuntimeError, match="shape"):
        fxminify.record(lambda x: x.view(7), [torch.ones(3)], backend="eager", db=db)
