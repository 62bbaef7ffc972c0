"""`addmm` with beta=0 must ignore its first input, NaN as well; the decomposition multiplies it by zero."""

import torch
import torch.nn as nn

BACKEND = "aot_eager_decomp_partition"
KIND = "divergence"
EXPECT = "value: nan"
MIN_NODES = 1  # addmm
CULPRIT = "addmm"
SOURCE = "pytorch/pytorch#196596 (2026-09)"


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6)
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.register_buffer("scratch", torch.full((4,), float("nan")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))
        row = h.mean(0, keepdim=True)
        scores = torch.addmm(self.scratch, row, self.weight.t(), beta=0)
        return torch.softmax(scores, -1) @ self.weight + h


def make():
    return Mixer().eval(), (torch.randn(1, 6),)
