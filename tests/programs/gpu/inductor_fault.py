"""A custom pass that makes Inductor's graph call an operator for which there is no kernel."""

import torch
import torch._inductor.config


def breaks(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.cos.default and node.meta["val"].is_cuda:
            raise AssertionError("the pass cannot handle cos on CUDA")


def model(x):
    return (x.sin() + x.cos()).sum(0)


torch.compile(model, options={"post_grad_custom_post_pass": breaks})(torch.randn(8, 8, device="cuda"))
