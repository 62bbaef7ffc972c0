"""Shortcuts: a node reads nothing but an earlier result, so that the way from there to it goes.

Where an earlier result has the shape and type of the node, it is read instead; where it has another shape, the node
becomes the one call that gives its shape: reshape, expand, slice or select. Inputs are no starting points: that a node
can be given its value from outside was found not to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ...store.document.case import Value
from ..candidate.graph_view import Subject
from ..candidate.patch import Patch
from ..candidate.rewriting import Become, editable
from ..candidate.subgraphs import Inside, graphs
from ..tracing.hop_calls import Path
from .proposal import Proposal, each

#: The most starting points that are tried for one node, the farthest ones.
MOST = 4

#: How a node gets its shape: the operator with its overload, or the function or method, and what follows the source.
Form = tuple[str, str, tuple[Value, ...]]


def propose(subject: Subject, step: int) -> Proposal | None:
    """In each step one starting point for every node: those that it depends on, the first ones first, then others."""
    if step >= MOST:
        return None
    found = [
        options[step]
        for path, inner in graphs(subject)
        for node in editable(inner)
        if len(options := list(_options(path, inner, node.name))) > step
    ]
    return each(tuple(found))


def _options(path: Path, subject: Subject, name: str) -> Iterator[Patch]:
    above, at = subject.ancestors[name], subject.position
    earlier = subject.compute[: subject.number[name]]
    own = [s for s in earlier if above >> at[s] & 1 and s not in subject.inputs[name]]
    sort = subject.sort(name)
    for source in (*own, *(s for s in earlier if not above >> at[s] & 1)):
        if sort is not None and subject.sort(source) == sort:
            patch = Patch(replace={name: {"ref": source}})
            yield Patch(edits=(Inside(path, patch),)) if path else patch
    for source in own:
        if (form := _form(subject, source, name)) is not None:
            yield Patch(edits=(_call(path, subject, source, name, form),))


def _form(subject: Subject, source: str, name: str) -> Form | None:
    """One call that makes a tensor of the shape of ``name`` from ``source``, which has another."""
    one, other = subject.tensor(source), subject.tensor(name)
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


def _call(path: Path, subject: Subject, source: str, name: str, form: Form) -> Become:
    overload, method, rest = form
    target = subject.nodes[name].target
    args = ({"ref": source}, *rest)
    if isinstance(target, dict) and "op" in target:
        return Become(path, name, "call_function", {"op": f"aten::{overload}"}, args)
    first, *others = rest
    given = first if isinstance(first, list) and first else [first]  # as one writes it: x.reshape(2, 8)
    return Become(path, name, "call_method", method, ({"ref": source}, *given, *others))
