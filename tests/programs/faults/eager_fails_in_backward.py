"""The program is wrong, not the backend: eager's backward pass raises the same error."""

import torch


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        h = torch.sigmoid(self.a(x))
        y = self.b(h)
        h.mul_(2)
        return y.sum() + h.sum()


torch.manual_seed(0)
torch.compile(Gate())(torch.randn(4, 8)).backward()
