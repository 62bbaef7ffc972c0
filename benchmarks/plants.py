"""Planted failures: predicates on a graph and its inputs, so that the reducers are compared and no compiler is.

| plant | fails while | nodes |
|---|---|---|
| a | one rare operation is there (planted at half of the graph) | 1 |
| b | two rare operations are there (at a quarter and three quarters), however connected | 2 |
| c1 | three adjacent operations, each reading the one before | 3 |
| c2 | three operations, each depending on the one before (at 30, 50 and 70 %) through anything | 3 or more |
| d | an operation of the graph reads one given shape and element type (the rarest near the middle) | 1 |
| e | two operations (at 15 and 85 %) are returned and a third (at 50 %) is live | 3 |
| f | an operation (at 60 %) reads a value as small as in the original run | 1 |

A predicate sees live nodes only, as a compiler that removes dead code would.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .graphs import copies

Predicate = Callable[[fx.GraphModule, list[Any]], bool]
PLANTS = ("a", "b", "c1", "c2", "d", "e", "f")

_DYNAMO = (torch.asinh, torch.atan, torch.erfc)
_ATEN = (torch.ops.aten.asinh.default, torch.ops.aten.atan.default, torch.ops.aten.erfc.default)
_VIEWS = ("getitem", "t", "view", "reshape", "permute")


class NoPlace(Exception):
    """The graph has no node where this failure could be planted."""


@dataclass(frozen=True)
class Plant:
    """A graph with a planted failure. ``optimum`` is the least number of compute nodes that can show it."""

    gm: fx.GraphModule
    inputs: list[Any]
    fails: Predicate
    optimum: int


def operation(node: fx.Node) -> str:
    """``relu`` for ``torch.relu``, ``aten.relu.default`` and ``.relu()``."""
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", str(node.target)).split(".")[0] if node.op == "call_function" else ""


def compute(graph: fx.Graph) -> list[fx.Node]:
    return [n for n in graph.nodes if n.op.startswith("call")]


def upstream(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """``nodes`` and all they depend on."""
    seen = set(nodes)
    stack = list(seen)
    while stack:
        for source in stack.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return seen


def live(graph: fx.Graph) -> set[fx.Node]:
    return upstream([n for n in graph.nodes if n.op == "output"])


class _Watch(fx.Interpreter):
    """Runs the wanted nodes only, and shows each, with the value it reads first, before it runs."""

    def __init__(self, gm: fx.GraphModule, wanted: set[fx.Node], see: Callable[[fx.Node, Any], None]) -> None:
        super().__init__(gm)
        self.wanted, self.see = wanted, see

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output" or (n.op != "placeholder" and n not in self.wanted):
            return None
        if n.op != "placeholder" and n.all_input_nodes:
            self.see(n, self.env.get(n.all_input_nodes[0]))
        return super().run_node(n)


def values(gm: fx.GraphModule, inputs: list[Any]) -> dict[fx.Node, Any]:
    """The value of each node when it is made."""
    found: dict[fx.Node, Any] = {}

    class Keep(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            found[n] = result.detach().clone() if isinstance(result, torch.Tensor) else result
            return result

    with torch.no_grad():
        Keep(gm).run(*copies(inputs))
    return found


# Predicates


def has(*names: str) -> Predicate:
    return lambda gm, _: set(names) <= {operation(n) for n in live(gm.graph)}


def chained(*, adjacent: bool) -> Predicate:
    def above(node: fx.Node) -> Iterable[fx.Node]:
        return node.all_input_nodes if adjacent else upstream([node]) - {node}

    def fails(gm: fx.GraphModule, _: list[Any]) -> bool:
        return any(
            operation(c) == "erfc" and operation(b) == "atan" and operation(a) == "asinh"
            for c in live(gm.graph)
            if operation(c) == "erfc"
            for b in above(c)
            if operation(b) == "atan"
            for a in above(b)
        )

    return fails


def reads(name: str, matches: Callable[[torch.Tensor], bool]) -> Predicate:
    def fails(gm: fx.GraphModule, inputs: list[Any]) -> bool:
        suspects = {n for n in live(gm.graph) if operation(n) == name}
        hits: list[fx.Node] = []

        def see(node: fx.Node, value: Any) -> None:
            if node in suspects and isinstance(value, torch.Tensor) and matches(value):
                hits.append(node)

        try:
            with torch.no_grad():
                _Watch(gm, upstream(suspects), see).run(*copies(inputs))
        except Exception:  # noqa: BLE001 - a candidate that does not run does not fail as planted
            return False
        return bool(hits)

    return fails


def returned(gm: fx.GraphModule, _: list[Any]) -> bool:
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    names = {operation(n) for n in output.all_input_nodes}
    return {"asinh", "atan"} <= names and any(operation(n) == "erfc" for n in live(gm.graph))


# Planting


def plant(gm: fx.GraphModule, inputs: list[Any], kind: str, level: str) -> Plant:
    """A copy of ``gm`` with failure ``kind`` planted."""
    graph = copy.deepcopy(gm.graph)
    gm = fx.GraphModule(gm, graph)
    asinh, atan, erfc = _DYNAMO if level == "dyn" else _ATEN
    known, nodes = values(gm, inputs), compute(graph)

    def ok(node: fx.Node) -> bool:
        value = known.get(node)
        return (
            node.op in ("call_function", "call_method")
            and isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.dim() >= 2
            and value.numel() > 16
            and bool(node.users)
            and (operation(node).startswith("_") or not operation(node).endswith("_"))
        )

    def at(share: float, accept: Callable[[fx.Node], bool] = ok) -> fx.Node:
        wanted = share * len(nodes)
        places = [(abs(i - wanted), i, n) for i, n in enumerate(nodes) if accept(n)]
        if not places:
            raise NoPlace(f"no node suits plant {kind}")
        return min(places)[2]

    fails: Predicate
    if kind == "a":
        _after(at(0.5), asinh)
        fails, optimum = has("asinh"), 1
    elif kind == "b":
        first, second = at(0.25), at(0.75)
        _after(first, asinh)
        _after(second, atan)
        fails, optimum = has("asinh", "atan"), 2
    elif kind == "c1":
        _after(_after(_after(at(0.5), asinh), atan), erfc)
        fails, optimum = chained(adjacent=True), 3
    elif kind == "c2":
        third = at(0.7)
        above = upstream([third]) - {third}
        second = at(0.5, lambda n: ok(n) and n in above)
        further = upstream([second]) - {second}
        first = at(0.3, lambda n: ok(n) and n in further)
        for node, target in ((first, asinh), (second, atan), (third, erfc)):
            _after(node, target)
        fails, optimum = chained(adjacent=False), 3
    elif kind == "d":
        name, shape, dtype = _rarest(nodes, known)
        fails, optimum = reads(name, lambda t: tuple(t.shape) == shape and t.dtype == dtype), 1
    elif kind == "e":
        first, second, third = at(0.15), at(0.85), at(0.5)
        ends = _after(first, asinh), _after(second, atan)
        _after(third, erfc)
        output = next(n for n in graph.nodes if n.op == "output")
        old = output.args[0]
        output.args = ((*(old if isinstance(old, list | tuple) else [old]), *ends),)
        fails, optimum = returned, 3
    elif kind == "f":
        node = at(0.6, lambda n: ok(n) and float(known[n].min()) < 0)
        _after(node, asinh)
        bound = float(known[node].min()) * 0.99
        fails = reads("asinh", lambda t: t.is_floating_point() and t.numel() > 0 and float(t.min()) <= bound)
        optimum = 1
    else:
        raise KeyError(kind)
    graph.lint()
    gm = fx.GraphModule(gm, graph)
    if not fails(gm, copies(inputs)):
        raise AssertionError(f"plant {kind} does not fail")
    return Plant(gm, inputs, fails, optimum)


def _after(node: fx.Node, target: Callable[..., Any]) -> fx.Node:
    with node.graph.inserting_after(node):
        made = node.graph.call_function(target, (node,))
    for user in list(node.users):
        if user is not made:
            user.replace_input_with(node, made)
    return made


def _rarest(nodes: list[fx.Node], known: dict[fx.Node, Any]) -> tuple[str, tuple[int, ...], torch.dtype]:
    """The operation and first input that occur least often, near the middle of the graph."""
    places: dict[tuple[str, tuple[int, ...], torch.dtype], list[int]] = {}
    for i, node in enumerate(nodes):
        if node.op != "call_function" or operation(node) in _VIEWS or not node.all_input_nodes:
            continue
        value = known.get(node.all_input_nodes[0])
        if isinstance(value, torch.Tensor) and value.dim() >= 2 and isinstance(known.get(node), torch.Tensor):
            places.setdefault((operation(node), tuple(value.shape), value.dtype), []).append(i)
    return min(places, key=lambda key: (min(len(places[key]), 2), abs(places[key][0] - len(nodes) / 2), key[0]))
