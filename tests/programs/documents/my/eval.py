"""Evaluates a head whose activations are large, with the backend of `my_backend`."""

import my_backend
import torch

torch.set_num_threads(1)


def head(x):
    return torch.nn.functional.softplus(x * 100).mean()


print(torch.compile(head, backend=my_backend.my_backend.__name__)(torch.linspace(0.1, 2.0, 8)))
