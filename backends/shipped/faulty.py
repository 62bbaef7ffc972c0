"""``fxminify_faulty``: eager with one fault planted at an operation of your choice, for tests and demonstrations.

    torch.compile(model, backend="fxminify_faulty", options={"fault": "wrong_numbers", "op": "relu"})

It is the only backend here that is wrong on purpose. The fault is in every graph that calls ``op``, and in no other.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..running.execution import mentions, private
from .options_reader import choose, read

NAME = "fxminify_faulty"
FAULTS = (
    "compile_error", "runtime_error", "backward_error", "wrong_numbers", "wrong_gradient", "nondeterminism", "crash",
    "hang", "out_of_memory",
)  # fmt: skip


class PlantedFault(RuntimeError):
    """Raised on purpose by ``fxminify_faulty``."""


@dataclass(frozen=True, slots=True)
class FaultyOptions:
    """``fault``: what goes wrong, one of `FAULTS`; ``op``: at which operation, by any of its names (``relu``)."""

    fault: str = "compile_error"
    op: str = "relu"

    def __post_init__(self) -> None:
        choose(self.fault, FAULTS, "fault", NAME)


def faulty(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """``fxminify_faulty``: ``gm`` in eager, with a fault after each call of an operation.

    ``options`` are the fields of `FaultyOptions`. Raises `InvalidOption` for others, and `PlantedFault` for the fault
    ``compile_error``.
    """
    asked = read(FaultyOptions, options, NAME)
    module = private(gm)
    nodes = [n for n in module.graph.nodes if mentions(n, asked.op)]
    if nodes and asked.fault == "compile_error":
        raise PlantedFault(f"planted: cannot compile {asked.op}")
    plant = {"backward_error": _in_backward, "wrong_gradient": _in_backward}.get(asked.fault, _in_forward)
    for node in nodes:
        with module.graph.inserting_after(node):
            after = module.graph.call_function(plant, (node, asked.fault, asked.op))
        node.replace_all_uses_with(after, delete_user_cb=lambda user, after=after: user is not after)
    module.recompile()
    return module.forward


def _in_forward(value: Any, fault: str, op: str) -> Any:
    """``value``, a result of ``op``, with ``fault`` if it is one or many tensors."""
    if isinstance(value, tuple | list):
        return type(value)(_in_forward(v, fault, op) for v in value)
    if not isinstance(value, torch.Tensor):
        return value
    if fault == "runtime_error":
        raise PlantedFault(f"planted: cannot run {op}")
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "hang":
        while True:
            time.sleep(3600)
    if fault == "out_of_memory":
        torch.empty(1 << 50, dtype=torch.uint8, device=value.device)
    if fault == "nondeterminism":
        return _shifted(value, random.SystemRandom().random())
    return _shifted(value, 1.0) if fault == "wrong_numbers" else value


def _shifted(value: torch.Tensor, by: float) -> torch.Tensor:
    """``value`` plus ``by`` and a tenth of itself; integers plus one, booleans negated."""
    if value.is_floating_point() or value.is_complex():
        return value * 1.1 + by
    return ~value if value.dtype is torch.bool else value + 1


class _Gradient(torch.autograd.Function):
    """The identity, wrong in its backward pass."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, fault: str, op: str) -> torch.Tensor:
        ctx.fault, ctx.op = fault, op
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if ctx.fault == "backward_error":
            raise PlantedFault(f"planted: cannot run the backward pass of {ctx.op}")
        return gradients[0] * 1.1, None, None


def _in_backward(value: Any, fault: str, op: str) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_in_backward(v, fault, op) for v in value)
    if not (isinstance(value, torch.Tensor) and value.requires_grad):
        return value
    return _Gradient.apply(value, fault, op)  # type: ignore[no-untyped-call]
