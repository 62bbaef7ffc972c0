"""`multilabel_margin_loss` of a sample without labels: the decomposition takes class 0 for one of its labels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = "aot_eager_decomp_partition"
KIND = "divergence"
EXPECT = "value"
MIN_NODES = 1  # multilabel_margin_loss
CULPRIT = "multilabel_margin_loss"
SOURCE = "own fuzz inside a classifier of images"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.b(F.relu(self.a(x)))) + x)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.blocks = nn.Sequential(*[Block(8) for _ in range(6)])
        self.head = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return F.multilabel_margin_loss(scores, labels) + 1e-4 * scores.square().mean()


def make():
    labels = torch.tensor([[1, -1, 0, 0, 3, 5], [-1, 2, -1, 1, 1, 1], [5, 4, 3, -1, 0, 0]])
    return Tagger(), (torch.randn(3, 3, 20, 20), labels)
