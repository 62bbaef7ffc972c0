"""Failures that surface after the backend returned: in the backward pass, and while Dynamo builds guards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hooked import Failed
from indexes import captures
from torch import fx

import fxminify
from fxminify.store.document.case import Case
from fxminify.store.index import Index
from fxminify.store.live.build import build


def first(db: str) -> tuple[Case, list[Any]]:
    """The first case and its inputs, live."""
    with Index.open(db) as index:
        case = index.captures.case(1)
        return case, build(case, index.blobs.view(case.storages))[1]


class Backward(torch.autograd.Function):
    """A graph's forward, with a backward of the backend's own that fails on large gradients."""

    @staticmethod
    def forward(ctx: Any, gm: fx.GraphModule, x: torch.Tensor) -> Any:
        return gm(x)[0].detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if gradient.max() > 10:
            raise Failed("gradient too large")
        return None, gradient


def own_backward(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return lambda *args: (Backward.apply(gm, *args),)  # type: ignore[no-untyped-call]


def own_backward_inside(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return lambda *args: (Backward.apply(gm, *args) + 0,)  # type: ignore[no-untyped-call]


def model(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("backend", [own_backward, own_backward_inside])
@pytest.mark.parametrize("calls_before", [0, 4])
def test_a_failure_in_backward_has_the_inputs_of_its_forward(
    db: str, backend: Any, calls_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fxminify.backends.capture.compiled_graph.PAYS_FOR_HOOKS", 0.0)
    fxminify.install(db)
    compiled = torch.compile(model, backend=backend)
    for _ in range(calls_before):
        compiled(torch.ones(3, requires_grad=True)).sum().backward()
    x = torch.full((3,), 5.0, requires_grad=True)
    loss = (compiled(x) * 100).sum()
    compiled(torch.ones(3, requires_grad=True))
    with pytest.raises(Failed) as caught:
        loss.backward()
    assert caught.value.__context__ is None
    [row] = captures(db)
    assert (row.kind, row.phase) == ("runtime_error", "backward")
    case, inputs = first(db)
    assert case.backward
    assert torch.equal(inputs[0], torch.full((3,), 5.0))
    assert inputs[0].requires_grad


def test_a_backward_graph_that_cannot_be_compiled(db: str) -> None:
    from torch._dynamo.backends.common import aot_autograd

    def backward_compiler(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        raise Failed("no backward")

    backend = aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=backward_compiler)
    fxminify.install(db)
    with pytest.raises(Exception, match="no backward"):
        torch.compile(model, backend=backend)(torch.ones(3, requires_grad=True)).sum().backward()
    [row] = captures(db)
    assert row.failure is not None
    assert (row.kind, row.phase, row.failure.message) == ("compile_error", "backward", "no backward")


def test_a_lazily_compiled_backward_that_fails(db: str) -> None:
    from torch._dynamo.backends.common import aot_autograd

    def backward_compiler(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            raise Failed("late")

        return run

    backend = aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=backward_compiler)
    fxminify.install(db)
    y = torch.compile(model, backend=backend)(torch.ones(3, requires_grad=True))
    with pytest.raises(Failed):
        y.sum().backward()
    [row] = captures(db)
    assert (row.kind, row.phase) == ("runtime_error", "backward")
    assert first(db)[0].backward


def test_the_programs_own_mistakes_in_backward_are_no_failures(db: str) -> None:
    fxminify.install(db)
    compiled = torch.compile(lambda x: x.sin(), backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    y = compiled(x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()

    def refuse(gradient: torch.Tensor) -> None:
        raise Failed("in a hook of the program")

    z = torch.ones(3, requires_grad=True)
    z.register_hook(refuse)
    w = compiled(z).sum()
    with pytest.raises(Failed):
        w.backward()
    assert captures(db) == []


def test_a_watched_call_keeps_nothing_alive(db: str) -> None:
    def inplace(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.mul_(y)

    fxminify.install(db)
    compiled = torch.compile(inplace, backend="aot_eager")
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            x = torch.ones(3, requires_grad=True) * 1
            y = torch.ones(3)
            result = compiled(x, y)
            tensors = [weakref.ref(x), weakref.ref(result)]
            result.sum().backward()
            del x, y, result
            assert [t() for t in tensors] == [None, None]
    finally:
        gc.enable()


def test_a_backend_that_fixes_a_dynamic_dimension_fails_in_guards(db: str) -> None:
    def specializing(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        for value in example_inputs:
            if isinstance(value, torch.SymInt):
                int(value)
        return gm.forward

    x = torch.ones(4, 3)
    torch._dynamo.mark_dynamic(x, 0)
    fxminify.install(db)
    with pytest.raises(Exception, match="Constraints violated"):
        torch.compile(model, backend=specializing)(x)
    [row] = captures(db)
    assert (row.kind, row.phase) == ("compile_error", "guards")


def test_a_program_that_fixes_a_dynamic_dimension_is_no_failure_of_the_backend(db: str) -> None:
    def fixing(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 4 else x

    x = torch.ones(4, 3)
    torch._dynamo.mark_dynamic(x, 0)
    fxminify.install(db)
    with pytest.raises(Exception, match="Constraints violated"):
        torch.compile(fixing, backend="eager")(x)
    assert captures(db) == []
