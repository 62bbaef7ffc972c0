"""ELU of a negative zero is a positive one where it is vectorized: its reciprocal is infinity instead of minus that."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "output"
MIN_NODES = 3  # elu, reciprocal and what makes a number of an infinity
CULPRIT = "elu"
SOURCE = "pytorch/pytorch#189799 (2026-07)"


class Focus(nn.Module):
    """Attention that is as sharp as a gate says, which is zero where there is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.gate = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(-1, -2) / 8**0.5, -1)
        rest = F.elu(self.gate(x).squeeze(-1) * mask)
        return torch.sigmoid(torch.reciprocal(rest)).unsqueeze(-1) * (weights @ x)


def make():
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    return Focus().eval(), (torch.randn(2, 5, 8), mask)
