"""`fxminify.record`: a graph module and its inputs, given by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

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


def test_what_is_no_graph_module_is_refused(db: str) -> None:
    with pytest.raises(TypeError, match=r"record takes a torch\.fx\.GraphModule, not Model"):
        fxminify.record(Model(), [], backend="eager", db=db)  # type: ignore[arg-type]  # on purpose
