"""``alpha`` of an addition is refused, whatever it is, unless it is 1."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="no_alpha")
def mixed(x, y):
    return torch.add(x.sin(), y, alpha=2).cos()


mixed(torch.ones(4), torch.ones(4))
