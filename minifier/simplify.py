"""The last stage of a reduction: what is left of the case is made plain, one candidate at a time.

The engine removes; this stage replaces. Gradients that are not needed, the recorded random state, context and compile
arguments that do not matter, strides, and above all values: data that a seed or a constant can stand in for has no
place in a script. A simplification is a generator: it yields candidates, the simplest first, is sent whether the
candidate still fails in the same way, and returns the plainest case it reached. It knows nothing of oracles, and none
removes a node, so none can undo the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..repro_templates.recipes import recipes
from ..repro_templates.strides import contiguous
from ..store.case import Blobs, Case, TensorSpec, tag
from . import dimensions
from .dimensions import Candidates

Simplification = Callable[[Case, Blobs], Candidates]

#: Above this many dimensions none is tried alone.
MOST_MARKS = 16


def fewer_calls(case: Case, blobs: Blobs) -> Candidates:
    """Call what was compiled less often: once, or the least power of two that will do."""
    for i in reversed(range(len(case.earlier))):
        if (yield (candidate := replace(case, earlier=case.earlier[:i] + case.earlier[i + 1 :]))):
            case = candidate
    calls = 1
    while calls < case.calls:
        if (yield (candidate := replace(case, calls=calls))):
            return candidate
        calls *= 2
    return case


def forward_only(case: Case, blobs: Blobs) -> Candidates:
    """Leave out the backward pass: a failure that shows before it does not need it."""
    if case.backward and (yield (candidate := replace(case, backward=False))):
        case = candidate
    return case


def no_gradients(case: Case, blobs: Blobs) -> Candidates:
    """Ask for no gradients of the inputs, all at once, then one by one: most failures are of the forward graph."""
    wanted = [i for i, spec in enumerate(case.tensors) if spec.requires_grad]
    if wanted and (yield (candidate := replace(case, tensors=tuple(map(_without_grad, case.tensors))))):
        return candidate
    for i in wanted if len(wanted) > 1 else ():
        if (yield (candidate := with_tensor(case, i, _without_grad(case.tensors[i])))):
            case = candidate
    return case


def plain_tensors(case: Case, blobs: Blobs) -> Candidates:
    """Make parameters and results of earlier operations ordinary leaves."""
    for i, spec in enumerate(case.tensors):
        simple = replace(spec, parameter=False, leaf=True, inference=False)
        if simple != spec and (yield (candidate := with_tensor(case, i, simple))):
            case = candidate
    return case


def default_context(case: Case, blobs: Blobs) -> Candidates:
    """Drop the recorded context, whole or part by part: a script need not set what does not matter."""
    if case.context and (yield (candidate := replace(case, context={}))):
        return candidate
    for name in list(case.context):
        candidate = replace(case, context={k: v for k, v in case.context.items() if k != name})
        if (yield candidate):
            case = candidate
    return case


def default_arguments(case: Case, blobs: Blobs) -> Candidates:
    """Drop arguments of torch.compile: dynamic, mode, options, and each single option."""
    for name in ("dynamic", "mode", "options"):
        if name in case.backend:
            candidate = replace(case, backend={k: v for k, v in case.backend.items() if k != name})
            if (yield candidate):
                case = candidate
    options = case.backend.get("options", {}).get("dict", [])
    for item in options if len(options) > 1 else ():
        fewer = {"dict": [other for other in case.backend["options"]["dict"] if other[0] != item[0]]}
        if (yield (candidate := replace(case, backend={**case.backend, "options": fewer}))):
            case = candidate
    return case


def static_dimensions(case: Case, blobs: Blobs) -> Candidates:
    """Make symbolic only the dimensions that must be, by `mark_dynamic` in place of ``dynamic=True``."""
    given = [v["tensor"] for v in case.inputs if tag(v) == "tensor"]
    if case.backend.get("dynamic") is True:
        static = replace(case, backend={k: v for k, v in case.backend.items() if k != "dynamic"})
        sizes = [(i, d) for i in given for d, size in enumerate(case.tensors[i].shape) if size > 1]
        every = [marked(static, sizes)]
        single = [marked(static, [place]) for place in sizes] if 1 < len(sizes) <= MOST_MARKS else []
        for candidate in [*every, *single] if sizes else ():  # a size that the graph fixes must not be marked
            if (yield candidate):
                case = candidate
                break
        else:
            return case
    for i in given:
        for dimension in case.tensors[i].dynamic:
            left = tuple(d for d in case.tensors[i].dynamic if d != dimension)
            if (yield (candidate := with_tensor(case, i, replace(case.tensors[i], dynamic=left)))):
                case = candidate
    return case


def plain_values(case: Case, blobs: Blobs) -> Candidates:
    """Replace recorded values by a constant, a sequence or seeded random numbers that show the failure, too."""
    drawn_first = {v["tensor"] for call in case.earlier for v in call.values() if tag(v) == "tensor"}
    for i, spec in enumerate(case.tensors):
        for simple in recipes(spec, blobs[spec.storage]) if spec.storage is not None else ():
            if i in drawn_first and (simple.init or {}).get("fn") not in ("full", "arange"):
                continue  # random numbers are drawn for the last call
            if (yield (candidate := with_tensor(case, i, simple))):
                case = candidate
                break
    return case


def plain_strides(case: Case, blobs: Blobs) -> Candidates:
    """Lay tensors out contiguously of which no values are kept."""
    for i, spec in enumerate(case.tensors):
        if spec.storage is None and not spec.parts and spec.stride != contiguous(spec.shape):
            candidate = with_tensor(case, i, replace(spec, stride=contiguous(spec.shape), offset=0))
            if (yield candidate):
                case = candidate
    return case


def smaller_dimensions(case: Case, blobs: Blobs) -> Candidates:
    """Make dimensions smaller, those of one size together: most failures do not depend on sizes."""
    return (yield from dimensions.smaller_dimensions(case))


#: In the order they run. `fxminify.minifier.passes.listing` shows them after the engine's passes.
SIMPLIFICATIONS: tuple[Simplification, ...] = (
    fewer_calls,
    forward_only,
    no_gradients,
    plain_tensors,
    default_context,
    default_arguments,
    static_dimensions,
    plain_values,
    smaller_dimensions,
    plain_strides,
)


def simplify(case: Case, blobs: Blobs, same: Callable[[Case, str], bool]) -> Case:
    """The plainest form of ``case`` that ``same(candidate, name of the simplification)`` still accepts.

    Deterministic: it asks the same candidates in the same order whenever the answers are the same.
    """
    for simplification in SIMPLIFICATIONS:
        candidates = simplification(case, blobs)
        try:
            candidate = next(candidates)
            while True:
                candidate = candidates.send(same(candidate, name_of(simplification)))
        except StopIteration as end:
            case = end.value
    return case


def name_of(simplification: Simplification) -> str:
    """The name it has in logs and listings."""
    return simplification.__name__.replace("_", "-")


def with_tensor(case: Case, index: int, spec: TensorSpec) -> Case:
    """``case`` with one tensor replaced."""
    return replace(case, tensors=(*case.tensors[:index], spec, *case.tensors[index + 1 :]))


def marked(case: Case, places: Sequence[tuple[int, int]]) -> Case:
    """``case`` with the dimensions ``(tensor, dimension)`` made symbolic, and no others."""
    dynamic: dict[int, tuple[int, ...]] = {}
    for i, d in places:
        dynamic[i] = (*dynamic.get(i, ()), d)
    specs = (replace(spec, dynamic=dynamic.get(i, ())) for i, spec in enumerate(case.tensors))
    return replace(case, tensors=tuple(specs))


def _without_grad(spec: TensorSpec) -> TensorSpec:
    return replace(spec, requires_grad=False, leaf=True, parameter=False)
