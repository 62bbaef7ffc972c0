"""Which results of a graph depend on random numbers: backends may draw others, so only the rest can be compared.

The graph is run once in eager, node by node. A node that moved a generator has drawn, and so has every node that
reads what a drawn one made or wrote to. Storages are followed, not tensors: a view tells on its base. Drawing numbers
again and looking for a change would not do: a dropout that happened to drop nothing would pass for exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..running import ambient
from ..running.execution import differentiable, execute, tensors

_DRAWN = object()


@dataclass(frozen=True, slots=True)
class Drawn:
    """The indices of the flattened outputs and of the inputs that random numbers reach, and whether gradients are."""

    outputs: frozenset[int]
    inputs: frozenset[int]
    gradients: bool


def drawn(graph: fx.GraphModule, inputs: list[Any]) -> Drawn:
    """Follow the random numbers through one run of ``graph`` on ``inputs``, which it may change."""
    watcher = _Watcher(graph, inputs)
    run = execute(watcher.run, inputs)
    (output,) = (n for n in graph.graph.nodes if n.op == "output")
    marks = tree_leaves(fx.node.map_arg(output.args[0], watcher.marks))
    outputs = frozenset(i for i, mark in enumerate(marks) if mark is _DRAWN)
    return Drawn(
        outputs,
        frozenset(i for i, value in enumerate(inputs) if watcher.reached([value])),
        any(differentiable(run.outputs[i]) for i in outputs),
    )


class _Watcher(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule, inputs: list[Any]) -> None:
        super().__init__(graph, garbage_collect_values=False)  # a freed storage would lend its address to another
        devices = {str(t.device) for t in tensors(inputs) if t.device.type == "cuda"}
        self._states: Callable[[], dict[str, torch.Tensor]] = lambda: ambient.rng_states(sorted(devices))
        self._nodes: set[fx.Node] = set()
        self._storages: set[int] = set()

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output":
            return super().run_node(n)
        read = tree_leaves([self.env[m] for m in n.all_input_nodes])
        before, versions = self._states(), [t._version for t in _versioned(read)]
        result = super().run_node(n)
        after = self._states()
        moved = any(not torch.equal(state, after[device]) for device, state in before.items())
        if moved or self.reached(read) or not self._nodes.isdisjoint(n.all_input_nodes):
            self._nodes.add(n)
            written = [t for t, old in zip(_versioned(read), versions, strict=True) if t._version != old]
            self._storages.update(map(_storage, [*tensors(tree_leaves(result)), *written]))
        return result

    def reached(self, values: Iterable[Any]) -> bool:
        return any(_storage(t) in self._storages for t in tensors(values))

    def marks(self, node: fx.Node) -> Any:
        """The value of ``node`` with every leaf that random numbers reach replaced by ``_DRAWN``."""
        return tree_map(lambda v: _DRAWN if node in self._nodes or self.reached([v]) else None, self.env[node])


def _versioned(values: Iterable[Any]) -> list[torch.Tensor]:
    return [t for t in tensors(values) if not t.is_inference()]


def _storage(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata if t.layout is torch.strided else id(t)
