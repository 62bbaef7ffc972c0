"""Graphs as a backend sees them: Dynamo's own (``dyn``), AOTAutograd's forward (``fw``) and backward (``bw``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .models import make

Graph = tuple[fx.GraphModule, list[Any]]


def capture(name: str) -> Graph:
    """The graph and real inputs of a case ``<model>:<dyn|fw|bw>``."""
    model, level = name.split(":")
    return _dynamo(model) if level == "dyn" else _aot(model)[level]


def _dynamo(model: str) -> Graph:
    function, args = make(model)
    got: list[Graph] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        got.append((gm, copies(inputs)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*args)
    (graph,) = got
    return graph


@functools.lru_cache(maxsize=1)
def _aot(model: str) -> dict[str, Graph]:
    """Both graphs with Inductor's decompositions and the min-cut partitioner."""
    import torch._inductor.lowering  # some decompositions use it without importing it
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    got: dict[str, Graph] = {}

    def keep(level: str) -> Callable[..., Any]:
        def compiler(gm: fx.GraphModule, _: list[Any]) -> Any:
            def run(*args: Any) -> Any:
                got.setdefault(level, (gm, copies(args)))
                with torch.no_grad():
                    return gm(*args)

            return make_boxed_func(run)

        return compiler

    backend = aot_autograd(
        fw_compiler=keep("fw"),
        bw_compiler=keep("bw"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    function, args = make(model)
    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*args).float().pow(2).mean().backward()  # type: ignore[no-untyped-call]
    return got


def copies(values: Any) -> list[Any]:
    """Private tensors without gradient history."""
    return [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]
