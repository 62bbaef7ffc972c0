"""The two reducers behind one call, and what is measured of a run."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch.fx_minifier import minifier

from fxminify.minifier.reduce import reduce
from fxminify.minifier.tracing import recorder  # noqa: F401 - so that no run pays for imports

from .graphs import copies
from .plants import Plant, compute

Reducer = Callable[[fx.GraphModule, list[Any], Callable[..., bool]], tuple[fx.GraphModule, Any]]


@dataclass(frozen=True)
class Measured:
    """A run. ``repeats`` are queries of a graph that had a query before, ``seconds`` is wall time."""

    queries: int
    repeats: int
    seconds: float
    predicate_seconds: float
    nodes: int
    inputs: int
    outputs: int
    input_kb: float
    fails: bool
    code: str


def fxminify(gm: fx.GraphModule, inputs: list[Any], fails: Callable[..., bool]) -> tuple[fx.GraphModule, Any]:
    return reduce(gm, inputs, fails, stages=["remove"])  # what PyTorch's does


def pytorch(gm: fx.GraphModule, inputs: list[Any], fails: Callable[..., bool]) -> tuple[fx.GraphModule, Any]:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        return minifier(gm, inputs, fails, dump_state=lambda *_: None)


TOOLS: dict[str, Reducer] = {"fxminify": fxminify, "pytorch": pytorch}


def measure(tool: str, plant: Plant) -> Measured:
    """Run ``tool`` on ``plant``. Time spent on counting is not counted."""
    asked: dict[int, int] = {}
    spent = {"counting": 0.0, "predicate": 0.0}

    def fails(gm: fx.GraphModule, inputs: list[Any]) -> bool:
        start = time.perf_counter()
        key = hash(tuple((n.op, str(n.target), n.name, str(n.args), str(n.kwargs)) for n in gm.graph.nodes))
        asked[key] = asked.get(key, 0) + 1
        counted = time.perf_counter()
        try:
            return plant.fails(gm, inputs)
        finally:
            spent["counting"] += counted - start
            spent["predicate"] += time.perf_counter() - counted

    start = time.perf_counter()
    gm, inputs = TOOLS[tool](plant.gm, copies(plant.inputs), fails)
    seconds = time.perf_counter() - start - spent["counting"]
    queries = sum(asked.values())
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    returned = output.args[0]
    kept = [t for t in inputs if isinstance(t, torch.Tensor)]
    nodes = compute(gm.graph)
    return Measured(
        queries=queries,
        repeats=queries - len(asked),
        seconds=round(seconds, 3),
        predicate_seconds=round(spent["predicate"], 3),
        nodes=len(nodes),
        inputs=sum(n.op == "placeholder" for n in gm.graph.nodes),
        outputs=len(returned) if isinstance(returned, list | tuple) else 1,
        input_kb=round(sum(t.numel() * t.element_size() for t in kept) / 1024, 1),
        fails=plant.fails(gm, copies(inputs)),
        code=gm.code.strip() if len(nodes) <= 4 else "",
    )
