"""An encoder; the backend has no tile for an inner dimension of 17 or more."""

import conditional  # noqa: F401  registers the backends
import torch

torch.manual_seed(0)
weight = torch.randn(24, 8)


@torch.compile(backend="wide_matmul")
def encode(x):
    x = torch.nn.functional.layer_norm(x, (24,))
    x = torch.matmul(x, weight)
    return torch.tanh(x).mean()


encode(torch.randn(5, 24))
