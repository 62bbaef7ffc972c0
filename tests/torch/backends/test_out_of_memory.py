"""Memory that runs out in a comparison is no failure of the backend: the program goes on, and it is said why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fxminify
from fxminify.backends.comparison import precision, reference
from fxminify.backends.running.shared import SharedStorages

FULL = "[enforce fail at alloc_cpu.cpp:131] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"


def full(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(FULL)


def healthy(gm: fx.GraphModule, inputs: Any) -> Any:
    return gm.forward


def wrong(gm: fx.GraphModule, inputs: Any) -> Any:
    return lambda *given: tuple(value * 1.05 for value in gm.forward(*given))


def run(
    db: str, backend: Callable[..., Any], own_log: pytest.LogCaptureFixture, *, gradient: bool = False
) -> tuple[list[str], bool]:
    """Run a program that computes what eager computes, with each call compared. Return the messages, and whether
    something was stored."""
    torch._dynamo.reset()
    x = torch.ones(4, requires_grad=gradient)
    with fxminify.capturing(db, check=True):
        result = torch.compile(torch.sin, backend=backend)(x)
        if gradient:
            result.sum().backward()
    assert result.shape == (4,)
    return [r.getMessage() for r in own_log.records if r.name == "fxminify"], Path(db).exists()


def test_memory_that_eager_lacks(db: str, own_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedStorages, "eager", full)
    assert run(db, healthy, own_log) == (
        [
            "fxminify could not check a compiled graph against eager: there is not enough memory to compare it "
            f"(RuntimeError: {FULL})"
        ],
        False,
    )


@pytest.mark.parametrize("place", [(reference, "run_wide"), (precision, "execute")])
def test_memory_that_a_further_run_lacks(
    place: tuple[Any, str], db: str, own_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that run a difference cannot be judged: neither a failure nor an agreement."""
    monkeypatch.setattr(*place, full)
    [message], stored = run(db, wrong, own_log)
    assert "there is not enough memory to compare it" in message
    assert not stored


@pytest.mark.parametrize("gradient", [False, True])
def test_memory_that_the_compiled_graph_lacks_only_beside_the_copies(
    gradient: bool, db: str, own_log: pytest.LogCaptureFixture
) -> None:
    calls = iter([True, False])

    class Limited(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            if not gradient and next(calls):
                full()
            return value.clone()

        @staticmethod
        def backward(ctx: Any, given: torch.Tensor) -> Any:
            if next(calls):
                full()
            return given

    def limited(gm: fx.GraphModule, inputs: Any) -> Any:
        apply: Any = Limited.apply
        return lambda *given: tuple(map(apply, gm.forward(*given)))

    [message], stored = run(db, limited, own_log, gradient=gradient)
    assert "there is not enough memory to compare it" in message
    assert not stored
