"""A message that lists what a set has: its order depends on the hash seed of the process."""

import torch

KNOWN = {"add", "mul"}


def importer(gm, inputs):
    unknown = {node.target.__name__ for node in gm.graph.nodes if node.op == "call_function"} - KNOWN
    if unknown:
        raise NotImplementedError(f"Unsupported function types {list(unknown)}")
    return gm.forward


torch.compile(lambda x, i: torch.embedding(x, i).sum() + torch.diff(x).sum(), backend=importer)(
    torch.randn(4, 3), torch.tensor([1, 0])
)
