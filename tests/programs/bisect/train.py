"""Trains a small transformer with Inductor and fails if the loss is no number: its result is all that is checked.

One block has an activation that Inductor computes wrongly for large numbers.
"""

import sys

import torch
from torch import nn


class Stretched(nn.Module):
    def forward(self, x):
        return torch.acosh(1 + x.abs() * 1e30) / 70


class Block(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), activation, nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.second(x))


class Model(nn.Module):
    def __init__(self, width=64, words=100):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        activations = [nn.GELU(), nn.SiLU(), Stretched(), nn.Tanh()]
        self.blocks = nn.ModuleList(Block(width, activation) for activation in activations)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number % 2:
                print("block", number)  # a graph break, as programs have them
        return self.head(x)


torch.manual_seed(0)
model = Model()
compiled = torch.compile(model, dynamic="--dynamic" in sys.argv or None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(2):
    tokens = torch.randint(100, (4, 16 + step))
    loss = nn.functional.cross_entropy(compiled(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
    assert loss.isfinite(), "the loss is no number"
