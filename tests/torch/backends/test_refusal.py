"""Eager is asked what a backend was asked when it failed: the program's own mistakes are no failures of the backend."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hooked import Failed, failing
from indexes import captures
from torch._dynamo.backends.common import aot_autograd

import fxminify
from fxminify.backends.capture import refusal
from fxminify.backends.capture.ending import NOTED
from fxminify.store.index import CaptureInfo, Index, State


def changed_before_its_gradient(x: torch.Tensor) -> torch.Tensor:
    h = torch.sigmoid(x)
    y = h * h
    h.mul_(2)
    return y.sum() + h.sum()


class WrongGradient(torch.autograd.Function):
    """Its gradient has another shape than its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient[:2]


def wrong_gradient(x: torch.Tensor) -> torch.Tensor:
    applied: torch.Tensor = WrongGradient.apply(x.sin())  # type: ignore[no-untyped-call]
    return applied.sum()


def not_positive_definite(x: torch.Tensor) -> torch.Tensor:
    factor: torch.Tensor = torch.linalg.cholesky(-torch.eye(4) * x)
    return factor


def looks_up(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(x.long() + 9, torch.ones(4, 2))


def row(db: str, function: Callable[..., Any], backend: Any, *args: torch.Tensor) -> CaptureInfo:
    """The capture of the failure of ``function``, and of its backward pass where there is one."""
    NOTED.clear()
    with fxminify.capturing(db), contextlib.suppress(Exception):  # whatever the backend raises
        torch.compile(function, backend=backend)(*args).sum().backward()
    (found,) = captures(db)
    return found


@pytest.mark.parametrize(
    ("function", "raised", "phase"),
    [
        (changed_before_its_gradient, "RuntimeError: one of the variables needed for gradient", "compile"),
        (wrong_gradient, "RuntimeError: Function", "compile"),
        (not_positive_definite, "torch._C._LinAlgError: linalg.cholesky", "forward"),
        (looks_up, "IndexError: index out of range in self", "forward"),
    ],
)
def test_the_mistake_of_a_program_is_said_when_it_is_captured(db: str, function: Any, raised: str, phase: str) -> None:
    found = row(db, function, "aot_eager", torch.ones(4, requires_grad=True))
    assert (found.state, found.phase) == (State.EAGER_REFUSES, phase)
    assert found.reason.startswith(f"eager refuses it, too: {raised}")
    assert found.failure is not None
    assert found.failure.refused.startswith(raised)
    assert list(NOTED) == ["refused"]
    with Index.open(db, readonly=True) as index:
        assert index.tasks.newest(limit=9) == []  # no worker takes it up
        assert index.events.after(0, limit=9) == []  # and no one is told of a new bug


def test_a_backward_pass_that_raises_only_in_eager_leaves_the_failure_to_the_backend(db: str) -> None:
    """The program computes no gradient: what its backward pass would raise is no matter."""
    found = row(db, changed_before_its_gradient, failing, torch.ones(4, requires_grad=True))
    assert (found.state, found.failure and found.failure.detail) == (State.PENDING, {"eager": ""})


def test_a_backward_graph_that_a_backend_cannot_compile_is_its_failure(db: str) -> None:
    def refuses(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        raise Failed("no gradients")

    backend = aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=refuses)
    found = row(db, lambda x: x.sin(), backend, torch.ones(4, requires_grad=True))
    assert (found.state, found.failure and found.failure.refused) == (State.PENDING, "")


def test_a_derivative_that_only_the_backend_cannot_trace_is_its_failure(db: str) -> None:
    """`torch.autograd.grad` inside of a backend, of something else than the graph."""

    def differentiates_wrongly(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        changed_before_its_gradient(torch.ones(4, requires_grad=True) * 1).backward()

    found = row(db, lambda x: x.sin(), differentiates_wrongly, torch.ones(4, requires_grad=True))
    assert (found.state, found.failure and found.failure.detail) == (State.PENDING, {"eager": ""})


def test_asking_eager_changes_nothing_in_the_program(db: str) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x)  # type: ignore[operator]
            return changed_before_its_gradient(torch.nn.functional.dropout(x * self.weight))

    model, x = Model(), torch.ones(4, requires_grad=True)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = row(db, model, "aot_eager", x)
    assert found.state is State.EAGER_REFUSES
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model.seen, torch.zeros(4))  # type: ignore[arg-type]
    assert (x.grad, model.weight.grad, torch.is_grad_enabled()) == (None, None, True)


def test_nothing_is_printed_where_eager_raises(db: str, capfd: pytest.CaptureFixture[str]) -> None:
    row(db, looks_up, "aot_eager", torch.ones(4, requires_grad=True))
    assert "Error" not in capfd.readouterr().err


@pytest.mark.parametrize("said", ["not enough memory: you tried to allocate 9 bytes", "CUDA error: device-side assert"])
def test_eager_that_lacks_memory_or_a_device_has_not_answered(
    db: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*args: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(refusal, "execute", execute)
    found = row(db, lambda x: x.sin(), failing, torch.ones(4))
    assert (found.state, found.failure and found.failure.detail) == (State.PENDING, {})


def test_a_call_whose_inputs_are_overwritten_cannot_be_asked_again(db: str) -> None:
    from fxminify.backends.capture import graph_snapshot

    def overwrites(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: torch.Tensor) -> Any:
            args[0].zero_()
            raise Failed("too late")

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_snapshot, "INPUT_BUDGET", 0)
        found = row(db, lambda x: x.sin(), overwrites, torch.ones(4))
    assert (found.state, found.failure and found.failure.detail) == (State.PENDING, {})
