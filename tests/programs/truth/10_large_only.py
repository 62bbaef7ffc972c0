"""Wrong for numbers above 3000 alone."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="large_only")
def squash(x):
    return torch.log1p(x.abs()).neg()


squash(torch.full((3, 4), 1e6))
