"""A product of a transposed matrix is wrong, that of a contiguous one is not."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="needs_rows")
def scaled(x, y):
    return torch.mul(x, y).relu()


torch.manual_seed(0)
scaled(torch.randn(4, 6).t(), torch.randn(6, 4))
