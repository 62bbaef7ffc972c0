"""216 in three dimensions, where the windows hang over in one, two or all of them."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "gradient"
MIN_NODES = 1  # avg_pool3d
CULPRIT = "avg_pool"
SOURCE = "pytorch/pytorch#198119 (2026-09), a sibling"
TRAIN = True


class Video(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(3, 6, 3, padding=1), nn.Conv3d(6, 6, 3, padding=1)
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool3d(F.relu(self.a(x)), 3, 2, 1, ceil_mode=True)
        return self.head((F.gelu(self.b(x)) + x).mean((2, 3, 4)))


def make():
    return Video(), (torch.randn(2, 3, 6, 8, 8),)
