"""A chain of third-party backends that fail while they compile, while Dynamo builds guards, or at the first call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import fxminify
from fxminify.store.index import Index

from .conftest import needs

pytestmark = needs("openvino") + needs("turbine_cpu")


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


class Lgamma(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.lgamma(torch.relu(x) + 1)


class Total(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.double().sum()


def tolerance(last: str) -> float:
    """How far the numbers of the backend ``last`` may be from eager. OpenVINO computes in what suits the processor."""
    if last == "eager":
        return 1e-5
    openvino = pytest.importorskip("openvino")  # not installed where types are checked
    precision = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT")
    return 1e-5 if precision == openvino.Type.f32 else 3e-3  # bfloat16: 2**-9 of values below 1


@pytest.mark.parametrize(
    ("backends", "make", "captured"),
    [
        (("openvino", "eager"), convolutions, {("openvino", "guards")}),
        (("turbine_cpu", "openvino"), lambda: nn.Sequential(Lgamma(), convolutions()), {("turbine_cpu", "compile")}),
        (("turbine_cpu", "openvino"), Total, {("turbine_cpu", "forward")}),
    ],
)
def test_the_chain_ends_with_the_numbers_of_eager(
    backends: tuple[str, ...], make: Callable[[], nn.Module], captured: set[tuple[str, str]], tmp_path: Path
) -> None:
    torch._dynamo.reset()
    model = make().eval()
    db = str(tmp_path / "repro.db")
    compiled = torch.compile(model, backend=fxminify.chain(*backends, db=db))
    with torch.no_grad():
        for size in (16, 20, 24):
            x = torch.randn(size // 4, 3, size, size)
            assert torch.allclose(compiled(x), model(x), atol=tolerance(backends[-1]))
    with Index.open(db, readonly=True) as index:
        assert {(row.backend, row.phase) for row in index.captures.find()} == captured
