"""The reference of a comparison: further eager runs of a graph, in float64, and on slightly perturbed inputs.

Each run is made when it is asked for, so there are none if eager and the compiled graph agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..running import ambient
from ..running.execution import Run, copy_inputs, differentiable, execute, storage_of, tensors, widened
from .precision import Emulations

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
    """What depends on random numbers in a run of ``graph`` on ``inputs``, which it may change."""
    watcher, before = _Watcher(graph, inputs), torch.get_rng_state()
    run = execute(watcher.run, inputs)
    (output,) = (n for n in graph.graph.nodes if n.op == "output")
    marks = tree_leaves(fx.node.map_arg(output.args[0], watcher.marks))
    outputs = frozenset(i for i, mark in enumerate(marks) if mark is _DRAWN)
    return Drawn(
        outputs,
        frozenset(i for i, value in enumerate(inputs) if watcher.reached([value])),
        any(differentiable(run.outputs[i]) for i in outputs),
        watcher.telling and not torch.equal(run.generator, _seeded(watcher.drawing, before)),
    )


def _seeded(number: int, state: torch.Tensor) -> torch.Tensor:
    """The ``state`` of the CPU's generator after ``number`` seeds of 64 bits were drawn, as Inductor draws them."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        torch.randint(-(2**63), 2**63 - 1, (number,))
        return torch.get_rng_state()


class _Watcher(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule, inputs: list[Any]) -> None:
        super().__init__(graph, garbage_collect_values=False)  # another tensor could get the address of a freed storage
        devices = {str(t.device) for t in tensors(inputs) if t.device.type == "cuda"}
        self._states: Callable[[], dict[str, torch.Tensor]] = lambda: ambient.rng_states(sorted(devices))
        self._nodes: set[fx.Node] = set()
        self._storages: set[int] = set()
        self.drawing = 0  # nodes that draw random numbers
        self.telling = True  # each of them from the CPU's generator alone, and more or less than a seed

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output":
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
            self._storages.update(map(storage_of, [*tensors(tree_leaves(result)), *written]))
        return result

    def reached(self, values: Iterable[Any]) -> bool:
        return any(storage_of(t) in self._storages for t in tensors(values))

    def marks(self, node: fx.Node) -> Any:
        """The structure of the value of ``node``: ``_DRAWN`` for leaves that depend on random numbers, else None."""
        return tree_map(lambda v: _DRAWN if node in self._nodes or self.reached([v]) else None, self.env[node])


def _versioned(values: Iterable[Any]) -> list[torch.Tensor]:
    return [t for t in tensors(values) if not t.is_inference()]


#: Seeds of the two runs on perturbed inputs, and of further ones, with a larger perturbation, if few values differ.
_SEEDS = (1, 2)
_MORE = tuple(range(3, 13))
_UNITS, _MORE_UNITS = 8, 32


class Reference:
    """Further eager runs of a graph, each made when it is asked for.

    Each call of ``fresh`` returns new copies of the inputs. ``backward`` says whether the runs compute gradients.
    """

    def __init__(self, graph: torch.fx.GraphModule, fresh: Callable[[], list[Any]], backward: bool = False) -> None:
        self._graph, self._fresh, self._backward = graph, fresh, backward
        self._further: list[Run] = []

    @cached_property
    def repeated(self) -> Run:
        """The eager run once more."""
        return execute(copy.deepcopy(self._graph), self._fresh(), self._backward)

    @cached_property
    def drawn(self) -> Drawn:
        """What depends on random numbers."""
        return drawn(copy.deepcopy(self._graph), self._fresh())

    @cached_property
    def exact(self) -> Run | None:
        """A run in float64, None if the graph cannot run in it."""
        return self._wide(None)

    @cached_property
    def perturbed(self) -> list[Run]:
        """Runs in float64 on inputs that are changed by a few units in the last place."""
        return [run for run in map(self._wide, _SEEDS) if run is not None]

    def more(self) -> Iterator[Run]:
        """Further runs on perturbed inputs, one at a time; none if no input is a floating-point tensor."""
        if not any(t.is_floating_point() or t.is_complex() for t in tensors(self._fresh())):
            return
        for index, seed in enumerate(_MORE):
            if index == len(self._further):
                run = self._wide(seed)
                if run is None:
                    return
                self._further.append(run)
            yield self._further[index]

    @cached_property
    def emulations(self) -> Emulations:
        """Eager runs with results rounded to shorter dtypes."""
        return Emulations(self._graph, self._fresh, self._backward)

    def _wide(self, noise: int | None) -> Run | None:
        default = torch.get_default_dtype()
        try:
            graph = widen(copy.deepcopy(self._graph))
            inputs = copy_inputs(self._fresh(), wide=True, noise=noise, units=_MORE_UNITS if noise in _MORE else _UNITS)
            torch.set_default_dtype(torch.float64)
            with _no_autocast(inputs):
                return execute(graph, inputs, self._backward)
        except Exception:  # noqa: BLE001  an operator without float64, whatever it raises: there is no reference
            return None
        finally:
            torch.set_default_dtype(default)


def widen(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """``graph`` itself, changed to compute in float64: its tensors, the dtypes in its arguments, no autocast."""
    for module in (m for m in graph.modules() if isinstance(m, torch.fx.GraphModule)):
        for node in module.graph.nodes:
            node.args = torch.fx.node.map_aggregate(node.args, _wide_argument)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _wide_argument)
            if node.op == "call_method":
                node.target = _WIDE_METHODS.get(node.target, node.target)
            elif getattr(node.target, "__name__", "") == "_enter_autocast":
                device, dtype, _, cache = (*node.args, None, None, None)[:4]
                node.args, node.kwargs = (device, dtype, False, cache), {}
        module.recompile()
    for owner in graph.modules():
        for name, tensor in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
            if tensor.dtype != widened(tensor.dtype):
                tensor.data = tensor.data.to(widened(tensor.dtype))
                setattr(owner, name, tensor)
    return graph


_WIDE_METHODS = {
    "float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble",
}  # fmt: skip


def _wide_argument(value: Any) -> Any:
    return widened(value) if isinstance(value, torch.dtype) else value


def _no_autocast(inputs: Sequence[Any]) -> Any:
    """A context with autocast off for every device type of the inputs and for the CPU."""
    stack = ExitStack()
    for device in sorted({"cpu"} | {t.device.type for t in inputs if isinstance(t, torch.Tensor)}):
        if torch.amp.autocast_mode.is_autocast_available(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    return stack
