"""Running sums; wrong where the last dimension is a multiple of 8."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="eighths")
def running(x):
    x = torch.cumsum(x * 0.1, -1)
    return x.sigmoid() + 1


torch.manual_seed(0)
running(torch.randn(3, 16))
