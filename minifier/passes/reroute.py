"""Readers of a node read an earlier value instead, so that the nodes between the two can be removed.

``skip-to-operand`` and ``replace-with-ancestor`` use values of the same shape and type that the node depends on.
``reroute`` uses any earlier result; if it has another shape, the node becomes a single call that gives the right shape
(reshape, expand, slice or select). Inputs are not used: giving the node its value as an input was already tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from ...store.document.case import Value
from ..candidate.graph_view import GraphView
from ..candidate.hop_calls import Path
from ..candidate.patch import Patch
from ..candidate.rewriting import Become, editable
from ..candidate.subgraphs import Inside, graphs
from .proposal import Proposal, each
from .searches import farthest

#: With this many nodes single steps do as well as big ones.
FEW_NODES = 4
#: The most starting points that are tried for one node, the farthest ones.
MOST_SOURCES = 4

#: How a node gets its shape: the operator with its overload, or the function or method, and what follows the source.
Form = tuple[str, str, tuple[Value, ...]]


def skip_to_operand(view: GraphView, step: int) -> Proposal | None:
    """Each node's inputs in turn: every single operand is tried."""
    patches = tuple(
        Patch(replace={name: {"ref": options[step]}})
        for name in view.compute
        if len(options := _inputs_alike(view, name)) > step
    )
    return each(patches) if patches else None


def _inputs_alike(view: GraphView, name: str) -> list[str]:
    """Direct inputs of the type of ``name``."""
    tensor_type = view.tensor_type(name)
    return [s for s in view.inputs[name] if tensor_type is not None and view.tensor_type(s) == tensor_type]


def replace_with_ancestor(view: GraphView, step: int) -> Proposal | None:
    """From the end of the graph backwards, one node a step: how far up may its readers look instead?

    What lies between goes. A step that is taken removes only nodes before its own, so the steps behind stay done.
    """
    if step >= len(view.compute) or len(view.compute) <= FEW_NODES:
        return None
    name = view.compute[-1 - step]
    sources = _ancestors_alike(view, name)
    if not sources:
        return Proposal((), lambda: farthest(()))
    patches = tuple(Patch(replace={name: {"ref": s}}) for s in sources)
    weights = _chances(view, name, sources)
    return Proposal(patches, lambda: farthest(weights), again=True)


def _ancestors_alike(view: GraphView, name: str) -> list[str]:
    """Nodes of the type of ``name`` that it depends on, the earliest first."""
    tensor_type = view.tensor_type(name)
    if tensor_type is None or name not in view.live:
        return []
    own, position = view.ancestors[name], view.position
    return [s for s in view.by_tensor_type[tensor_type] if s != name and own >> position[s] & 1]


def _chances(view: GraphView, name: str, sources: list[str]) -> tuple[float, ...]:
    """Chance, for each of ``sources``, that what lies between it and the next one (or ``name`` itself) is needed."""
    number, weights = view.number, view.weights
    bounds = [*(number.get(s, -1) for s in sources), number[name]]
    total = sum(weights[bounds[0] + 1 : bounds[-1] + 1])
    # Being the first thing in the way also counts: most nodes that are left are needed.
    chances = [sum(weights[a + 1 : b + 1]) for a, b in pairwise(bounds)]
    chances[-1] += total
    return tuple(chances)


def reroute(view: GraphView, step: int) -> Proposal | None:
    """In each step one starting point for every node: those that it depends on, the first ones first, then others."""
    if step >= MOST_SOURCES:
        return None
    found = [
        options[step]
        for path, inner in graphs(view)
        for node in editable(inner)
        if len(options := list(_options(path, inner, node.name))) > step
    ]
    return each(tuple(found))


def _options(path: Path, view: GraphView, name: str) -> Iterator[Patch]:
    above, at = view.ancestors[name], view.position
    earlier = view.compute[: view.number[name]]
    own = [s for s in earlier if above >> at[s] & 1 and s not in view.inputs[name]]
    tensor_type = view.tensor_type(name)
    for source in (*own, *(s for s in earlier if not above >> at[s] & 1)):
        if tensor_type is not None and view.tensor_type(source) == tensor_type:
            patch = Patch(replace={name: {"ref": source}})
            yield Patch(edits=(Inside(path, patch),)) if path else patch
    for source in own:
        if (form := _form(view, source, name)) is not None:
            yield Patch(edits=(_call(path, view, source, name, form),))


def _form(view: GraphView, source: str, name: str) -> Form | None:
    """One call that makes a tensor of the shape of ``name`` from ``source``, which has another."""
    one, other = view.tensor(source), view.tensor(name)
    if one is None or other is None or (one.dtype, one.layout) != (other.dtype, other.layout):
        return None
    before, after = one.shape, other.shape
    if before == after:
        return None
    if prod(before) == prod(after):
        return "view.default", "reshape", (list(after),)
    missing = len(after) - len(before)
    if missing >= 0 and all(b in (1, a) for b, a in zip(before, after[missing:], strict=True)):
        return "expand.default", "expand", (list(after),)
    shorter = [d for d, (b, a) in enumerate(zip(before, after, strict=False)) if b > a]
    if missing == 0 and len(shorter) == 1 and all(b >= a for b, a in zip(before, after, strict=True)):
        return "slice.Tensor", "narrow", (shorter[0], 0, after[shorter[0]])
    for d in range(len(before)):
        if before[:d] + before[d + 1 :] == after:
            return "select.int", "select", (d, 0)
    return None


def _call(path: Path, view: GraphView, source: str, name: str, form: Form) -> Become:
    overload, method, rest = form
    target = view.nodes[name].target
    args = ({"ref": source}, *rest)
    if isinstance(target, dict) and "op" in target:
        return Become(path, name, "call_function", {"op": f"aten::{overload}"}, args)
    first, *others = rest
    given = first if isinstance(first, list) and first else [first]  # as one writes it: x.reshape(2, 8)
    return Become(path, name, "call_method", method, ({"ref": source}, *given, *others))
