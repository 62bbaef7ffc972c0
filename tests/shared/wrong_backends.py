"""Backends that give a wrong answer of one class each, registered when this module is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch.overrides import TorchFunctionMode

Outputs = tuple[Any, ...]


def spoils(name: str) -> Callable[[Callable[[list[Any], tuple[Any, ...]], Any]], Any]:
    """Register a backend that runs the graph and lets the function decorated change the list of its outputs."""

    def decorate(change: Callable[[list[Any], tuple[Any, ...]], Any]) -> Any:
        def backend(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Outputs]:
            def run(*args: Any) -> Outputs:
                outputs = list(gm.forward(*args))
                change(outputs, args)
                return tuple(outputs)

            return run

        return register_backend(backend, name=name)

    return decorate


@spoils("wrong_second_value")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[1] = outputs[1] * 1.001


@spoils("wrong_nan")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[0] = outputs[0].clone()
    outputs[0].view(-1)[0] = float("nan")


@spoils("wrong_inf")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[0] = outputs[0] + torch.zeros(()).reciprocal()


@spoils("wrong_dtype")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[0] = outputs[0].double()


@spoils("wrong_shape")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[0] = outputs[0].unsqueeze(0)


@spoils("wrong_stride")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[0] = outputs[0].t().contiguous().t()


@spoils("wrong_alias_of_input")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[0] = outputs[0].clone()


@spoils("wrong_alias_of_output")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[1] = outputs[0].view_as(outputs[1])


@spoils("wrong_integer")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[0] = outputs[0] + 1


@spoils("wrong_detached")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    outputs[1] = outputs[1].detach()


@spoils("draws_more")
def _(outputs: list[Any], args: tuple[Any, ...]) -> None:
    torch.rand(3)


@register_backend
def wrong_mutation(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Outputs]:
    """Works on copies: what the graph writes to its inputs is lost."""
    return lambda *args: gm.forward(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2


@register_backend
def wrong_second_gradient(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Outputs]:
    def run(*args: Any) -> Outputs:
        first, second, *rest = args
        out: Outputs = gm.forward(first, _Doubled.apply(second), *rest)  # type: ignore[no-untyped-call]
        return out

    return run


@register_backend
def wrong_missing_gradient(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Outputs]:
    def run(first: Any, second: Any) -> Outputs:
        out: Outputs = gm.forward(first, second.detach())
        return out

    return run


class _Short(TorchFunctionMode):
    """Matrix products and convolutions of float32 in bfloat16, as some accelerators do."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in ("linear", "matmul", "mm", "addmm", "bmm", "conv2d", "convolution"):
            return func(*args, **(kwargs or {}))
        short = [a.bfloat16() if isinstance(a, torch.Tensor) and a.dtype is torch.float32 else a for a in args]
        return func(*short, **(kwargs or {})).float()


@register_backend
def short_products(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Outputs]:
    def run(*args: Any) -> Outputs:
        with _Short():
            out: Outputs = gm.forward(*args)
        return out

    return run


def _short_kernels(gm: fx.GraphModule, inputs: list[Any]) -> Any:
    from functorch.compile import make_boxed_func

    products = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
                torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default}  # fmt: skip

    class Kernels(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target in products:
                args = tuple(_rounded(a) for a in args)
            return super().call_function(target, args, kwargs)

    return make_boxed_func(lambda *args: Kernels(gm).run(*args))


def _rounded(value: Any) -> Any:
    return value.bfloat16().float() if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value


@register_backend
def short_products_and_sin(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Outputs]:
    """Products in bfloat16, and ``sin`` is wrong besides."""
    for node in gm.graph.nodes:
        if node.target in (torch.sin, "sin"):
            node.op, node.target = "call_function", torch.cos
    gm.recompile()
    run: Callable[..., Outputs] = short_products(gm, inputs)
    return run


short_kernels = register_backend(
    aot_autograd(fw_compiler=_short_kernels, bw_compiler=_short_kernels), name="short_kernels"
)
