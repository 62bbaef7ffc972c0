"""NaN becomes 0."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="loses_nan")
def bounded(x):
    return torch.clamp(x * 2, -1, 1) + 1


x = torch.linspace(-1, 1, 6)
x[2] = float("nan")
bounded(x)
