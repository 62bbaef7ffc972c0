"""Two operators together: neither fails alone."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="needs_two")
def residual(x, y):
    x = x.sin()
    return torch.relu(torch.add(x, y)).exp()


residual(torch.ones(2, 3), torch.ones(2, 3))
