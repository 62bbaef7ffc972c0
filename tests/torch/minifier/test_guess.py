"""The first guess: the operator that a failure names, on inputs that the capture knows without running anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import faulty_backends
import pytest
import torch
from captured import capture, spec
from made import ops

from fxminify.minifier.reducer.guess import guess
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.live.build import build

WEIGHT = torch.randn(6, 4)


def layer(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    h = torch.nn.functional.linear(x, WEIGHT).relu()
    top, at = torch.topk(h, 2)
    return torch.nn.functional.embedding(ids, h).sum() + top.cumsum(1) + at


def failure(message: str, **more: Any) -> Failure:
    known: dict[str, Any] = {"kind": FailureKind.COMPILE_ERROR, "phase": Phase.COMPILE, "type": "RuntimeError"}
    return Failure(**(known | {"message": message} | more))


@pytest.fixture(scope="module")
def case() -> Any:
    return capture(layer, [torch.randn(3, 4), torch.tensor([2, 1])], spec("cannot_lower"))[0]


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("no lowering of relu", ["relu"]),
        ("aten::embedding is not implemented", ["nn.functional.embedding"]),
        ("unsupported: 'topk' with 2 results", ["topk", "_operator.getitem", "_operator.getitem"]),
        ("CumSum(14) has no kernel", ["cumsum"]),
    ],
)
def test_the_operator_that_is_named_is_taken_alone_and_runs(case: Any, message: str, left: list[str]) -> None:
    found = guess(case, failure(message))
    assert found is not None
    assert ops(found) == left
    graph, inputs = build(found, {})
    graph(*inputs)
    assert all(tensor.storage is None for tensor in found.tensors)


def test_the_guess_shows_what_was_captured(case: Any) -> None:
    found = guess(case, failure("cannot lower relu", type="NotImplementedError"))
    assert found is not None
    graph, inputs = build(found, {})
    with pytest.raises(NotImplementedError, match="cannot lower relu"):
        faulty_backends.cannot_lower(graph, inputs)


def test_nothing_is_guessed_where_nothing_is_named_or_values_have_to_be_measured(case: Any) -> None:
    assert guess(case, failure("internal error 17")) is None
    assert guess(case, failure("compile error\nwarning: conversion of relu to char")) is None
    assert guess(case, failure("relu", kind=FailureKind.DIVERGENCE, phase=Phase.FORWARD)) is None
    assert guess(case, failure("relu", kind=FailureKind.HANG)) is None
    assert guess(case, failure("relu", phase=Phase.BACKWARD)) is None
    assert guess(replace(case, calls=2), failure("no lowering of relu")) is None
