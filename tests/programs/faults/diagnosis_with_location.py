"""Two bugs with one message. Their diagnoses stand on descriptor 2, after the place of the graph's source line."""

import os

import torch


def lower(gm, inputs):
    for node in gm.graph.nodes:
        if node.target in (torch.lgamma, torch.cdist):
            frame = (
                (node.stack_trace or 'File "<eval>", line 1').strip().split("\n")[-2 if node.stack_trace else 0].strip()
            )
            os.write(
                2,
                f'loc("{frame}":4:0): error: failed to legalize operation \'torch.operator\' with {{name = "torch.aten.{node.target.__name__}"}}\n'.encode(),  # noqa: E501
            )
            raise RuntimeError("FX IR to Backend IR failed with the following diagnostics:")
    return gm.forward


for function in (lambda x: torch.lgamma(x.exp() + 1).sum(), lambda x: torch.cdist(x, x * 2).mean()):
    torch._dynamo.reset()
    try:
        torch.compile(function, backend=lower)(torch.rand(3, 3))
    except Exception as error:  # noqa: BLE001  whatever a backend raises
        print(type(error).__name__)
