"""An operator of the program's own whose fake kernel rounds a size down where the operator rounds it up."""

import torch
import torch.nn as nn
from contour_ops import pool

BACKEND = "inductor"
KIND = "runtime_error"
EXPECT = "AssertionError: expected size"
MIN_NODES = 1  # the operator
CULPRIT = "contour.pool"
SOURCE = "a mistake of a program: torch's own message says that the fake kernel is to blame"


class Contour(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolve, self.head = nn.Conv1d(3, 4, 3, padding=1), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head((pool(self.convolve(x).relu(), 2) * 2 + 1).mean(2))


def make():
    return Contour(), (torch.randn(2, 3, 17),)
