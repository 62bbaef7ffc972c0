"""An in-place step through an `unfold` view with gaps: everything that no window covers becomes zero."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "aot_eager"
KIND = "divergence"
EXPECT = "value: zeros"
MIN_NODES = 2  # unfold, and one operator that writes through it
CULPRIT = "unfold"
SOURCE = "pytorch/pytorch#198102 (2026-09)"


class Block(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.relu(self.norm(self.conv(x)))


class TCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv1d(2, 4, 1), nn.Sequential(Block(4, 1), Block(4, 2))
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.blocks(self.stem(x))
        h.unfold(2, 1, 5).mul_(0.5)  # damp each fifth frame
        return self.head(h.mean(2))


def make():
    return TCN().eval(), (torch.randn(2, 2, 12),)
