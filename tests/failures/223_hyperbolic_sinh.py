"""`sinh` and `cosh` of 89 are finite in float32; where they are vectorized they are halves of an infinite `exp`."""

import torch
import torch.nn as nn

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "inf where eager is finite"
MIN_NODES = 1  # sinh or cosh
CULPRIT = "torch."  # either of the two
SOURCE = "own fuzz inside an embedding of a hyperbolic space"


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.SiLU()) for _ in range(4)])
        self.out = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, radius: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        v = self.out(self.encoder(x))
        direction = v / v.norm(dim=-1, keepdim=True).clamp_min(1e-6)
        return torch.log(torch.cosh(radius)), torch.sinh(radius)[:, None] * direction


def make():
    return Embedding(), (torch.randn(40, 16), torch.linspace(1, 89, 40))
