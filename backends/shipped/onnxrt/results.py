"""The results of an ATen graph, and the source of each: `results_of`.

A model computes tensors that no other value shares memory with. Everything else is made from the inputs and from what
the model computed: inputs themselves, numbers, constants, and views. Views run in PyTorch, so they share memory and
have strides as in eager, and the model copies nothing for them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.utils import _pytree as pytree

#: From the inputs of the graph and the computed values to one result.
Source = Callable[[Sequence[Any], Sequence[Any]], Any]
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


@dataclass(frozen=True, slots=True)
class Results:
    """``computed``: nodes whose values the model computes; ``sources``: from (inputs, those values) to each result."""

    computed: list[torch.fx.Node]
    sources: list[Source]
    single: bool

    def assemble(self, inputs: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Return everything the graph returns."""
        return [source(inputs, values) for source in self.sources]

    @property
    def plain(self) -> bool:
        """Whether the results are exactly the computed values."""
        places = [s.position if isinstance(s, _Computed) and s.tensor else -1 for s in self.sources]
        return places == list(range(len(self.computed)))


def results_of(gm: torch.fx.GraphModule, *, views: bool = True) -> Results:
    """Return the results of a graph whose nodes have ``meta["val"]``. Without ``views`` the model computes views."""
    returned = gm.graph.output_node().args[0]
    single = not isinstance(returned, tuple | list)
    sources = _Sources(gm, views)
    found = [sources.of(item) for item in ([returned] if single else returned)]  # type: ignore[union-attr]
    return Results(sources.computed, found, single)


def attribute(gm: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    """Return the value of a ``get_attr`` node."""
    return attrgetter(str(node.target))(gm)


def is_node(value: Any) -> bool:
    return isinstance(value, torch.fx.Node)


def is_view(node: torch.fx.Node) -> bool:
    """Return whether a node calls an operator whose results share the memory of its first argument."""
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return is_view(node.args[0])
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    arguments = target._schema.arguments
    shares = bool(arguments) and arguments[0].alias_info is not None and bool(target._schema.returns)
    return shares and bool(node.args) and isinstance(node.args[0], torch.fx.Node)


class _Sources:
    """Finds the source of each result. ``computed`` collects what the model has to compute."""

    def __init__(self, gm: torch.fx.GraphModule, views: bool) -> None:
        self._gm, self._views = gm, views
        self._holders = gm.graph.find_nodes(op="placeholder")
        self.computed: list[torch.fx.Node] = []

    def of(self, item: Any) -> Source:
        if not isinstance(item, torch.fx.Node):
            return lambda inputs, values: item
        if item in self._holders:
            position = self._holders.index(item)
            return lambda inputs, values: inputs[position]
        if item.op == "get_attr":
            constant = attribute(self._gm, item)
            return lambda inputs, values: constant
        value = item.meta.get("val")
        if isinstance(value, _NUMBERS):
            number = number_source(value, self._holders)
            if number is not None:
                return number
        elif not isinstance(value, torch.Tensor):
            raise TypeError(f"the result {item.name} is {type(value).__name__}, not a tensor")
        elif self._views and is_view(item) and (view := self._view(item)) is not None:
            return view
        if item not in self.computed:
            self.computed.append(item)
        return _Computed(self.computed.index(item), isinstance(value, torch.Tensor))

    def _view(self, node: torch.fx.Node) -> Source | None:
        """Return the source of a view; None if its arguments depend on data."""
        target: Any = node.target
        given, kwargs = [*node.args[1:]], dict(node.kwargs)
        leaves, structure = pytree.tree_flatten((given, kwargs), is_leaf=is_node)
        numbers = [self._argument(leaf) for leaf in leaves]
        base: Any = node.args[0]
        if any(number is None for number in numbers):
            return None
        whole = self._view(base) if target is operator.getitem else self.of(base)
        if whole is None:
            return None
        source: Source = whole
        if all(not isinstance(leaf, torch.fx.Node) for leaf in leaves):
            return lambda inputs, values: target(source(inputs, values), *given, **kwargs)

        def view(inputs: Sequence[Any], values: Sequence[Any]) -> Any:
            found = [number(inputs, values) for number in numbers if number is not None]
            args, named = pytree.tree_unflatten(found, structure)
            return target(source(inputs, values), *args, **named)

        return view

    def _argument(self, leaf: Any) -> Source | None:
        if not isinstance(leaf, torch.fx.Node):
            return lambda inputs, values: leaf
        value = leaf.meta.get("val")
        return number_source(value, self._holders) if isinstance(value, _NUMBERS) else None


@dataclass(frozen=True, slots=True)
class _Computed:
    """A value that the model computes: a tensor, or a number from a tensor without dimensions."""

    position: int
    tensor: bool

    def __call__(self, inputs: Sequence[Any], values: Sequence[Any]) -> Any:
        value = values[self.position]
        return value if self.tensor else value.item()


def number_source(value: Any, holders: list[torch.fx.Node]) -> Source | None:
    """Return a function from the inputs to a number; None if the number depends on data."""
    if isinstance(value, int | float):
        return lambda inputs, values: value
    expression = value.node.expr
    places = _places(holders)
    symbols = sorted(expression.free_symbols, key=str)
    if any(symbol not in places for symbol in symbols):
        return None
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
    if expression.is_symbol:
        place = places[expression]
        return lambda inputs, values: kind(_size(inputs, place))

    def number(inputs: Sequence[Any], values: Sequence[Any]) -> Any:
        sizes = {symbol: _exact(_size(inputs, places[symbol])) for symbol in symbols}
        return kind(expression.xreplace(sizes))

    return number


def _exact(value: int | float) -> sympy.Expr:
    return sympy.Integer(value) if isinstance(value, int) else sympy.Float(value)


def _size(inputs: Sequence[Any], place: tuple[int, int | None]) -> Any:
    position, dimension = place
    return inputs[position] if dimension is None else inputs[position].shape[dimension]


def _places(holders: list[torch.fx.Node]) -> dict[Any, tuple[int, int | None]]:
    """Return a place to read each symbol: (input, None) for a number, (input, dimension) for a tensor."""
    places: dict[Any, tuple[int, int | None]] = {}
    for position, holder in enumerate(holders):
        value = holder.meta["val"]
        if isinstance(value, torch.SymInt | torch.SymFloat) and value.node.expr.is_symbol:
            places.setdefault(value.node.expr, (position, None))
        elif isinstance(value, torch.Tensor):
            for dimension, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    places.setdefault(size.node.expr, (position, dimension))
    return places
