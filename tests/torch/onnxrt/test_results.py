"""What graphs return without a model: inputs, views, numbers. Strides and shared memory are as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .conftest import Comparison

r = torch.randn

#: Graphs that compute nothing.
WITHOUT_OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "contiguous": lambda t: t.contiguous(),
    "conj": lambda t: t.conj(),
    "transposed": lambda t: t.T,
    "converted to what it is": lambda t: t.float(),
    "of two dimensions": lambda t: torch.atleast_2d(t),
    "pieces": lambda t: t.unsafe_chunk(3),
    "a size": lambda t: (t, t.shape[0]),
}


@pytest.mark.parametrize("name", WITHOUT_OPERATORS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_graphs_without_operators_have_no_model(name: str, dynamic: bool, compare: Comparison) -> None:
    compare(WITHOUT_OPERATORS[name], (r(3, 4),), (r(3, 5),), dynamic=dynamic)
    assert len(compare.storage) == 0


def shared(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def test_pieces_of_an_input_share_its_memory() -> None:
    x = r(6, 2)
    pieces = torch.compile(lambda t: t.unsafe_chunk(2), backend="fxminify_ort")(x)
    assert [shared(piece, x) for piece in pieces] == [True, True]


def test_views_of_what_a_model_computes_share_memory_and_have_strides_of_eager(compare: Comparison) -> None:
    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y.unsafe_split(2)[1], y.unsafe_split(2)[0], (y + 1).T

    compare(views, (r(4, 6),))
    first, second, turned = torch.compile(views, backend="fxminify_ort")(r(4, 6))
    assert shared(first, second)
    assert turned.stride() == (1, 6)
    (model,) = compare.storage
    assert [node.op_type for node in model.onnx.graph.node if node.op_type != "Constant"] == ["Mul", "Add"]


@pytest.mark.parametrize("size", [5, 2, 1, 0])
def test_views_with_symbolic_sizes(size: int, compare: Comparison) -> None:
    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        return y.reshape(x.shape[0] * 2, 2)[2:], y.expand(2, *x.shape), x.narrow(0, 0, x.shape[0] // 2)

    compare(views, (r(6, 4),), (r(size, 4),), dynamic=True)


def test_a_tensor_that_is_not_what_the_graph_promises_is_computed_in_pytorch(compare: Comparison) -> None:
    """The meta function of ``prims.signbit`` says float32; the operator gives bool."""
    compare(lambda x: torch.ops.prims.signbit(x).to(torch.bool), (r(5),))
    (report,) = compare.storage.reports
    assert report.failures in (
        [],
        ["ort_0: BrokenPromise: an input is torch.bool, and the graph promises torch.float32"],
    )
