"""The process dies where 3 places are rolled; other shifts are fine."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="aborts")
def shifted(x):
    return torch.roll(x * 2, 3).neg()


shifted(torch.arange(6.0))
