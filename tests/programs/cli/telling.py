"""A backend that says all that it knows of the machine: in its error, the cause and a note of it, on standard error."""

import os
import sys

import torch


def telling(gm, inputs):
    if any(node.target is torch.relu for node in gm.graph.nodes):
        secret, user, host = os.environ["SECRET_THING"], os.environ["USER"], os.environ["HOSTNAME"]
        home = os.path.expanduser("~")
        print(f"telling: error: no key {secret} of {user} on {host} in {home}/keys/{user}.pem", file=sys.stderr)
        error = RuntimeError(f"cannot compile for {user}@{host} ({host.partition('.')[0]}): {secret}, {home}/w.bin")
        error.add_note(f"tried {secret} for {user}")
        raise error from KeyError(f"{home}/cache_{user} of {host.upper()}, {object()}")
    return gm.forward


def opens(gm, inputs, *, options):
    raise RuntimeError(f"cannot log in with {len(options['key'])} characters")


def model(x):
    return torch.relu(torch.sin(x) + 1).sum()


with_key = len(sys.argv) > 1
settings = {"backend": opens, "options": {"key": sys.argv[1]}} if with_key else {"backend": telling}
try:
    torch.compile(model, **settings)(torch.ones(4))
except torch._dynamo.exc.BackendCompilerFailed as error:
    print(type(error).__name__)
