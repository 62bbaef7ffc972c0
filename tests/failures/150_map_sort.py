"""Inductor cannot lower `map`: a tensor's value is asked for while its loop is traced. The operator is needed."""

import torch
from torch._higher_order_ops.map import map as map_rows

BACKEND = "inductor"
KIND = "compile_error"
EXPECT = "DataDependentOutputException: aten._local_scalar_dense.default"
MIN_NODES = 3
SOURCE = "found while graphs with bodies were tried on torch 2.13"


def around(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.tanh(x) * 1.5 + x.cos().exp().relu()
    return x


def make():
    def row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return around(torch.sort(around(x)).values + y)

    def function(x: torch.Tensor) -> torch.Tensor:
        return around(map_rows(row, around(x), x[0] + 1))

    return function, (torch.randn(4, 6),)
