"""A pooling whose stride is its window is refused; another stride is not. ``ceil_mode`` does not matter."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="default_stride")
def pooled(x):
    return torch.avg_pool1d(x.relu(), 2, ceil_mode=True).neg()


torch.manual_seed(0)
pooled(torch.randn(2, 3, 9))
