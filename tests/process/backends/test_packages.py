"""Programs that package their models with AOTInductor, and the same as a backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hooked import inputs
from indexes import captures

import fxminify
from fxminify.store.index import Index


class Refused(torch.nn.Module):
    """Inductor of torch 2.13 raises on ``torch.logspace`` with a negative base."""

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * scale + torch.logspace(0, 0, 0, base=-0.5).sum()


def packaged(module: torch.nn.Module, **settings: Any) -> Any:
    exported = torch.export.export(module, (torch.full((2, 8), 3.0),), {"scale": torch.full((1,), 5.0)})
    return torch._inductor.aoti_compile_and_package(exported, inductor_configs=settings or None)


def test_a_package_that_fails_is_a_row_with_its_real_inputs(db: str) -> None:
    with fxminify.capturing(db), pytest.raises(NotImplementedError, match="logspace"):
        packaged(Refused(), max_fusion_size=1)
    (row,) = captures(db)
    assert (row.backend, row.kind, row.phase, row.state) == ("aot_inductor", "compile_error", "compile", "pending")
    assert [float(value.max()) for value in inputs(db)] == [3.0, 5.0]
    with Index.open(db) as index:
        backend = index.captures.case(1).backend
    assert backend["how"] == "source"
    assert backend["options"] == {"dict": [["max_fusion_size", 1]]}


def test_the_exception_of_a_package_has_none_of_our_frames(db: str) -> None:
    with fxminify.capturing(db), pytest.raises(NotImplementedError) as caught:
        packaged(Refused())
    assert [entry.path for entry in caught.traceback if "capture" in Path(str(entry.path)).parts] == []


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True])
def test_the_backend_computes_what_eager_computes(dynamic: bool | None) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x - 1) * x.shape[0]

    compiled: Callable[..., Any] = torch.compile(function, backend="fxminify_aoti", dynamic=dynamic)
    for size in (2, 3):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("kept", [True, False])
def test_a_healthy_package_is_not_changed_whether_its_graph_can_be_kept_or_not(
    db: str, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    calls = []

    def compile_fx_aot(gm: torch.fx.GraphModule, inputs: list[Any], **_: Any) -> str:
        calls.append(gm)
        return "model.so"

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_aot", compile_fx_aot)
    module = torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).module()
    if not kept:
        monkeypatch.setattr("fxminify.backends.capture.graph_snapshot.flat", None)
    with fxminify.capturing(db):
        assert torch._inductor.aot_compile(module, (torch.ones(2),)) == "model.so"
    assert (calls, Path(db).exists()) == ([module], False)
