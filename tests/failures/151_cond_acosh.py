"""017 inside a branch of `cond`: acosh of large values is inf. The operator is not needed."""

import torch

BACKEND = "inductor"
KIND = "divergence"
EXPECT = "inf where eager is finite"
MIN_NODES = 1
SOURCE = "017_acosh_overflow, inside a branch"


def around(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.tanh(x) * 1.5 + x.cos().abs().relu()
    return x


def make():
    def taken(x: torch.Tensor) -> torch.Tensor:
        return around(torch.acosh(x * 2e20 + 1e30).clamp(max=1e4) * 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, taken, lambda x: around(x).cos(), (around(x) + 3,)) + 1

    return function, (torch.rand(4, 6),)
