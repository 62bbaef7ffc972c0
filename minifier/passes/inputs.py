"""Take fewer inputs."""

from __future__ import annotations

from ...store.document.case import tag
from ..candidate.graph_view import GraphView
from ..candidate.patch import Patch
from .proposal import Proposal, each


def propose(view: GraphView, step: int) -> Proposal | None:
    """First numbers are written into the graph, then inputs that look alike become one."""
    case = view.case
    if step == 0:
        return each(
            tuple(
                Patch(replace={name: value["sym"]["hint"] if tag(value) == "sym" else value})
                for name, i in view.given.items()
                if tag(value := case.inputs[i]) == "sym" or type(value) in (int, float, bool)
            )
        )
    if step == 1:
        first: dict[object, str] = {}
        patches = []
        for name, i in view.given.items():
            spec = case.input_tensor(i)
            if spec is None:
                continue
            look = (spec.dtype, spec.shape, spec.stride, spec.device, spec.layout, spec.requires_grad, spec.conj)
            if look in first:
                patches.append(Patch(replace={name: {"ref": first[look]}}))
            else:
                first[look] = name
        return each(tuple(patches))
    return None
