"""A loop whose body reads the tensor that is also its first state: `cond_fn might be aliasing the input`."""

import torch
import torch.nn as nn
from torch._higher_order_ops.while_loop import while_loop

BACKEND = "aot_eager"
KIND = "compile_error"
EXPECT = "RuntimeError: cond_fn might be aliasing the input or the output!"
MIN_NODES = 4  # while_loop, its result, and one operator in each of the two functions
CULPRIT = "while_loop"
SOURCE = "pytorch/pytorch#191582 (2026-07)"


class Ponder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.norm, self.head = nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        start = torch.tanh(self.norm(self.encode(x)))

        def unfinished(step: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            return step < 3

        def think(step: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return step + 1, torch.scatter(torch.cos(state) * 0.5, 0, index, start)

        _, state = while_loop(unfinished, think, (torch.tensor(0), start))
        return self.head(state).relu()


def make():
    return Ponder().eval(), (torch.randn(4, 5), torch.tensor([[0], [1], [2], [3]]))
