"""Shared parts of the tests of the hook: a model, failing backends, and the content of the index afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fxminify.store.index import Index
from fxminify.store.live.build import build


def names(db: str, id: int = 1) -> list[str]:
    """The functions a captured graph calls."""
    with Index.open(db) as index:
        targets = [n.target for n in index.captures.case(id).graph.compute]
    return [target if isinstance(target, str) else str(next(iter(target.values()))) for target in targets]


def inputs(db: str, id: int = 1) -> list[Any]:
    """The inputs of a capture, live again."""
    with Index.open(db) as index:
        case = index.captures.case(id)
        return build(case, index.blobs.view(case.storages))[1]


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2 + x.sum()


class Failed(Exception):
    pass


def failing(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    raise Failed("cannot lower sin")


def failing_at_run(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    def run(*args: torch.Tensor) -> Any:
        if args[0].sum() > 100:
            raise Failed("too large")
        return gm(*args)

    return run


def edits_in_place(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm.forward
