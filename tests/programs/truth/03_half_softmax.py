"""Attention in half precision; float16 and bfloat16 are refused, float32 and float64 are not."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="half_softmax")
def attend(q, k):
    scores = q @ k.t()
    return torch.softmax(scores * 0.5, dim=-1).sum(0)


torch.manual_seed(0)
attend(torch.randn(4, 8, dtype=torch.float16), torch.randn(4, 8, dtype=torch.float16))
