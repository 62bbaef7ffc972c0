"""Which results of a graph an ONNX model must compute, and where the others come from.

A graph returns more than computed tensors: None and numbers, an input as it is (its identity counts), a constant, a
size that follows from the inputs' sizes. Only what must be computed becomes an output of the model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

Source = Callable[[Sequence[Any], Sequence[Any]], Any]
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


@dataclass(frozen=True, slots=True)
class Results:
    """``computed``: nodes whose values the model computes; ``sources``: from (inputs, those values) to each result."""

    computed: list[torch.fx.Node]
    sources: list[Source]
    single: bool

    def assemble(self, inputs: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Everything the graph returns."""
        return [source(inputs, values) for source in self.sources]

    @property
    def plain(self) -> bool:
        """Whether the results are the computed values, one for one."""
        return all(isinstance(s, _Computed) for s in self.sources) and len(self.sources) == len(self.computed)


def of(gm: torch.fx.GraphModule) -> Results:
    """The results of a graph whose nodes have ``meta["val"]``."""
    holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    returned = gm.graph.output_node().args[0]
    single = not isinstance(returned, tuple | list)
    computed: list[torch.fx.Node] = []
    sources = [_source(gm, item, holders, computed) for item in ([returned] if single else returned)]  # type: ignore[union-attr]
    return Results(computed, sources, single)


def _source(gm: torch.fx.GraphModule, item: Any, holders: list[torch.fx.Node], computed: list[torch.fx.Node]) -> Source:
    if not isinstance(item, torch.fx.Node):
        return lambda inputs, values: item
    if item in holders:
        position = holders.index(item)
        return lambda inputs, values: inputs[position]
    if item.op == "get_attr":
        constant = functools.reduce(getattr, str(item.target).split("."), gm)
        return lambda inputs, values: constant
    value = item.meta.get("val")
    if isinstance(value, _NUMBERS):
        number = _number(value, holders)
        if number is not None:
            return number
    elif not isinstance(value, torch.Tensor):
        raise TypeError(f"the result {item.name} is {type(value).__name__}, not a tensor")
    if item not in computed:
        computed.append(item)
    return _Computed(computed.index(item), type(value))


@dataclass(frozen=True, slots=True)
class _Computed:
    position: int
    type: type

    def __call__(self, inputs: Sequence[Any], values: Sequence[Any]) -> Any:
        value = values[self.position]
        return value if issubclass(self.type, torch.Tensor) else value.item()


def _number(value: Any, holders: list[torch.fx.Node]) -> Source | None:
    """How to get a number from the inputs, None where it depends on data."""
    if isinstance(value, int | float):
        return lambda inputs, values: value
    expression = value.node.expr
    places = _places(holders)
    symbols = sorted(expression.free_symbols, key=str)
    if any(symbol not in places for symbol in symbols):
        return None
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]

    def number(inputs: Sequence[Any], values: Sequence[Any]) -> Any:
        sizes = {symbol: sympy.Integer(_size(inputs, places[symbol])) for symbol in symbols}
        return kind(expression.xreplace(sizes))

    return number


def _size(inputs: Sequence[Any], place: tuple[int, int | None]) -> int:
    position, dimension = place
    return int(inputs[position] if dimension is None else inputs[position].shape[dimension])


def _places(holders: list[torch.fx.Node]) -> dict[Any, tuple[int, int | None]]:
    """Where each size symbol can be read: (input, None) for a number, (input, dimension) for a tensor."""
    places: dict[Any, tuple[int, int | None]] = {}
    for position, holder in enumerate(holders):
        value = holder.meta["val"]
        if isinstance(value, torch.SymInt) and value.node.expr.is_symbol:
            places.setdefault(value.node.expr, (position, None))
        elif isinstance(value, torch.Tensor):
            for dimension, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    places.setdefault(size.node.expr, (position, dimension))
    return places
