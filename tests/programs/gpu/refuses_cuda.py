"""A backend of one's own that compiles no `cos` on CUDA."""

import torch


def refuses(gm, inputs):
    if any("cos" in str(node.target) for node in gm.graph.nodes) and any(t.device.type == "cuda" for t in inputs):
        raise NotImplementedError("no lowering of cos for CUDA")
    return gm.forward


def model(x):
    return (x.sin() * 2 + x.cos()).relu().sum()


torch.compile(model, backend=refuses)(torch.randn(16, 16, device="cuda"))
