"""A backend that fails in three of ten runs."""

import contextlib
import os

import torch


def flaky(gm, inputs):
    if any(n.target is torch.relu for n in gm.graph.nodes) and int.from_bytes(os.urandom(2), "little") % 10 < 3:
        raise RuntimeError("the device did not answer")
    return gm.forward


def model(x, n):
    return torch.relu(x.sin() * 2).cos() + n


for n in range(12):
    torch._dynamo.reset()
    with contextlib.suppress(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(model, backend=flaky, dynamic=False)(torch.ones(3), n)
