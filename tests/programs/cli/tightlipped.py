"""A backend whose exception says the same of every operator that it lacks: it names the operator on descriptor 2."""

import os
import sys

import torch
from torch._dynamo import register_backend


@register_backend
def tightlipped(gm, example_inputs):
    lacks = [n for n in gm.graph.nodes if getattr(n.target, "__name__", "") in ("erfinv", "lgamma")]
    if lacks:
        name = lacks[0].target.__name__
        os.write(2, f"<unknown>:0: error: failed to legalize operation 'torch.aten.{name}'\n".encode())
        raise RuntimeError("JIT compilation failed. See diagnostics.")
    return gm.forward


if __name__ == "__main__":
    for function in (torch.erfinv, torch.lgamma):
        model = torch.compile(lambda x, function=function: function(x.sin()) + 1, backend="tightlipped")
        try:
            model(torch.ones(3) / 4)
        except torch._dynamo.exc.BackendCompilerFailed:
            print("no kernel", file=sys.stderr)
