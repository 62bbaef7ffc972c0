"""A decoder that puts its keys behind an empty cache: `cat` gives the strides of the keys, in eager new ones."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "stride"
MIN_NODES = 1  # cat of one transposed tensor
CULPRIT = "cat"
SOURCE = "fxminify: --check of a training of GPT-2 on an H100 (2026-11)"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (t.view(*x.shape[:2], 4, 8).transpose(1, 2) for t in self.qkv(x).split(32, dim=2))
        keys = torch.cat([cache, k], dim=-2)
        mixed = F.scaled_dot_product_attention(q, keys, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2)), keys


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm, self.up = Attention(), nn.LayerNorm(32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mixed, keys = self.attention(self.norm(x), cache)
        return F.gelu(self.up(x + mixed)), keys


def make():
    return Decoder(), (torch.randn(2, 6, 32), torch.empty(0))
