"""Integer positions from `linspace`: the decomposition computes them in float32 and rounds above 2**24."""

import torch
import torch.nn as nn

BACKEND = "aot_eager_decomp_partition"
KIND = "divergence"
EXPECT = "value"
MIN_NODES = 1  # linspace
CULPRIT = "linspace"
SOURCE = "found while the issues of 2026 were tried on torch 2.13"


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.linspace(0, 10_000_000_000, x.shape[1], dtype=torch.int64)
        angle = (places % 7).float()[None, :, None]
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = q * angle.cos() + q.flip(-1) * angle.sin(), k * angle.cos() + k.flip(-1) * angle.sin()
        return self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v)), places


def make():
    return Rotary().eval(), (torch.randn(2, 7, 8),)
