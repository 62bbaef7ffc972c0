"""One bug whose message names the dtype: every floating dtype shows it."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="names_the_dtype")
def gelu(x):
    x = x * 0.5
    return torch.erf(x).neg()


gelu(torch.linspace(-1, 1, 12))
