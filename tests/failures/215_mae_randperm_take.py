"""A random choice of patches by `take`: a pattern of Inductor matches `randperm` and an index that it cannot replace."""

import torch
import torch.nn as nn

BACKEND = "inductor"
KIND = "compile_error"
EXPECT = "RuntimeError: Not all inputs to pattern found in match.kwargs"
MIN_NODES = 2  # randperm and take
CULPRIT = "randperm"
SOURCE = "pytorch/pytorch#188223 (2026-06)"


class MaskedEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(8, 2)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        h = torch.sigmoid(self.norm(self.embed(patches)))
        kept = torch.take(h, torch.randperm(8))
        return self.head(kept)


def make():
    return MaskedEncoder().eval(), (torch.randn(4, 6),)
