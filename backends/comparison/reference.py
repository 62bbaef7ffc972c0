"""The reference of a comparison: further eager runs of a graph, in float64, and on slightly perturbed inputs.

Each run is made when it is needed first. If eager and the compiled graph agree, no run is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..running import devices
from ..running.exceptions import is_out_of_memory
from ..running.execution import Run, differentiable, execute, storage_of, tensors
from ..running.shared import SharedStorages
from .wide import Noise, run_wide

_DRAWN = object()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Indices of the flattened outputs and the inputs that depend on random numbers, and whether gradients do.

    ``telling`` says that a backend which leaves the CPU's generator as eager does has drawn the same numbers. It is
    false where a seed for each operator, as Inductor draws it, would leave the generator in the same state.
    """

    outputs: frozenset[int]
    inputs: frozenset[int]
    gradients: bool
    telling: bool


def drawn(graph: fx.GraphModule, inputs: list[Any]) -> Drawn:
    """Return the results that depend on random numbers in a run of ``graph`` on ``inputs``, which it may change."""
    watcher, before = _Watcher(graph, inputs), torch.get_rng_state()
    run = execute(watcher.run, inputs)
    return Drawn(
        watcher.outputs,
        frozenset(i for i, value in enumerate(inputs) if watcher.reached([value])),
        any(differentiable(run.outputs[i]) for i in watcher.outputs),
        watcher.telling and not torch.equal(run.generators["cpu"], _seeded(watcher.drawing, before)),
    )


def _seeded(number: int, state: torch.Tensor) -> torch.Tensor:
    """The ``state`` of the CPU's generator after ``number`` seeds of 64 bits were drawn, as Inductor draws them."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        torch.randint(-(2**63), 2**63 - 1, (number,))
        return torch.get_rng_state()


class _Watcher(fx.Interpreter):
    """``outputs`` are those that depend on random numbers, after a run."""

    def __init__(self, graph: fx.GraphModule, inputs: list[Any]) -> None:
        super().__init__(graph)
        used = devices.used(inputs)
        self._states: Callable[[], dict[str, torch.Tensor]] = lambda: devices.generators(used)
        self._nodes: set[fx.Node] = set()
        self._storages: set[int] = set()
        self._alive: list[Any] = []  # another tensor could get the address of a freed storage
        self.outputs: frozenset[int] = frozenset()
        self.drawing = 0  # nodes that draw random numbers
        self.telling = True  # each of them from the CPU's generator alone, and more or less than a seed

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output":
            marks = tree_leaves(fx.node.map_arg(n.args[0], self._marks))
            self.outputs = frozenset(i for i, mark in enumerate(marks) if mark is _DRAWN)
            return super().run_node(n)
        read = tree_leaves([self.env[m] for m in n.all_input_nodes])
        before, versions = self._states(), [t._version for t in _versioned(read)]
        result = super().run_node(n)
        after = self._states()
        moved = {device for device, state in before.items() if not torch.equal(state, after[device])}
        if moved:
            self.drawing += 1
            self.telling &= moved == {"cpu"} and not torch.equal(after["cpu"], _seeded(1, before["cpu"]))
        if moved or self.reached(read) or not self._nodes.isdisjoint(n.all_input_nodes):
            self._nodes.add(n)
            written = [t for t, old in zip(_versioned(read), versions, strict=True) if t._version != old]
            reached = [*tensors(tree_leaves(result)), *written]
            self._alive += reached
            self._storages.update(map(storage_of, reached))
        return result

    def reached(self, values: Iterable[Any]) -> bool:
        return any(storage_of(t) in self._storages for t in tensors(values))

    def _marks(self, node: fx.Node) -> Any:
        """The structure of the value of ``node``: ``_DRAWN`` for leaves that depend on random numbers, else None."""
        return tree_map(lambda v: _DRAWN if node in self._nodes or self.reached([v]) else None, self.env[node])


def _versioned(values: Iterable[Any]) -> list[torch.Tensor]:
    return [t for t in tensors(values) if not t.is_inference()]


#: Seeds of the two runs on perturbed inputs, and of further ones, with a larger perturbation, if few values differ.
_SEEDS = (1, 2)
_MORE = tuple(range(3, 13))
_UNITS, _MORE_UNITS = 8, 32


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a result: an output, an input after the call, or the gradient of an input, by index."""

    group: Literal["outputs", "inputs", "gradients"]
    index: int

    def __str__(self) -> str:
        return f"{_GROUPS[self.group]} {self.index}"

    def read(self, run: Run) -> Any:
        """The result of ``run`` at this place, None if it has none."""
        values = getattr(run, self.group)
        return values[self.index] if values else None


_GROUPS = {"outputs": "output", "inputs": "input", "gradients": "gradient of input"}


class Reference:
    """Further eager runs of the graph of ``shared``, each made when it is asked for.

    Runs are made for some `Place`s, and their other results may be missing.
    """

    def __init__(self, shared: SharedStorages) -> None:
        self.shared = shared

    def repeated(self, places: Collection[Place]) -> Run:
        """The eager run once more."""
        gradients = indices("gradients", places)
        return self.shared.eager(bool(gradients), wanted=gradients)

    @cached_property
    def drawn(self) -> Drawn:
        """Return the results that depend on random numbers."""
        return drawn(self.shared.graph(), self.shared.inputs())

    def wide(self, places: Collection[Place]) -> Iterator[Run]:
        """A run in float64, then runs on inputs that are changed by a few units in the last place, one at a time.

        No runs if the graph cannot run in float64. Raises the error if there is not enough memory.
        """
        exact = self._wide(None, places)
        if exact is None:
            return
        yield exact
        del exact
        yield from filter(None, (self._wide(Noise(seed, _UNITS), places) for seed in _SEEDS))

    def more(self, places: Collection[Place]) -> Iterator[Run]:
        """Further runs on inputs that are changed more, one at a time; none if no input is a floating-point tensor."""
        if not any(t.is_floating_point() or t.is_complex() for t in tensors(self.shared.given)):
            return
        for seed in _MORE:
            run = self._wide(Noise(seed, _MORE_UNITS), places)
            if run is None:
                return
            yield run

    def _wide(self, noise: Noise | None, places: Collection[Place]) -> Run | None:
        outputs = None if any(p.group == "inputs" for p in places) else indices("outputs", places)
        try:
            return run_wide(self.shared, noise, outputs=outputs, gradients=indices("gradients", places))
        except Exception as exc:  # an operator without float64, whatever it raises: there is no reference
            if is_out_of_memory(exc):
                raise
            return None


def indices(group: str, places: Collection[Place]) -> frozenset[int]:
    """The indices of the places of one group."""
    return frozenset(place.index for place in places if place.group == group)
