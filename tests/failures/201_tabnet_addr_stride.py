"""A low-rank update of a transposed weight: `addr` with beta=0 returns contiguous strides where eager keeps the layout."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "aot_eager_decomp_partition"
KIND = "divergence"
EXPECT = "stride"
MIN_NODES = 1  # addr of an input that is stored transposed
CULPRIT = "addr"
SOURCE = "pytorch/pytorch#198364 (2026-09)"


class LowRankLinear(nn.Module):
    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.base = nn.Linear(wide, narrow)
        self.u, self.v = nn.Parameter(torch.randn(wide)), nn.Parameter(torch.randn(narrow))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        update = torch.addr(self.base.weight.t(), self.u, self.v, beta=0.0)
        return F.linear(x, self.base.weight, self.base.bias) + x @ update * 0.1, update


class TabNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.stem = nn.BatchNorm1d(8), nn.Linear(8, 6)
        self.low, self.head = LowRankLinear(6, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, update = self.low(F.gelu(self.stem(self.norm(x))))
        mask = F.softmax(hidden, -1)
        return self.head(hidden * mask), update


def make():
    return TabNet().eval(), (torch.randn(3, 8),)
