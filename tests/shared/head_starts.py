"""Backends that write down how many operators each graph has that they are given, and refuse some of them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._dynamo import register_backend

#: The variable that names the folder in which `sizes` are kept.
FOLDER = "HEAD_STARTS_FOLDER"
Inputs = list[torch.Tensor]
Compiled = Callable[..., Any]


def sizes() -> list[int]:
    """The number of compute nodes of each graph that was compiled."""
    return [int(line) for line in _file().read_text().split()] if _file().exists() else []


def forget() -> None:
    _file().unlink(missing_ok=True)


def _file() -> Path:
    return Path(os.environ[FOLDER], "sizes")


def _called(gm: fx.GraphModule) -> list[str]:
    """The names of what the graph calls. Writes down how many there are."""
    names = [getattr(n.target, "__name__", str(n.target)) for n in gm.graph.nodes if n.op.startswith("call_")]
    if FOLDER in os.environ:
        with _file().open("a") as file:
            file.write(f"{len(names)}\n")
    return names


@register_backend
def head_starts_named(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if "tanh" in _called(gm):
        raise NotImplementedError("no rule for tanh")
    return gm.forward


@register_backend
def head_starts_unnamed(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if "tanh" in _called(gm):
        raise NotImplementedError("this is not supported")
    return gm.forward


@register_backend
def head_starts_on_a_device(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    """Takes its device from the tensors it is given, as IREE's backend does."""
    names = _called(gm)
    if not inputs:
        raise RuntimeError("which device?")
    if "tanh" in names:
        raise NotImplementedError("this is not supported")
    return gm.forward


@register_backend
def head_starts_pair(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    if {"sin", "exp"} <= set(_called(gm)):
        raise NotImplementedError("two at once")
    return gm.forward


def refuse_exp() -> None:
    os.abort()


def refuse_tanh() -> None:
    os.abort()


@register_backend
def head_starts_dies(gm: fx.GraphModule, inputs: Inputs) -> Compiled:
    names = _called(gm)
    if "tanh" in names:
        refuse_tanh()
    if "exp" in names:
        refuse_exp()
    return gm.forward
