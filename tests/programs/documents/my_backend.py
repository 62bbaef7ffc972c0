"""A backend as a team writes it: it has its own kernels for a few operators, lacks some, and one of its own is wrong."""

import torch
from torch._dynamo import register_backend

MISSING = {torch.erfinv, torch.digamma, torch.special.i1e}


def softplus(x):
    """As the formula says; it overflows for large numbers, where PyTorch's does not."""
    return torch.log1p(torch.exp(x))


KERNELS = {torch.nn.functional.softplus: softplus}


@register_backend
def my_backend(gm, example_inputs):
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in MISSING:
            raise NotImplementedError(f"my_backend has no kernel for {node.target.__name__}")

    class WithKernels(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            return super().call_function(KERNELS.get(target, target), args, kwargs)

    return WithKernels(gm).run
