"""The first guess: the operator that a failure names, alone. It needs no worker and no query.

What the operator reads becomes random inputs of the shapes that Dynamo noted at capture. So the guess can be made
before anything has run, and is right where neither the values nor the other nodes matter.
"""

from __future__ import annotations

from dataclasses import replace

from ...backends.provenance import libraries
from ...repro_templates.source.elements import COMPLEX, FLOATS, is_numeric
from ...store.document.case import Case, Json, TensorSpec, tag
from ...store.document.strides import contiguous
from ...store.failure import Failure, FailureKind, Phase
from ..candidate.graph_view import GraphView
from ..candidate.patch import Patch, apply
from ..candidate.trace import Recorded, Trace, ValueKind
from .hints import ASIDE, named


def guess(case: Case, failure: Failure) -> Case | None:
    """The case of one operator that ``failure`` seems to name; None if it names none, or if it needs more than tensors.

    Only for exceptions and crashes: what a hang or a wrong value comes from has to be measured.
    """
    if failure.kind in (FailureKind.HANG, FailureKind.DIVERGENCE) or failure.phase is Phase.BACKWARD:
        return None
    view = GraphView(case, _noted(case))
    culprits = [name for group in named(case, [failure], above=ASIDE) for name in group]
    atom = next((set(atom) for atom in view.atoms if culprits and culprits[0] in atom), None)
    if atom is None or view.brackets or case.earlier or case.calls > 1:
        return None
    alone = apply(view, Patch(drop=view.computed - atom))
    if alone is None or any(tag(value) != "tensor" for value in alone.inputs):
        return None
    return with_random_values(replace(alone, imports=libraries.needed_by(alone)))


def with_random_values(case: Case) -> Case | None:
    """``case`` with random numbers in place of all values of its tensors; None if one of them has no numbers."""
    tensors = [_random(spec) for spec in case.tensors]
    return None if None in tensors else replace(case, tensors=tuple(filter(None, tensors)))


def _noted(case: Case) -> Trace:
    """Random tensors of the dtypes and shapes that the capture noted of the nodes. Other values are opaque."""
    device = next((spec.device for spec in case.tensors), "cpu")
    values: dict[str, Recorded] = {}
    tensors: list[TensorSpec] = []
    for node in case.graph.compute:
        dtype, shape = node.meta.get("dtype"), node.meta.get("shape")
        if not isinstance(dtype, str) or shape is None or any(type(size) is not int for size in shape):
            values[node.name] = Recorded(ValueKind.OPAQUE)
            continue
        values[node.name] = Recorded(ValueKind.TENSOR, ((0, len(tensors)),))
        tensors.append(TensorSpec(dtype, tuple(shape), contiguous(tuple(shape)), device=device))
    return Trace(values, tuple(tensors), {node.name: i for i, node in enumerate(case.graph.nodes)})


def _random(spec: TensorSpec) -> TensorSpec | None:
    """``spec`` with random numbers, integers with zeros, which are indices of anything; None if it has no numbers."""
    if not is_numeric(spec.dtype) or spec.layout != "strided" or spec.parts or spec.extra or spec.dynamic:
        return None
    drawn = spec.dtype in FLOATS | COMPLEX
    init: Json = {"fn": "randn"} if drawn else {"fn": "full", "value": False if spec.dtype == "bool" else 0}
    return replace(spec, storage=None, init=init, offset=0, conj=False, neg=False, stride=contiguous(spec.shape))
