"""A message that quotes the stack of modules of the captured graph, which a replay has not."""

import torch


def exporter(gm, inputs):
    for node in gm.graph.nodes:
        if node.target is torch.log:
            stack = "\n".join(
                f'metadata_props {{ key: "scope" value: "{path}" }}'
                for path, _ in (node.meta.get("nn_module_stack") or {}).values()
            )
            raise AssertionError(
                f'Not implemented for op_type=\'Log\', node=input: "{node.args[0]}"\noutput: "{node.name}"\n{stack}'
            )
    return gm.forward


class Bias(torch.nn.Module):
    def forward(self, x):
        return torch.log(x.abs() + 1) * 2


torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), Bias(), torch.nn.Linear(4, 4)), backend=exporter)(
    torch.randn(2, 4)
)
