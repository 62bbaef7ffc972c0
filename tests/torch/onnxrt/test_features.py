"""What graphs can hold: results of every kind, symbolic sizes, effects on inputs, dtypes, islands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .conftest import Comparison

r = torch.randn
i = torch.arange


def set_columns(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    x[:, index] = 0
    return x + 0


def zero_row(x: torch.Tensor) -> torch.Tensor:
    x[0].zero_()
    return x * 2


def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    return y, y


def view_of_transposed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.t() * 2
    return y, y.t(), y[1:], y.reshape(-1)


def attention(index: torch.Tensor, table: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = F.layer_norm(F.embedding(index, table), (8,), weight).view(2, 5, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


INFERENCE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "none, numbers and inputs": (lambda x, y: (x, None, 3, x + y, x.shape[0], y), (r(3, 4), r(3, 4))),
    "a result twice": (twice, (r(3),)),
    "views of inputs": (lambda x: (x.view(-1), x.t(), x + 1), (r(3, 4),)),
    "views of a result that is not contiguous": (view_of_transposed, (r(3, 4),)),
    "in place on an input": (lambda x: (x.add_(1), x * 2)[1], (r(3, 4),)),
    "in place on a view": (zero_row, (r(3, 4),)),
    "setitem with an index": (set_columns, (r(3, 4), torch.tensor([0, 2]))),
    "float16": (lambda x, w: F.relu(x @ w) + 1, (r(3, 4).half(), r(4, 5).half())),
    "bfloat16": (lambda x, w: (F.gelu(x @ w) + 1).softmax(-1), (r(3, 4).bfloat16(), r(4, 5).bfloat16())),
    "bfloat16 to float": (lambda x: (x.float() * 2, (x.sum(), x.topk(2)[0])), (r(3, 4).bfloat16(),)),
    "float64": (lambda x, w: F.relu(x @ w) + 1, (r(3, 4).double(), r(4, 5).double())),
    "float64 without kernels": (lambda x, w: F.conv2d(F.gelu(x), w), (r(1, 3, 8, 8).double(), r(4, 3, 3, 3).double())),
    "int8": (lambda a, b: (a + b, a * 2, b > 1), (i(4, dtype=torch.int8), i(4, dtype=torch.int8))),
    "uint8": (lambda a: (a + 1, a // 2), (i(4, dtype=torch.uint8),)),
    "integer and float": (lambda a, b: a + b, (i(4, dtype=torch.int32), r(4))),
    "integer division": (lambda a, b: (a / b, a // b, a % b), (i(4) - 2, i(4) + 1)),
    "bool": (lambda a, b: (a & b, a | b, ~a, a.sum(), a.any()), (i(2) < 1, i(2) < 2)),
    "where with a number": (lambda x: torch.where(x > 0, x, 0.0), (r(4),)),
    "integer results": (lambda x: (x.argmax(-1), *x.topk(2), x.sort(-1)[1], x.long()), (r(3, 4),)),
    "no elements": (lambda x: (x + 1, x.sum()), (torch.zeros(0, 4),)),
    "no dimensions": (lambda x: x * 2 + 1, (torch.tensor(2.0),)),
    "not contiguous": (lambda x: x.t() + 1, (r(4, 6),)),
    "channels last": (F.relu, (r(2, 3, 4, 4).to(memory_format=torch.channels_last),)),
    "a constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0]), (r(3),)),
    "a returned constant": (lambda x: (x + 1, torch.tensor([1.0, 2.0])), (r(3),)),
    "attention": (attention, (torch.randint(0, 10, (2, 5)), r(10, 8), r(8))),
    "cond": (lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), (r(3),)),
    "matrices": (lambda a, b: torch.einsum("bij,bjk->bik", a, b).softmax(-1).log(), (r(2, 3, 4), r(2, 4, 5))),
    "gather and scatter": (
        lambda x, k: (x.gather(1, k), torch.zeros_like(x).scatter(1, k, x), x.index_select(0, k[0, :2])),
        (r(3, 4), torch.stack([torch.randperm(4) % 3 for _ in range(3)])),
    ),
    "reductions": (
        lambda x: (x.cumsum(0), x.std(0), x.var(), x.norm(), x.logsumexp(1), x.prod(), x.amax(), x.mean((0, 1))),
        (r(3, 4),),
    ),
    "dropout that is off": (lambda x: F.dropout(x, 0.5, False) + 1, (r(4),)),
    "pieces": (lambda x: (*x.split(2, 1), *x.split([1, 2], 0), *x.chunk(4, 1)), (r(3, 5),)),
    "pieces of nothing": (lambda x: x.split(2), (r(0, 5),)),
    "constants": (
        lambda x: (x + torch.arange(4), torch.ones(3, 4).tril() * 2, x.masked_fill(torch.eye(4)[:3].bool(), -1.0)),
        (r(3, 4),),
    ),
    "layer norm": (
        lambda x, w: (F.layer_norm(x, (4,), w), F.layer_norm(x, (3, 4)), F.layer_norm(x.double(), (4,)), x.sum()),
        (r(2, 3, 4), r(4)),
    ),
    "a slice with a step": (lambda x: (x[1:], x[:, -1], x[::2], x[..., None], x.flip(0)), (r(4, 6),)),
    "upsampling": (lambda x: (F.interpolate(x, scale_factor=2), F.pad(x, (1, 2, 0, 1), "reflect")), (r(1, 2, 4, 4),)),
}  # fmt: skip


@pytest.mark.parametrize("name", INFERENCE)
def test_inference(name: str, compare: Comparison) -> None:
    function, args = INFERENCE[name]
    if name == "pieces of nothing" and torch.__version__ < "2.13":
        pytest.skip("Dynamo of torch 2.12 cannot split a tensor without elements")
    with torch.no_grad():
        compare(function, args)


#: Island operators, as the report names them.
ISLANDS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "rand": (lambda x: x + torch.rand(3), (r(3),), ["aten.rand.default"]),
    "dropout": (lambda x: F.dropout(x * 2, 0.5, True) + 1, (r(64),), ["aten.native_dropout.default"]),
    "multinomial": (lambda x: torch.multinomial(x.abs(), 2) + 1, (r(8),), ["aten.multinomial.default"]),
    "fft": (lambda x: torch.fft.rfft(x + 1).abs() + 1, (r(8),), ["aten._fft_r2c.default", "aten.abs.default"]),
}


@pytest.mark.parametrize("name", ISLANDS)
def test_islands(name: str, compare: Comparison) -> None:
    function, args, islands = ISLANDS[name]
    with torch.no_grad():
        compare(function, args)
    assert compare.islands == islands
    assert compare.storage.reports[0].parts


DYNAMIC: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "sizes as results": (lambda x: (x + 1, x.shape[0] * 2 + x.shape[1], x.numel()), [(r(3, 4),), (r(5, 6),)]),
    "cat, view, arange": (
        lambda x: (torch.cat([x, x], 0).view(x.shape[0], -1), torch.arange(x.shape[0]), torch.zeros(x.shape[1])),
        [(r(3, 4),), (r(5, 6),)],
    ),
    "an integer argument": (lambda x, n: (x * n, n + 1), [(r(3, 4), 5), (r(5, 6), 7)]),
    "a float argument": (lambda x, s: x * s, [(r(3, 4), 0.5), (r(5, 6), 0.25)]),
    "slices": (lambda x: (x[1:], x[:, -1], x[::2], x[..., None]), [(r(4, 6),), (r(6, 8),)]),
    "layout": (lambda x: x.t() * 2, [(r(3, 4),), (r(5, 6),)]),
    "an island between": (lambda x: (x * 2 + torch.rand_like(x)).reshape(-1) * x.shape[0], [(r(3, 4),), (r(5, 6),)]),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_symbolic_sizes(name: str, compare: Comparison) -> None:
    function, calls = DYNAMIC[name]
    with torch.no_grad():
        compare(function, *calls, dynamic=True)
    assert len(compare.storage.reports) == 1, "the second call compiled again"


def operators(compare: Comparison) -> list[str]:
    (model,) = compare.storage
    return [node.op_type for node in model.onnx.graph.node if node.op_type != "Constant"]


def test_what_depends_on_no_input_is_computed_once(compare: Comparison) -> None:
    with torch.no_grad():
        compare(lambda x: x * (torch.arange(4) > torch.arange(3)[:, None]).float().cumsum(1), (r(3, 4),))
        assert operators(compare) == ["Mul"]
        (values,) = compare.storage[0].onnx.graph.initializer
        assert list(values.dims) == [3, 4]
        compare(lambda x: x + torch.arange(x.shape[0]), (r(3),), (r(5),), dynamic=True)
    assert "Range" in operators(compare), "it depends on a symbolic size"


def test_layer_norm_is_one_operator_in_training(compare: Comparison) -> None:
    compare(lambda x, w: F.layer_norm(x, (4,), w), (r(3, 4), r(4)), grad=True)
    forward, _ = compare.storage
    assert [node.op_type for node in forward.onnx.graph.node] == ["LayerNormalization"]


def test_sizes_that_depend_on_data(compare: Comparison) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
        compare(lambda x: x[x > 0] * 2, (r(8),), (r(8),))


conv = (r(2, 4, 9, 8), r(6, 4, 3, 3), r(6))
TRAINING: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "linear, layer norm, gelu": (
        lambda x, w, b, g: F.gelu(F.layer_norm(F.linear(x, w, b), (5,), g)), (r(3, 4), r(5, 4), r(5), r(5))
    ),
    "conv, max pool, batch norm": (
        lambda x, w, b, g, h: F.batch_norm(F.max_pool2d(F.conv2d(x, w, b, 1, 1).relu(), 2), None, None, g, h, True),
        (r(2, 3, 8, 8), r(4, 3, 3, 3), r(4), r(4), r(4)),
    ),
    "conv with strides": (lambda x, w, b: F.conv2d(x, w, b, (2, 3), (1, 2), 1), conv),
    "conv with dilation": (lambda x, w, b: F.conv2d(x, w, b, (2, 1), 2, 2), conv),
    "conv in groups": (lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 2), (r(2, 4, 9, 8), r(6, 2, 3, 3), r(6))),
    "depthwise conv": (lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 4), (r(2, 4, 9, 8), r(4, 1, 3, 3))),
    "transposed conv": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), (r(2, 4, 5, 6), r(4, 3, 3, 3), r(3))
    ),
    "transposed conv in groups": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2), (r(2, 4, 5, 6), r(4, 3, 3, 3), r(6))
    ),
    "conv of one element": (lambda x, w: F.conv2d(x, w, None, 2), (r(2, 4, 9, 8), r(6, 4, 1, 1))),
    "conv of many elements": (lambda x, w: F.conv2d(x, w, None, 1, 2), (r(1, 2, 9, 8), r(3, 2, 6, 6))),
    "conv of one dimension": (lambda x, w: F.conv1d(x, w, None, 2, 1), (r(2, 3, 9), r(4, 3, 3))),
    "conv of three dimensions": (lambda x, w: F.conv3d(x, w, None, 2, 1), (r(1, 2, 5, 6, 5), r(3, 2, 3, 3, 3))),
    "average pools": (lambda x: (F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1)), (r(2, 3, 9, 8),)),
    "average pools that overlap": (lambda x: F.avg_pool2d(x, 3, 2, 1), (r(2, 3, 9, 8),)),
    "average pools without padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, False, False), (r(2, 3, 9, 8),)),
    "cross entropy": (F.cross_entropy, (r(6, 4), torch.randint(0, 4, (6,)))),
    "embedding": (lambda k, w: F.embedding(k, w).sum(1), (torch.randint(0, 10, (2, 5)), r(10, 8))),
    "attention": (F.scaled_dot_product_attention, (r(2, 2, 5, 4), r(2, 2, 5, 4), r(2, 2, 5, 4))),
    "dropout": (lambda x: F.dropout(x * 2, 0.5, True), (r(64),)),
    "slices and cat": (lambda x: torch.cat([x[1:], x[:2] * 2], 0)[:, [0, 2]], (r(4, 4),)),
    "in place on results": (lambda x, w: (x * w).add_(1).mul_(w), (r(3, 4), r(3, 4))),
    "upsampling, silu, group norm": (
        lambda x, g, b: F.silu(F.group_norm(F.interpolate(x, scale_factor=2), 2, g, b)), (r(1, 4, 4, 4), r(4), r(4))
    ),
    "bfloat16": (lambda x, w: F.gelu(x @ w), (r(3, 4).bfloat16(), r(4, 5).bfloat16())),
    "float64": (lambda x, w: torch.tanh(x @ w), (r(3, 4).double(), r(4, 5).double())),
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("name", TRAINING)
def test_training(name: str, compare: Comparison) -> None:
    function, args = TRAINING[name]
    compare(function, args, grad=True)


@pytest.mark.process
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("conv with strides", marks=pytest.mark.slow),
        pytest.param("conv in groups", marks=pytest.mark.slow),
        pytest.param("transposed conv", marks=pytest.mark.slow),
        "average pools that overlap",
    ],
)
def test_training_with_symbolic_sizes(name: str, compare: Comparison) -> None:
    function, args = TRAINING[name]
    smaller = tuple(a[:1, :, 1:] if k == 0 else a for k, a in enumerate(args))
    compare(function, args, smaller, grad=True, dynamic=True)


class Normalized(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.linear(x))
        return out


def test_running_statistics_of_batch_norm(compare: Comparison) -> None:
    from fxminify.backends.shipped.onnxrt import compile_fx

    torch.manual_seed(0)
    one, other = Normalized(), Normalized()
    other.load_state_dict(one.state_dict())
    compiled = torch.compile(other, backend=compile_fx, options={"strict": True})
    for _ in range(2):
        x = r(8, 4)
        one(x).sin().sum().backward()
        compiled(x).sin().sum().backward()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value)
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)


def test_booleans_beside_bfloat16(compare: Comparison) -> None:
    with torch.no_grad():
        compare(lambda x, chosen: torch.where(chosen, x, x * 2), (r(4).bfloat16(), torch.tensor([True, False] * 2)))


def test_signs_are_those_of_eager(compare: Comparison) -> None:
    x = torch.tensor([math.nan, math.inf, -0.0, 2.0, -3.0])
    compare(lambda x: torch.sign(x) + torch.sgn(x) * 2, (x,), grad=True)
