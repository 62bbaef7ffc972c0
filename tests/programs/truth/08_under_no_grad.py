"""Only in inference."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="under_no_grad")
def gate(x):
    return torch.sigmoid(x + 1) * x


with torch.no_grad():
    gate(torch.ones(4))
