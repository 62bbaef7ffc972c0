"""Every class of divergence from a planted backend, by way of torch.compile, and what must not be taken for one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import wrong_backends  # noqa: F401  registers them
from torch import nn

import fxminify
from fxminify.backends.comparison.precision import rounded
from fxminify.store.index import CaptureInfo, Index
from fxminify.store.signature import signature

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def captured(
    db: str, function: Callable[..., Any], *inputs: Any, backend: str | Callable[..., Any], **settings: Any
) -> list[CaptureInfo]:
    torch._dynamo.reset()
    with fxminify.capturing(db, **{"check": True, **settings}):
        torch.compile(function, backend=backend)(*inputs)
    if not Path(db).exists():
        return []
    with Index.open(db) as index:
        return list(index.captures.find())


def two(x: torch.Tensor) -> Any:
    return x.sin(), x.cos()


def grad() -> torch.Tensor:
    return X.clone().requires_grad_()


@pytest.mark.parametrize(
    ("backend", "function", "kind", "where", "phase"),
    [
        ("wrong_second_value", two, "value", "output 1", "forward"),
        ("wrong_nan", two, "nan", "output 0", "forward"),
        ("wrong_inf", two, "inf", "output 0", "forward"),
        ("wrong_dtype", two, "dtype", "output 0", "forward"),
        ("wrong_shape", two, "shape", "output 0", "forward"),
        ("wrong_stride", two, "stride", "output 0", "forward"),
        ("wrong_alias_of_input", lambda x: (x.view(-1), x.sin()), "alias", "output 0", "forward"),
        ("wrong_alias_of_output", lambda x: (x + 1, (x + 1) * 1), "alias", "output 1", "forward"),
        ("wrong_integer", lambda x: x.argmax(-1), "value", "output 0", "forward"),
        ("wrong_mutation", lambda x: x.add_(1).sin(), "mutation", "input 0", "forward"),
    ],
)
def test_each_class_forward(
    db: str, backend: str, function: Callable[..., Any], kind: str, where: str, phase: str
) -> None:
    [row] = captured(db, function, X.clone(), backend=backend)
    assert row.failure is not None
    assert (row.kind, row.phase) == ("divergence", phase)
    assert (row.failure.detail["class"], row.failure.detail["where"]) == (kind, where)
    assert "others" not in row.failure.detail


@pytest.mark.parametrize(
    ("backend", "function", "kind", "where"),
    [
        ("wrong_second_gradient", lambda x, y: x.sin() * y.cos(), "value", "gradient of input 1"),
        ("wrong_missing_gradient", lambda x, y: x.sin() * y.cos(), "gradient", "gradient of input 1"),
        ("wrong_detached", lambda x, y: (x.sin(), y.cos()), "gradient", "output 1"),
    ],
)
def test_each_class_backward(db: str, backend: str, function: Callable[..., Any], kind: str, where: str) -> None:
    [row] = captured(db, function, grad(), grad(), backend=backend)
    assert row.failure is not None
    assert (row.kind, row.phase) == ("divergence", "backward")
    assert (row.failure.detail["class"], row.failure.detail["where"]) == (kind, where)


def test_every_place_that_diverges_is_named_with_its_error(db: str) -> None:
    [row] = captured(db, lambda x, y: (x.sin(), y.cos() + x), grad(), grad(), backend="wrong_second_value")
    assert row.failure is not None
    detail = row.failure.detail
    assert (detail["where"], detail["dtype"], detail["of"]) == ("output 1", "float32", 12)
    assert 1e-4 < float(detail["error"]) < 1e-2
    assert float(detail["eager_error"]) < 1e-6
    assert 0 < float(detail["allowed"]) < float(detail["error"])
    assert [(o["where"], o["class"]) for o in detail["others"]] == [
        ("gradient of input 0", "value"),
        ("gradient of input 1", "value"),
    ]
    assert row.failure.message.splitlines()[1] == "also: gradient of input 0 (value), gradient of input 1 (value)"


def test_a_backend_that_draws_more_is_not_wrong(db: str, own_log: pytest.LogCaptureFixture) -> None:
    assert captured(db, lambda x: (x + torch.rand_like(x), x.sin()), X, backend="draws_more") == []
    assert [r for r in own_log.records if r.name == "fxminify"] == []


def test_an_eager_that_gives_another_result_each_time_is_not_judged(db: str, own_log: pytest.LogCaptureFixture) -> None:
    count = itertools.count()

    @torch.library.custom_op("fxminify_tests::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        return x + next(count)

    counted.register_fake(torch.empty_like)
    function = lambda x: (counted(x), x.sin(), x.cos())  # noqa: E731
    assert captured(db, function, X, backend="eager", check="first:3") == []
    [message] = [r.getMessage() for r in own_log.records if r.name == "fxminify"]
    assert message.endswith("output 0: eager gives another result each time")
    [row] = captured(db, function, X, backend="wrong_second_value")
    assert row.failure is not None
    assert row.failure.detail["where"] == "output 1"


def test_steps_near_a_tie_are_no_divergence(db: str) -> None:
    """Quantization, ranking and comparison of sums that another order of adding changes: seeds where some do flip."""

    def steps(a: torch.Tensor, b: torch.Tensor) -> Any:
        y = a @ b
        scale = y.abs().amax() / 127
        return (y / scale).round().to(torch.int8), y.argsort(-1)[:, :4], y > y.mean(), (y * 64).floor()

    def other_order(a: torch.Tensor, b: torch.Tensor) -> Any:
        y = a.flip(-1).double() @ b.flip(0).double()
        y = (y + 3e-7 * y.std() * torch.randn(y.shape)).float()
        scale = y.abs().amax() / 127
        return (y / scale).round().to(torch.int8), y.argsort(-1)[:, :4], y > y.mean(), (y * 64).floor()

    flipped = 0
    for seed in range(12):
        torch.manual_seed(seed)
        a, b = torch.randn(128, 64), torch.randn(64, 512)
        with torch.random.fork_rng():
            compared = zip(steps(a, b), other_order(a, b), strict=True)
            flipped += any(not torch.equal(e, o) for e, o in compared)
        assert captured(db, steps, a, b, backend=lambda gm, inputs: other_order) == []
    assert flipped > 3


# --- tolerances ---------------------------------------------------------------------------------------------------


def test_a_tolerance_given_for_a_type_decides(db: str) -> None:
    assert captured(db, two, X, backend="wrong_second_value", tolerance="float32=1e-2") == []
    [row] = captured(db, two, X, backend="wrong_second_value", tolerance={"bfloat16": 1e-2, "float32": 1e-5})
    with Index.open(db) as index:
        assert index.captures.case(row.id).tolerance == {"bfloat16": 1e-2, "float32": 1e-5}


@pytest.mark.parametrize("asked", ["float32", "int8=1", "float32=x", "float32=-1", "float32=inf", {"float32": "nan"}])
def test_what_is_no_tolerance_names_the_grammar(asked: str | dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="DTYPE=T"):
        fxminify.install("unused.db", tolerance=asked)


# --- precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [7, 10])
def test_rounding_is_that_of_the_type(bits: int) -> None:
    values = torch.cat([torch.randn(1000), torch.randn(1000) * 1e-3, torch.tensor([0.0, 1.0, float("inf")])])
    short = torch.bfloat16 if bits == 7 else torch.float16
    assert torch.equal(rounded(values, bits)[:1000], values.to(short).float()[:1000])
    assert torch.equal(rounded(values, bits)[-3:], values[-3:])


def models() -> list[tuple[nn.Module, torch.Tensor]]:
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4))
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten())
    attention = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return [
        (nn.Linear(16, 8), torch.randn(4, 16)),
        (mlp, torch.randn(8, 16)),
        (conv, torch.randn(2, 3, 8, 8)),
        (attention, torch.randn(2, 5, 16)),
        (nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(16, 16), nn.Tanh())]), torch.randn(8, 16)),
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("backend", "training"), [("short_products", False), pytest.param("short_kernels", True, marks=pytest.mark.slow)]
)
def test_a_backend_that_computes_in_a_shorter_type_is_one_row(db: str, backend: str, training: bool) -> None:
    with fxminify.capturing(db, check=True), torch.set_grad_enabled(training):
        for model, x in models():
            torch.compile(model, backend=backend)(x)
    with fxminify.capturing(db, check=True), torch.set_grad_enabled(training):  # another process would do the same
        torch._dynamo.reset()
        torch.compile(models()[1][0], backend=backend)(models()[1][1])
    with Index.open(db) as index:
        [row] = index.captures.find()
    assert row.failure is not None
    detail = row.failure.detail
    assert (detail["class"], detail["dtype"], detail["as"]) == ("precision", "float32", "bfloat16")
    assert 1e-4 < float(detail["error"]) < 1e-1
    assert float(detail["eager_error"]) < 1e-5
    assert signature(row.failure).message == "precision: computes float32 as bfloat16"
    assert row.occurrences >= 6


@pytest.mark.parametrize("factor", [1.0005, 0.9995, 1.001, 0.999])
def test_one_wrong_number_shows_no_shorter_type(db: str, factor: float) -> None:
    """Some rounding of some operation would explain it by chance."""

    def scales(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        return lambda *args: [gm(*args)[0] * factor]

    torch.manual_seed(0)
    linear, x = nn.Linear(16, 8), torch.randn(4, 16)
    with fxminify.capturing(db, check=True), torch.no_grad():
        torch.compile(lambda x: linear(x).square().sum(), backend=scales)(x)
    with Index.open(db) as index:
        [row] = index.captures.find()
    assert row.failure is not None
    assert row.failure.detail["class"] == "value"


def test_a_wrong_value_is_its_own_failure_in_a_backend_of_short_products(db: str) -> None:
    linear, x = nn.Linear(16, 8), torch.randn(4, 16)
    with fxminify.capturing(db, check=True), torch.no_grad():
        torch.compile(linear, backend="short_products_and_sin")(x)
        torch.compile(lambda x: linear(x).sin(), backend="short_products_and_sin")(x)
        torch.compile(lambda x: (linear(x), x.sin()), backend="short_products_and_sin")(x)
    with Index.open(db) as index:
        found = [row.failure.detail for row in index.captures.find() if row.failure is not None]
    assert [(d["class"], d["where"]) for d in found] == [
        ("precision", "output 0"), ("value", "output 0"), ("value", "output 1")
    ]  # fmt: skip
    assert [o["class"] for o in found[2]["others"]] == ["precision"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, w: (x @ w) * 1.003,
        lambda x, w: (x @ w) + 0.005,
        lambda x, w: (x * 1.002) @ w,
        lambda x, w: F.dropout(x @ w, 0.0) - 0.004 * x.sum(),
    ],
)
def test_a_small_error_that_does_not_follow_the_rounding_is_a_wrong_value(db: str, wrong: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(16, 32), torch.randn(32, 16)
    backend = lambda gm, inputs: lambda x, w: (wrong(x, w),)  # noqa: E731
    [row] = captured(db, lambda x, w: x @ w, x, w, backend=backend)
    assert row.failure is not None
    assert row.failure.detail["class"] == "value"
