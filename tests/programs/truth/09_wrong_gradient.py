"""The result is right, and the gradient is not."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="wrong_gradient")
def loss(x):
    return (torch.tanh(x) * 3).sum()


x = torch.linspace(-1, 1, 8, requires_grad=True)
loss(x).backward()
