"""Inductor gets the gradient of an average pooling with ``ceil_mode`` wrong: stride and ``ceil_mode`` matter."""

import torch


class Spotter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 8, 3)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        x = torch.nn.functional.avg_pool1d(x, 3, 2, ceil_mode=True)
        return self.head(x.mean(-1))


torch.manual_seed(0)
torch.compile(Spotter())(torch.randn(2, 4, 12)).square().sum().backward()
