"""A library of custom operators."""

import torch


@torch.library.custom_op("team::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


@double.register_fake
def _(x):
    return torch.empty_like(x)
