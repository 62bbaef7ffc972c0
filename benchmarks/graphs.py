"""Graphs as a backend sees them: Dynamo's own (``dyn``), AOTAutograd's forward (``fw``) and backward (``bw``), and
what it makes both of, forward and backward in one graph (``joint``)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from .models import make

Graph = tuple[fx.GraphModule, list[Any]]


def capture(name: str) -> Graph:
    """The graph and real inputs of a case ``<model>:<dyn|fw|bw|joint>``."""
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
    """All three graphs with Inductor's decompositions and the min-cut partitioner."""
    import torch._inductor.lowering  # some decompositions use it without importing it
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    got: dict[str, Graph] = {}
    joint: list[fx.GraphModule] = []

    def partition(gm: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        graph = copy.deepcopy(gm.graph)
        graph.set_codegen(fx.graph.CodeGen())  # one argument for each placeholder
        joint.append(fx.GraphModule(gm, graph))
        return min_cut_rematerialization_partition(gm, inputs, **options)

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
        partition_fn=partition,
        decompositions=select_decomp_table(),
    )
    function, args = make(model)
    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*args).float().pow(2).mean().backward()
    return got | {"joint": (joint[0], _given(joint[0], got.values()))}


def _given(gm: fx.GraphModule, parts: Iterable[Graph]) -> list[Any]:
    """Return the inputs of ``gm``, found by the names of its placeholders in the parts that it was divided into."""
    known: dict[str, Any] = {}
    for part, inputs in parts:
        names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
        known = dict(zip(names, inputs, strict=True)) | known
    return [known[n.name] for n in gm.graph.nodes if n.op == "placeholder"]


def copies(values: Any) -> list[Any]:
    """Private tensors without gradient history."""
    return [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]
