"""A failure that comes and goes: in half of the runs, whatever the inputs are."""

import conditional  # noqa: F401  registers the backends
import torch

for _ in range(40):
    torch._dynamo.reset()
    torch.compile(lambda x: torch.cosh(x * 2).sum(), backend="every_other_time")(torch.ones(3))
