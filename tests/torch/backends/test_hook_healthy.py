"""The capture hook is harmless to a healthy program."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hooked import edits_in_place, model
from indexes import captures
from torch import fx

import fxminify
from fxminify.backends.capture import hook, seam


def returns_function(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return lambda *args: gm(*args)


def returns_bound_method(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


def returns_graph_module(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm


def returns_partial(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return functools.partial(gm.forward)


class Wrapper(torch.nn.Module):
    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__()
        self.gm = gm

    def forward(self, *args: Any) -> Any:
        return self.gm(*args)


def returns_module(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return Wrapper(gm)


def training(
    calls: Callable[[torch.nn.Module, torch.Tensor], list[torch.Tensor]],
) -> Callable[[], list[torch.Tensor]]:
    """Does the same each time: what ``calls`` makes of a module in training, and what that leaves behind."""
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    state = {k: v.clone() for k, v in layer.state_dict().items()}
    data = torch.randn(3, 4)

    def run() -> list[torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(5)
        layer.load_state_dict(state)
        layer.zero_grad()
        results = calls(layer, data)
        gradients = [p.grad for p in layer.parameters() if p.grad is not None]
        return [*results, *gradients, *layer.state_dict().values(), torch.get_rng_state()]

    return run


@pytest.mark.process
@pytest.mark.parametrize(
    "backend",
    [
        returns_function,
        returns_bound_method,
        returns_graph_module,
        returns_partial,
        returns_module,
        edits_in_place,
        "eager",
        "aot_eager",
        "inductor",
    ],
)
def test_a_healthy_program_computes_the_same_bits(db: str, backend: Any) -> None:
    """Row 2: PyTorch's own capture breaks backends that return plain callables."""

    def calls(layer: torch.nn.Module, data: torch.Tensor) -> list[torch.Tensor]:
        compiled = torch.compile(lambda x: model(layer(x)), backend=backend)
        results = []
        for _ in range(4):
            result = compiled(data)
            result.sum().backward()
            results.append(result.detach())
        return results

    run = training(calls)
    plain = run()
    fxminify.install(db)
    captured = run()
    fxminify.uninstall()
    assert [torch.equal(a, b) for a, b in zip(plain, captured, strict=True)] == [True] * len(plain)
    assert captures(db) == []


def test_checking_changes_nothing_either(db: str) -> None:
    def calls(layer: torch.nn.Module, data: torch.Tensor) -> list[torch.Tensor]:
        compiled = torch.compile(layer, backend="aot_eager")
        results = [compiled(data) for _ in range(3)]
        torch.stack(results).sum().backward()
        return results

    run = training(calls)
    plain = run()
    with fxminify.capturing(db, check=True):
        checked = run()
    assert [torch.equal(a, b) for a, b in zip(plain, checked, strict=True)] == [True] * len(plain)
    assert captures(db) == []


def test_attributes_of_the_compiled_callable_survive(db: str) -> None:
    seen: list[Any] = []

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            return gm(*args)

        run._boxed_call = False  # type: ignore[attr-defined]
        run.note = "kept"  # type: ignore[attr-defined]
        return run

    original = torch._dynamo.output_graph.OutputGraph._call_user_compiler

    def spy(self: Any, *args: Any) -> Any:
        seen.append(original(self, *args))
        return seen[-1]

    fxminify.install(db)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._dynamo.output_graph.OutputGraph, "_call_user_compiler", spy)
        torch.compile(model, backend=backend)(torch.ones(3))
    assert (seen[0].note, seen[0]._boxed_call, seen[0].__name__) == ("kept", False, "run")


@pytest.mark.process
def test_installing_loads_no_torch() -> None:
    code = "import sys, fxminify; fxminify.install('x.db'); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"


def test_uninstalling_puts_everything_back(db: str) -> None:
    from torch._dynamo.convert_frame import DynamoOutput
    from torch._dynamo.repro.after_dynamo import WrapBackendDebug

    def seams() -> list[Any]:
        engines = [vars(module)["_engine_run_backward"] for module in (torch.autograd, torch.autograd.graph)]
        return [WrapBackendDebug.__call__, DynamoOutput.build_guards, *engines]

    hook._hook.single.clear()  # backends of other tests that something still holds
    seam.detach()
    before = seams()
    fxminify.install(db)
    assert not any(map(operator.is_, seams(), before))
    fxminify.uninstall()
    assert seams() == before
