"""A pass of Inductor computes another operator, for sizes above 4; in training and in inference."""

import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="inductor_with_a_pass")
def grown(x):
    return torch.sinh(x.relu()) + 1


grown(torch.linspace(0, 2, 6))
