"""Only with a variable of the environment."""

import os

os.environ["VECTOR_WIDTH"] = "512"
import conditional  # noqa: F401  registers the backends
import torch


@torch.compile(backend="asks_the_environment")
def turned(x):
    return torch.tan(x) * 2


turned(torch.ones(4))
