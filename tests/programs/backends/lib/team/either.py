"""An entry point names this backend, and the module registers it where torch does not know the name yet."""

import torch
from torch._dynamo import register_backend


def team_either(gm, inputs, **kwargs):
    print("team_either", kwargs)
    return gm.forward


if "team_either" not in torch.compiler.list_backends():
    register_backend(compiler_fn=team_either, name="team_either")
