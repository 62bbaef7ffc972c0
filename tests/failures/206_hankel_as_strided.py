"""An in-place step on a Hankel view (rows overlap): eager adds more than once, the functionalized graph once."""

import torch
import torch.nn as nn

BACKEND = "aot_eager"
KIND = "divergence"
EXPECT = "value"
MIN_NODES = 1  # one operator that writes to an input whose rows overlap
CULPRIT = "as_strided"  # of an input that the script makes
SOURCE = "pytorch/pytorch#174371 (2026-02)"


class Hankel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        series = torch.tanh(self.mix(signal)).flatten()
        windows = series.as_strided((5, 4), (1, 1))
        windows.add_(1.0)
        return self.head(self.norm(windows).relu())


def make():
    return Hankel().eval(), (torch.randn(8),)
