"""`logspace` with a negative base runs in eager; its decomposition raises NotImplementedError."""

import torch
import torch.nn as nn

BACKEND = "aot_eager_decomp_partition"
KIND = "compile_error"
EXPECT = "NotImplementedError"
MIN_NODES = 1  # logspace
CULPRIT = "logspace"
SOURCE = "found while the issues of 2026 were tried on torch 2.13"


class Wavelet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(1, 6, 3, padding=1), nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scales = torch.logspace(0, 5, 6, base=-2.0)
        h = torch.relu(self.norm(self.conv(x))) * scales[:, None]
        return self.head(torch.tanh(h).mean(2))


def make():
    return Wavelet().eval(), (torch.randn(2, 1, 9),)
