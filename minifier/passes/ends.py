"""Take and return less, and remove what nothing returned depends on."""

from __future__ import annotations

from ...store.document.case import tag
from ..candidate.graph_view import GraphView
from ..candidate.patch import Patch
from .proposal import Proposal, each


def inputs(view: GraphView, step: int) -> Proposal | None:
    """The first step writes numbers into the graph; the second one merges inputs that look alike."""
    case = view.case
    if step == 0:
        return each(
            tuple(
                Patch(replace={name: value["sym"]["hint"] if tag(value) == "sym" else value})
                for name, i in view.given.items()
                if tag(value := case.inputs[i]) == "sym" or type(value) in (int, float, bool)
            )
        )
    if step > 1:
        return None
    first: dict[object, str] = {}
    patches = []
    for name, i in view.given.items():
        if (spec := case.input_tensor(i)) is not None:
            look = (spec.dtype, spec.shape, spec.stride, spec.device, spec.layout, spec.requires_grad, spec.conj)
            if (known := first.setdefault(look, name)) != name:
                patches.append(Patch(replace={name: {"ref": known}}))
    return each(tuple(patches))


def outputs(view: GraphView, step: int) -> Proposal | None:
    """The first step cuts returned values that the graph reads, so no node becomes dead; the second one any value."""
    if step == 0:
        read = [i for i, v in enumerate(view.outputs) if tag(v) != "ref" or len(view.users[v["ref"]]) > 1]
        return each(tuple(Patch(cut=frozenset([i])) for i in read))
    if step == 1 and len(view.outputs) > 1:
        return each(tuple(Patch(cut=frozenset([i])) for i in range(len(view.outputs))))
    return None


def dead(view: GraphView, step: int) -> Proposal | None:
    """The first step erases atoms without a live node, even with side effects; the second one is an empty patch.

    `apply` removes what is unused, so an empty patch may make a case smaller.
    """
    if step == 1:
        return each((Patch(),))
    if step > 1:
        return None
    return each(tuple(Patch(erase=frozenset(atom)) for atom in view.atoms if not any(n in view.live for n in atom)))
