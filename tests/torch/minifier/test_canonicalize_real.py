"""Real failures of torch 2.13's decompositions, in narrow types, odd layouts and large data: what is left is plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from made import Held, canonicalize

from fxminify.minifier.oracle.keys import Keys
from fxminify.minifier.oracle.observe import observe
from fxminify.repro_templates.source.inputs import print_inputs
from fxminify.store.document.case import Case
from fxminify.store.live.encode import encode
from fxminify.store.signature import signature

BACKEND = "aot_eager_decomp_partition"
CONTEXT = {"grad": False, "matmul_precision": "high", "config": {"torch._functorch.config": {"donated_buffer": False}}}


def put() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Strides of the result differ for a transposed tensor."""
    base = torch.rand(64).bfloat16()
    return lambda a, i, v: (a.put(i, v),), [base[16:46].view(5, 6).t(), torch.tensor([0, 7]).int().long(), base[3:5]]


def grid_sample() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """One coordinate is NaN."""
    x, grid = torch.rand(2, 3, 11, 13, dtype=torch.float64), torch.rand(2, 9, 7, 2, dtype=torch.float64)
    grid[1, 4, 5, 0] = float("nan")
    return lambda x, g: (torch.nn.functional.grid_sample(x, g, align_corners=False),), [x, grid]


def unfold() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Functionalization refuses a tensor that overlaps itself."""
    return lambda x: ((x.half() * 2).unfold(1, 4, 2).abs_(),), [torch.randn(3, 40).half()[:, ::2].requires_grad_()]


@pytest.mark.parametrize(
    ("make", "inputs", "most"),
    [
        (put, ["a = torch.zeros(2, 2).t()", "i = torch.zeros(1, dtype=torch.int64)", "v = torch.zeros(1)"], 14),
        pytest.param(
            grid_sample,
            ["x = torch.zeros(1, 1, 1, 1)", "g = torch.full((1, 1, 1, 2), nan)"],
            24,
            marks=pytest.mark.slow,
        ),
        (unfold, ["x = torch.zeros(1, 4)"], 11),
    ],
)
def test_real_failures_end_plain(
    make: Callable[[], tuple[Callable[..., Any], list[torch.Tensor]]], inputs: list[str], most: int
) -> None:
    torch.manual_seed(0)
    function, given = make()
    encoded = encode(torch.fx.symbolic_trace(function), given)
    backend = {"name": BACKEND, "how": "registered", "target": BACKEND}
    held, keys = Held(encoded.blobs), Keys()
    case = Case(encoded.graph, encoded.inputs, encoded.tensors, CONTEXT, backend, compare=True)
    failure = observe(case, held).failure
    assert failure is not None
    answers: dict[str, bool] = {}

    def same(candidate: Case) -> bool:
        key = keys.key(candidate)
        if key not in answers:
            seen = observe(candidate, held).failure
            answers[key] = seen is not None and signature(seen) == signature(failure)
        return answers[key]

    plain = canonicalize(case, held, same)
    names = [n.name for n in plain.graph.placeholders]
    assert [s.layout() for s in print_inputs(plain, held, names).statements] == inputs
    assert plain.context == {}
    assert len(answers) <= most
