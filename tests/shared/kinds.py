"""Kinds of graphs that `corpus.py` lacks; most of them have no place in a document at Dynamo level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kinds_ops
import numpy as np
import torch
from corpus import Compiled, Source, train
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map

#: Sources by name, and the level at which each of their graphs is stored; "" for one that no level can.
KINDS: dict[str, tuple[Source, list[str]]] = {}


def kind(*levels: str) -> Callable[[Source], Source]:
    def register(function: Source) -> Source:
        KINDS[function.__name__] = (function, list(levels))
        return function

    return register


class Pair(torch.Tensor):
    """A wrapper subclass of this program."""

    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Pair:
        made: Pair = torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device)
        made.a, made.b = a, b
        return made

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]  # mypy calls it incompatible
        """Torch's own needs values, and logs print tensors."""
        return "Pair"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], meta: Any, size: Any, stride: Any) -> Pair:
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own is no class method
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        first, second = (
            function(*tree_map(lambda x: getattr(x, half) if isinstance(x, Pair) else x, args), **(kwargs or {}))  # noqa: B023  called at once
            for half in ("a", "b")
        )
        return tree_map(lambda x, y: Pair(x, y) if isinstance(x, torch.Tensor) else x, first, second)


class Named(torch.Tensor):
    """Only overrides functions of torch."""


@kind("aot")
def wrapper_subclass(compiled: Compiled) -> None:
    compiled(lambda x: (x * 2).sin() + 1)(Pair(torch.randn(3), torch.randn(3)))


@kind("aot")
def torchs_own_subclass(compiled: Compiled) -> None:
    two = TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_()
    train(compiled, lambda x: (x * 2).sin(), two)


@kind("dynamo")
def subclass_of_functions(compiled: Compiled) -> None:
    compiled(lambda x: x.sin() + 1)(torch.randn(3).as_subclass(Named))


@kind("aot", "dynamo")
def nested_tensors(compiled: Compiled) -> None:
    nested = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
    compiled(lambda n: (n * 2).sin())(nested)
    compiled(lambda v, o: torch.nested.nested_tensor_from_jagged(v, o).sum(1))(
        torch.randn(5, 4), torch.tensor([0, 2, 5])
    )


@kind("aot", "aot")
def numpy(compiled: Compiled) -> None:
    compiled(lambda x: torch.from_numpy(np.sin(x.numpy()) + np.ones(3, dtype=np.float32)))(torch.randn(3))
    compiled(lambda a: np.cumsum(a, axis=0) * 2)(np.arange(4.0))


@kind("dynamo" if hasattr(torch.ops.aten, "shallow_copy_data_") else "aot")  # an operator since torch 2.14
def data_of_an_input(compiled: Compiled) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        x.data = x.data * 2
        return x + 1

    compiled(run)(torch.randn(3))


@kind("aot")
def compiled_autograd(compiled: Compiled) -> None:
    loss = nn.Linear(4, 4)(torch.randn(2, 4)).relu().sum()
    with torch._dynamo.compiled_autograd._enable(lambda gm: compiled(gm)):
        loss.backward()


def _leaf(x: torch.Tensor, y: float) -> torch.Tensor:
    return x * y + 1


torch._dynamo.allow_in_graph(_leaf)


@kind("aot")
def function_in_graph(compiled: Compiled) -> None:
    compiled(lambda x: _leaf(x, 2.0))(torch.randn(3))


@kind("aot")
def nonstrict_trace(compiled: Compiled) -> None:
    @torch._dynamo.nonstrict_trace
    def traced(x: torch.Tensor, d: dict[str, Any]) -> Any:
        return x * d["a"] + d["b"]

    compiled(lambda x: traced(x, {"a": x + 1, "b": 3}))(torch.randn(3))


@kind("")
def leaf_function(compiled: Compiled) -> None:
    """Python that is called when the graph runs, whatever the level."""
    from torch._dynamo.decorators import leaf_function

    def doubled(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x * 2,)

    called: Any = leaf_function(doubled)
    called.register_fake(lambda x: (torch.empty_like(x),))
    compiled(lambda x: called(x)[0] + 1)(torch.randn(3))


@kind("dynamo")
def custom_operator(compiled: Compiled) -> None:
    train(compiled, lambda x: kinds_ops.scaled(x, 0.5, mode='it"s\n\\odd'), torch.randn(3, requires_grad=True))


@kind("dynamo")
def mutating_custom_operator(compiled: Compiled) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        kinds_ops.bump(y, 3)
        kinds_ops.bump(x, 2)
        return y + x

    compiled(run)(torch.randn(3))


@kind("dynamo")
def nested_region(compiled: Compiled) -> None:
    @torch.compiler.nested_compile_region
    def block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu() + 1

    compiled(lambda x, y: block(block(x, y), y))(torch.randn(4, 4, requires_grad=True), torch.randn(4, 4))


@kind("dynamo")
def lstm(compiled: Compiled) -> None:
    with torch._dynamo.config.patch(allow_rnn=True):
        train(compiled, nn.LSTM(4, 8, 2, batch_first=True, bidirectional=True), torch.randn(2, 5, 4))


@kind("dynamo")
def functional_call(compiled: Compiled) -> None:
    net = nn.Linear(4, 2)
    weights = {k: v.detach() * 2 for k, v in net.named_parameters()}
    compiled(lambda p, x: torch.func.functional_call(net, p, (x,)))(weights, torch.randn(3, 4))


@kind("dynamo")
def splits_by_data(compiled: Compiled) -> None:
    def run(x: torch.Tensor, sizes: torch.Tensor) -> Any:
        counts = sizes.tolist()
        for count in counts:
            torch._check(count >= 0)
        return torch.split(x, counts), x * x[0].item()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled(run)(torch.randn(6), torch.tensor([2, 4]))
