"""An equilibrium layer that counts its steps with a Python int in ``torch.while_loop``."""

# SOURCE: pytorch/pytorch#166525 (2025-10)
import torch
import torch.nn as nn

torch.manual_seed(0)


class Equilibrium(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def forward(self, x):
        def more(i, z):
            return i < 4

        def body(i, z):
            return i + 1, torch.tanh(z * 0.5 + x)

        return torch.while_loop(more, body, (0, torch.zeros_like(x)))[1]


model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), Equilibrium(16), nn.Linear(16, 3)).eval()
with torch.no_grad():
    print(torch.compile(model)(torch.randn(4, 8)))
