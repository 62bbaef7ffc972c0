"""A backend that is wrong in every element by 7 times what torch.testing.assert_close allows."""

import torch


def nearly(gm, inputs):
    for node in gm.graph.nodes:
        if node.target in (torch.tanh, "tanh"):
            with gm.graph.inserting_after(node):
                scaled = gm.graph.call_function(torch.mul, (node, 1.00008))
            node.replace_all_uses_with(scaled, delete_user_cb=lambda user, own=scaled: user is not own)
    gm.recompile()
    return gm.forward


torch.manual_seed(0)
torch.compile(lambda x: torch.tanh(x) + 0.0, backend=nearly)(torch.randn(20) * 4)
