"""Upsampling by 1.3 in float64: the decomposition of `interpolate` reads another neighbour than eager."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "aot_eager_decomp_partition"
KIND = "divergence"
EXPECT = "value"
MIN_NODES = 1  # interpolate
CULPRIT = "interpolate"
SOURCE = "pytorch/pytorch#175154 (2026-02)"


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.mid = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.up = nn.BatchNorm2d(4), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norm(self.mid(F.max_pool2d(F.relu(self.down(x)), 2))))
        return self.up(F.interpolate(h, scale_factor=1.3, mode="nearest"))


def make():
    return UNet().double().eval(), (torch.randn(1, 1, 4, 4, dtype=torch.float64),)
