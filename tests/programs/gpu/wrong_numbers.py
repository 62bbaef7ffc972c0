"""A backend whose `exp` is wrong on an accelerator."""

import torch


def wrong(gm, inputs):
    for node in gm.graph.find_nodes(op="call_method", target="exp"):
        if inputs[0].is_cuda:
            node.target = "expm1"
    gm.recompile()
    return gm.forward


def model(x):
    y = (x.exp() + 1).sqrt()
    return y * 3, x.tanh()


torch.compile(model, backend=wrong)(torch.randn(32, 8, device="cuda"))
