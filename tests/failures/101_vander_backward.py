"""real failure: vander_backward"""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = 'aot_eager_decomp_partition'
KIND = 'compile_error'
EXPECT = 'variables needed for gradient computation has been modified'
MIN_NODES = 1
SOURCE = 'own fuzz'
TRAIN = True


class Fit(nn.Module):
    def __init__(self):
        super().__init__()
        self.knots = nn.Parameter(torch.linspace(-1, 1, 4))
        self.body = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())])
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.body(x)) @ torch.vander(self.knots)


def make():
    return Fit(), (torch.randn(5, 8),)
