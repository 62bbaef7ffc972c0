"""Forces by `jacfwd` of an energy in half precision: the C++ that is made of the gradients does not compile."""

import torch
import torch.nn as nn

BACKEND = "inductor"
KIND = "compile_error"
EXPECT = "C++ compile error"
MIN_NODES = 21  # of these 13 make up `jacfwd`
CULPRIT = "prod"
SOURCE = "pytorch/pytorch#194706 (2026-08)"


class Molecule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 3)

    def energy(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum((torch.prod(x) + x) @ (torch.sum(x) + x) @ (torch.sum(x) + x))

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return -torch.func.jacfwd(self.energy)(self.embed(positions))


def make():
    return Molecule().half().eval(), (torch.arange(1, 10, dtype=torch.float16).reshape(3, 3) / 10,)
