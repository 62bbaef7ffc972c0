"""Fits powers of its knots; the gradient of `torch.vander` does not compile. Nothing here knows of fxminify."""

import torch
from torch import nn


class Fit(nn.Module):
    """Features of the input times powers of its knots."""

    def __init__(self):
        super().__init__()
        self.knots = nn.Parameter(torch.linspace(-1, 1, 4))
        self.body = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, x):
        return self.body(x) @ torch.vander(self.knots)


torch.manual_seed(0)
model = torch.compile(Fit())
loss = model(torch.randn(5, 8)).square().mean()
loss.backward()
print(f"loss {loss.item():.4f}")
