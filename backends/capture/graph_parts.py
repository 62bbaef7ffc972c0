"""The parts of a graph that can be compiled apart, and a graph of which a backend compiles some parts.

A part is a run of compute nodes. Between two parts only tensors and numbers pass, no mode is entered in one and left
in the other, and nothing is written in place that was made in another. `torch.fx.passes.split_module` cuts, and repeats
autocast in each piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.split_module import split_module

from ...store.live.encode import user_line
from .selection import CompiledNode

#: Names of functions between whose calls a graph cannot be cut; `split_module` repeats autocast.
_ENTERS = re.compile(r"_increment_nesting$|^_?enter_(?!autocast)|_disable$")
_LEAVES = re.compile(r"_decrement_nesting$|^_?exit_(?!autocast)|_enable$")
_WRITES = re.compile(r"[a-z0-9]_$|^setitem$")
_PLAIN = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)
#: The name that `split_module` gives to the piece with the number 1.
_PIECE = "submod_1"

#: Compiles a graph for example inputs.
Compile = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]


class CannotCut(Exception):
    """A graph has no such parts."""


def parts_of(gm: fx.GraphModule) -> list[list[fx.Node]]:
    """Return the compute nodes of ``gm`` in order, as the smallest parts that can be compiled apart."""
    nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    until = _ties(gm.graph, nodes)
    parts: list[list[fx.Node]] = []
    last = -1
    for i, node in enumerate(nodes):
        if i > last:
            parts.append([])
        parts[-1].append(node)
        last = max(last, until.get(i, -1))
    return parts


def _ties(graph: fx.Graph, nodes: Sequence[fx.Node]) -> dict[int, int]:
    """The places of nodes, each with the place of a later node that must be in the same part."""
    place = {node: i for i, node in enumerate(nodes)}
    ties: dict[int, int] = {}

    def tie(first: int, last: int) -> None:
        ties[first] = max(ties.get(first, -1), last)

    made: dict[int, int] = {key: -1 for node in graph.find_nodes(op="placeholder") if (key := _storage(node))}
    entered: list[int] = []
    switched: int | None = None  # the place where the mode of gradients was changed
    for i, node in enumerate(nodes):
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if not isinstance(node.meta.get("example_value"), _PLAIN):
            tie(i, max((place.get(user, -1) for user in node.users), default=-1))
        if _ENTERS.search(name):
            entered.append(i)
        elif _LEAVES.search(name) and entered:
            tie(entered.pop(), i)
        if node.target is torch._C._set_grad_enabled:
            if switched is None:
                switched = i
            else:
                tie(switched, i)
                switched = None
        if key := _storage(node):
            made.setdefault(key, i)
        for written in node.all_input_nodes[:1] if _WRITES.search(name) else ():
            if (begun := made.get(_storage(written), -1)) >= 0:
                tie(begun, i)
    for begun in (*entered, *(() if switched is None else (switched,))):
        tie(begun, len(nodes) - 1)
    return ties


def _storage(node: fx.Node) -> int:
    """A number for the memory of the value of ``node``, 0 where it has none."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return 0
    try:
        return int(value.untyped_storage()._cdata)
    except NotImplementedError:  # a tensor inside of `torch.vmap`
        return 0


def described(parts: Sequence[Sequence[fx.Node]]) -> tuple[CompiledNode, ...]:
    """The nodes of ``parts``, each with its line of the program."""
    nodes = [node for part in parts for node in part]
    return tuple(CompiledNode(node.name, _operator(node), user_line(node.meta)) for node in nodes)


def compile_range(gm: fx.GraphModule, parts: Sequence[Sequence[fx.Node]], compile: Compile) -> Callable[..., Any]:
    """Compile the consecutive ``parts`` of ``gm``. Returns a function that runs all of ``gm``.

    Raises `CannotCut` where a value that the parts take is not known, and whatever ``compile`` raises.
    """
    chosen = {node for part in parts for node in part}
    last = parts[-1][-1]
    piece_of: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        piece_of[node] = 1 if node in chosen else 2 if last in piece_of else 0
    try:
        split = split_module(gm, gm, piece_of.__getitem__)
    except (AssertionError, KeyError, RuntimeError) as exc:
        raise CannotCut(f"torch cannot split the graph: {type(exc).__name__}: {exc}") from exc
    piece = split.get_submodule(_PIECE)
    assert isinstance(piece, fx.GraphModule)
    given = [_example(node) for node in piece.graph.find_nodes(op="placeholder")]
    single = _give_tuple(piece)
    split.add_submodule(_PIECE, _CompiledPiece(compile(piece, given), single=single))
    return split.forward


class _CompiledPiece(torch.nn.Module):
    """A compiled piece, as a module. ``single``: it gives its result without a tuple."""

    def __init__(self, compiled: Callable[..., Any], *, single: bool) -> None:
        super().__init__()
        self._compiled = compiled
        self._single = single

    def forward(self, *args: Any) -> Any:
        result = self._compiled(*args)
        return result[0] if self._single else result


def _example(node: fx.Node) -> Any:
    if "example_value" not in node.meta:
        raise CannotCut(f"the value of {node.name} is not known")
    return node.meta["example_value"]


def _give_tuple(piece: fx.GraphModule) -> bool:
    """Let ``piece`` return a tuple, as backends expect it. Returns whether it did not before."""
    output = piece.graph.output_node()
    if isinstance(output.args[0], tuple | list):
        return False
    output.args = ((output.args[0],),)
    piece.recompile()
    return True


def _operator(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
