"""The gradient of `avg_pool1d` with ceil_mode: the last window, which hangs over, is divided by its full size."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "gradient"
MIN_NODES = 1  # avg_pool1d
CULPRIT = "avg_pool"
SOURCE = "pytorch/pytorch#198119 (2026-09)"
TRAIN = True


class Keyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(1, 3, 3, padding=1), nn.Linear(3, 2)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.conv(wave))
        h = F.avg_pool1d(h, 3, 2, ceil_mode=True)
        return self.head(h.square().mean(2))


def make():
    return Keyword(), (torch.randn(2, 1, 6),)
