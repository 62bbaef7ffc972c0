"""Stand-ins for values that are not kept: the same range, bounds that indices respect, nothing of the data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fxminify.store.document.case import Case
from fxminify.store.live.build import build
from fxminify.store.live.encode import encode
from fxminify.store.live.snapshot import Keep
from fxminify.store.live.synthesis import recipe


@pytest.mark.parametrize(
    ("tensor", "init"),
    [
        (torch.tensor([3, 90, 17]), {"fn": "randint", "low": 3, "high": 91}),
        (torch.tensor([5, 5], dtype=torch.int32), {"fn": "full", "value": 5}),
        (torch.arange(9), {"fn": "arange"}),
        (torch.tensor([0, 2, 1]), {"fn": "randint", "low": 0, "high": 3}),
        (torch.tensor([True, True]), {"fn": "full", "value": True}),
        (torch.tensor([True, False]), {"fn": "randint", "low": 0, "high": 2}),
        (torch.tensor([0.25, 0.5]), {"fn": "rand"}),
        (torch.tensor([-3.0, 0.5]), {"fn": "randn"}),
        (torch.zeros(4, dtype=torch.bfloat16), {"fn": "full", "value": 0.0}),
        (torch.tensor([1.0, float("nan")]), {"fn": "randn"}),
        (torch.tensor([1j, 2.0]), {"fn": "randn"}),
        (torch.tensor([2, 200], dtype=torch.uint16), {"fn": "randint", "low": 2, "high": 201}),
        (torch.empty(0, 4), {"fn": "full", "value": 0}),
    ],
)
def test_the_range_stays(tensor: torch.Tensor, init: dict[str, Any]) -> None:
    assert recipe(tensor) == init


class Lookup(torch.nn.Module):
    def forward(self, indices: torch.Tensor, table: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> Any:
        return table[indices] + left.sum() + right.sum()


def test_what_is_kept_and_what_is_not() -> None:
    torch.manual_seed(1)
    shared = torch.randn(64)
    inputs = [torch.randint(0, 30, (1000,)), torch.randn(30, 100).t().contiguous().t(), shared[:40], shared[8:]]
    gm = torch.fx.symbolic_trace(Lookup())
    whole = encode(gm, inputs)
    assert whole.left_out == ()
    parts = encode(gm, inputs, keep=Keep(each=4))
    assert parts.left_out == (0, 1)
    assert [t.init for t in parts.tensors] == [
        {"fn": "randint", "low": 0, "high": 30}, {"fn": "randn"}, None, None
    ]  # fmt: skip
    assert len(parts.blobs) == 1  # two tensors share it
    case = Case(parts.graph, parts.inputs, parts.tensors)
    module, made = build(case, parts.blobs)
    assert [t.stride() for t in made] == [t.stride() for t in inputs]
    assert made[2].untyped_storage().data_ptr() == made[3].untyped_storage().data_ptr()
    module(*made)  # the indices are in range
