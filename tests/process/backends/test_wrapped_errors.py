"""Where an exception says only that a step failed, a person is told what failed."""

from __future__ import annotations

import pytest
import torch

from fxminify.backends.running.exceptions import failure_of
from fxminify.store.failure import Failure, FailureKind, Phase


class Missing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.special.bessel_j0(x)
        return y + 1


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


def exporting(module: torch.nn.Module) -> Failure:
    with pytest.raises(RuntimeError) as raised:
        torch.onnx.export(module, (torch.ones(2),), dynamo=True, verbose=False)
    return failure_of(raised.value, Phase.COMPILE)


def test_the_cause_of_a_failed_export_to_onnx_is_what_a_list_shows() -> None:
    missing, branches = map(exporting, (Missing(), Branches()))
    assert missing.message.startswith("Failed to convert the exported program to an ONNX model.")
    assert missing.headline().startswith("DispatchError: No ONNX function found for <OpOverload(op='prims.bessel_j0'")
    assert branches.message.startswith("Failed to export the model with torch.export.")
    assert "Could not guard on data-dependent expression" in branches.headline()


def test_an_error_that_says_it_itself_is_shown_though_it_has_a_cause() -> None:
    causes = (("KeyError", "1"),)
    failure = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "ValueError", "no lowering", causes=causes)
    assert failure.headline() == "ValueError: no lowering"
