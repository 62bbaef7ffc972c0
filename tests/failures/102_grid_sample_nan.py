"""real failure: grid_sample_nan"""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = 'aot_eager_decomp_partition'
KIND = 'divergence'
EXPECT = 'value: nan'
MIN_NODES = 2
SOURCE = 'own fuzz'


class STN(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 6))
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))

    def forward(self, x):
        grid = F.affine_grid(self.loc(x).view(-1, 2, 3), x.shape, align_corners=False).log()
        return self.body(x) + 1, F.grid_sample(self.body(x), grid, align_corners=False)


def make():
    return STN().eval(), (torch.randn(2, 1, 8, 8),)
