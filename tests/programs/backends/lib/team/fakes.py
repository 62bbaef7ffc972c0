"""Fake kernels, registered by another module than the operators."""

import torch

from . import ops  # noqa: F401


@torch.library.register_fake("team::scale")
def _(x, factor):
    return torch.empty_like(x)


@torch.library.register_fake("team_lib::shift")
def _(x):
    return torch.empty_like(x)
