"""The option ``fuse`` matters, ``level`` does not."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="fusing", options={"fuse": True, "level": 2})
def block(x):
    return torch.relu(x * 2).sum()


block(torch.ones(4))
