"""Failures of the compilers below Dynamo, and of graphs that cannot be kept as Dynamo makes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import team_levels as team
import torch
from torch.testing._internal.two_tensor import TwoTensor

torch.set_num_threads(1)
torch.manual_seed(0)


class Named(torch.Tensor):
    """A subclass that overrides nothing."""


def run(function: Callable[..., Any], *inputs: Any, backend: Any, backward: bool = False) -> None:
    torch._dynamo.reset()
    try:
        out = torch.compile(function, backend=backend)(*inputs)
        if backward:
            out.sum().backward()
    except Exception as exc:  # noqa: BLE001  whatever the backend raises
        print(type(exc).__name__)


def learned() -> torch.Tensor:
    return torch.randn(2, 3, requires_grad=True)


def aot() -> None:
    run(lambda x: (x * 2).sin().relu(), learned(), backend=team.forward)
    run(lambda x: (x * 3).sin().relu(), torch.randn(2, 3), backend=team.inference)
    run(lambda x: (x * 4).sin().relu(), learned(), backend=team.backward, backward=True)
    run(lambda x: (x * 5).sin().relu(), learned(), backend=team.boxed, backward=True)
    run(lambda x: (x * 6).sin().relu(), learned(), backend=team.running, backward=True)
    run(lambda x: (x * 7).sin().relu(), learned(), backend=team.inside, backward=True)
    run(lambda x: (x * 8).cosh().relu(), learned(), backend=team.inductor, backward=True)


def auto() -> None:
    two = TwoTensor(torch.randn(2, 3), torch.randn(2, 3))
    run(lambda x: (x * 2).sin().relu(), two, backend=team.forward)
    run(lambda x: (x * 3).sin().relu(), two.clone().requires_grad_(), backend=team.backward, backward=True)
    run(lambda x: torch.from_numpy(np.sin(x.numpy())).relu() + 4, torch.randn(3), backend=team.forward)
    run(lambda x: (x * 5).sin().relu(), torch.randn(3).as_subclass(Named), backend=team.forward)
    torch._dynamo.reset()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=team.cosine)):
        try:
            (learned() * 6).sin().relu().sum().backward()
        except Exception as exc:  # noqa: BLE001  as above
            print(type(exc).__name__)


{"aot": aot, "auto": auto}[os.environ["LEVEL"]]()
