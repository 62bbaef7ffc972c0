"""`minimum` of zeros of two signs: eager takes the negative one, and which one it is turns a heading around."""

import torch
import torch.nn as nn

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "output"
MIN_NODES = 2  # minimum, and a call that tells the zeros apart
CULPRIT = "minimum"
SOURCE = "pytorch/pytorch#194347 (2026-08)"


class Heading(nn.Module):
    """Where a vehicle heads that drives backwards: drift to the left or the right counts while it brakes."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.speed = nn.Linear(6, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.encoder(x))
        left, right = -torch.relu(h[..., :1] - 2), torch.relu(h[..., 1:2] - 2)
        return torch.atan2(torch.minimum(left, right), -self.speed(h).exp())


def make():
    return Heading().eval(), (torch.randn(1, 6),)
