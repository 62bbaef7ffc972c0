"""real failure: resnet_softshrink_nan"""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKEND = 'inductor'
KIND = 'divergence'
EXPECT = 'value: nan lost'
MIN_NODES = 1
SOURCE = 'own fuzz'


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.n, self.b, self.m = nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.m(self.b(F.relu(self.n(self.a(x))))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Sequential(Block(4), Block(4)), nn.Linear(4, 2)

    def forward(self, x, sensor):
        h = self.blocks(self.stem(x)).mean((2, 3))
        return self.head(h) + 0.1 * F.softshrink(sensor[:, None] * 3).expand(-1, 2)


def make():
    return Net().eval(), (torch.randn(3, 1, 6, 6), torch.tensor([0.3, float("nan"), 2.0]))
