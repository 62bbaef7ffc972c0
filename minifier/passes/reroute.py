"""Let readers of a node read an earlier value instead, so that the nodes between the two can be removed.

``skip-to-operand`` and ``replace-with-ancestor`` use values of the same shape and type that the node depends on.
``read-past`` uses any operand, for readers that take any shape or type, such as elementwise ones or reductions.
``reroute`` uses any earlier result; if it has another shape, the node becomes a single call that gives the right shape
(reshape, expand, slice or select). These passes do not use inputs: other passes already tried to make the value of the
node an input.
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

#: With at most so many nodes, single steps need no more queries than big ones.
FEW_NODES = 4
#: The most sources that are tried for one node, the farthest ones.
MOST_SOURCES = 4

#: A call that gives a source the shape of a node: an operator with its overload, the method, further arguments.
Form = tuple[str, str, tuple[Value, ...]]


def skip_to_operand(view: GraphView, step: int) -> Proposal | None:
    """Each step proposes, for every node, the next of its operands that has its shape and dtype."""
    patches = tuple(
        Patch(replace={name: {"ref": options[step]}})
        for name in view.compute
        if len(options := _inputs_alike(view, name)) > step
    )
    return each(patches) if patches else None


def _inputs_alike(view: GraphView, name: str) -> list[str]:
    """The nodes of the shape and dtype of ``name`` that it reads."""
    tensor_type = view.tensor_type(name)
    return [s for s in view.inputs[name] if tensor_type is not None and view.tensor_type(s) == tensor_type]


def read_past(view: GraphView, step: int) -> Proposal | None:
    """Each step proposes, for every node that another one reads, the next of its operands, of any shape or dtype."""
    found: list[Patch] = []
    for path, inner in graphs(view):
        read = {source for name in inner.compute for source in inner.inputs[name]}
        for node in editable(inner):
            if node.name in read and len(options := _tensors_read(inner, node.name)) > step:
                patch = Patch(replace={node.name: {"ref": options[step]}})
                found.append(Patch(edits=(Inside(path, patch),)) if path else patch)
    return each(tuple(found)) if found else None


def _tensors_read(view: GraphView, name: str) -> list[str]:
    """List the tensors that compute the tensor ``name``.

    Tensors of another shape or dtype come first, because an earlier pass tried the others.
    """
    tensor_type = view.tensor_type(name)
    types = {s: found for s in view.inputs[name] if (found := view.tensor_type(s)) is not None}
    return [] if tensor_type is None else sorted(types, key=lambda s: types[s] == tensor_type)


def replace_with_ancestor(view: GraphView, step: int) -> Proposal | None:
    """Each step proposes earlier values for the readers of one node, the farthest first; the last node comes first.

    The nodes between the two become dead. They come before the node of the step, so earlier steps stay done.
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
    """Nodes of the shape and dtype of ``name`` that it depends on, the earliest first."""
    tensor_type = view.tensor_type(name)
    if tensor_type is None or name not in view.live:
        return []
    own, position = view.ancestors[name], view.position
    return [s for s in view.by_tensor_type[tensor_type] if s != name and own >> position[s] & 1]


def _chances(view: GraphView, name: str, sources: list[str]) -> tuple[float, ...]:
    """For each of ``sources``, the chance that the nodes up to the next one (or up to ``name``) are needed."""
    number, weights = view.number, view.weights
    bounds = [*(number.get(s, -1) for s in sources), number[name]]
    total = sum(weights[bounds[0] + 1 : bounds[-1] + 1])
    # Most nodes that are left are needed, so the shortest step gets a higher chance.
    chances = [sum(weights[a + 1 : b + 1]) for a, b in pairwise(bounds)]
    chances[-1] += total
    return tuple(chances)


def reroute(view: GraphView, step: int) -> Proposal | None:
    """Each step proposes one source for every node: first those that it depends on, the earliest first, then others."""
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
    """A call that gives ``source`` the other shape of ``name``; None if there is no such call or the dtypes differ."""
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
    given = first if isinstance(first, list) and first else [first]  # x.reshape(2, 8), as people write it
    return Become(path, name, "call_method", method, ({"ref": source}, *given, *others))
