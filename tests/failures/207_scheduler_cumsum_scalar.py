"""`cumsum` of a constant without dimensions cannot be lowered."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "inductor"
KIND = "compile_error"
EXPECT = "IndexError: tuple index out of range"
MIN_NODES = 2  # the constant and cumsum
CULPRIT = "cumsum"
SOURCE = "pytorch/pytorch#193265 (2026-08)"


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beta = torch.full((), 0.25)
        signal = 1 - beta.cumsum(0)  # the schedule of a model that has one step
        h = F.silu(self.norm(self.conv(x))) * signal.sqrt()
        return self.head(h.mean(2))


def make():
    return Denoiser().eval(), (torch.randn(2, 2, 6),)
