"""Make plain what surrounds a graph and its tensors: calls, gradients, ambient state, arguments of `torch.compile`.

Most failures need none of these, so each pass first removes all that it can at once. Otherwise a sweep over single
entries finds what the failure needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...store.document.case import Case, TensorSpec, tag
from ..candidate.graph_view import Storages
from .candidates import Candidates, Edit, together, with_tensor

#: With more dimensions than this, none is tried alone.
MOST_MARKS = 16


def fewer_calls(case: Case, storages: Storages) -> Candidates:
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


def forward_only(case: Case, storages: Storages) -> Candidates:
    """Leave out the backward pass: a failure that shows before it does not need it."""
    if case.backward and (yield (candidate := replace(case, backward=False))):
        case = candidate
    return case


def no_gradients(case: Case, storages: Storages) -> Candidates:
    """Ask for no gradients of the inputs, all at once, then by a sweep: most failures are of the forward graph."""
    return together(case, [_each_tensor(i, _without_grad) for i in range(len(case.tensors))])


def plain_tensors(case: Case, storages: Storages) -> Candidates:
    """Make parameters, results of earlier operations and tensors of other classes ordinary leaves, outside of inference
    mode. Attributes of tensors that keep their class go."""
    case = yield from together(case, [_each_tensor(i, _ordinary) for i in range(len(case.tensors))])
    given = [(i, name) for i, spec in enumerate(case.tensors) for name in spec.attributes]
    return (yield from together(case, [_each_tensor(i, partial(_without_attribute, name)) for i, name in given]))


def default_context(case: Case, storages: Storages) -> Candidates:
    """Drop the recorded context and tolerances, whole or entry by entry, or make an entry plainer that must stay."""
    edits = [_without("context", path) for path in _paths(case.context, ("config", "sdp", "autocast"))]
    edits += [_without_tolerance(dtype) for dtype in case.tolerance]
    case = yield from together(case, [*edits, *([_lenient] if case.strict else [])])
    caches = [_without("context", ("autocast", device, "cache")) for device in case.context.get("autocast", {})]
    return (yield from together(case, [*caches, _not_only_a_warning]))


def default_arguments(case: Case, storages: Storages) -> Candidates:
    """Drop arguments of torch.compile: dynamic, mode, and each single option."""
    edits = [_without("backend", (name,)) for name in ("dynamic", "mode") if name in case.backend]
    options = case.backend.get("options")
    edits += [_without_option(item) for item in (options or {}).get("dict", [])]
    if options is not None and not options.get("dict"):
        edits.append(_without("backend", ("options",)))
    return together(case, edits)


def static_dimensions(case: Case, storages: Storages) -> Candidates:
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
    return (yield from together(case, [_unmarked(i, d) for i in given for d in case.tensors[i].dynamic]))


def marked(case: Case, places: Sequence[tuple[int, int]]) -> Case:
    """``case`` in which exactly the dimensions ``places``, each as ``(tensor, dimension)``, are symbolic."""
    dynamic: dict[int, tuple[int, ...]] = {}
    for i, d in places:
        dynamic[i] = (*dynamic.get(i, ()), d)
    specs = (replace(spec, dynamic=dynamic.get(i, ())) for i, spec in enumerate(case.tensors))
    return replace(case, tensors=tuple(specs))


def _each_tensor(index: int, change: Any) -> Edit:
    return lambda case: with_tensor(case, index, change(case.tensors[index]))


def _without_grad(spec: TensorSpec) -> TensorSpec:
    return replace(spec, requires_grad=False, leaf=True, parameter=False) if spec.requires_grad else spec


def _ordinary(spec: TensorSpec) -> TensorSpec:
    return replace(spec, parameter=False, leaf=True, inference=False, subclass="", attributes={})


def _without_attribute(name: str, spec: TensorSpec) -> TensorSpec:
    return replace(spec, attributes={k: v for k, v in spec.attributes.items() if k != name})


def _unmarked(index: int, dimension: int) -> Edit:
    def edit(case: Case) -> Case:
        spec = case.tensors[index]
        return with_tensor(case, index, replace(spec, dynamic=tuple(d for d in spec.dynamic if d != dimension)))

    return edit


def _without_option(item: Any) -> Edit:
    """An edit that removes one entry of ``options``, and ``options`` if it was the last one."""

    def edit(case: Case) -> Case:
        left = [other for other in case.backend["options"]["dict"] if other != item]
        if not left:
            return _without("backend", ("options",))(case)
        return replace(case, backend={**case.backend, "options": {"dict": left}})

    return edit


def _lenient(case: Case) -> Case:
    return replace(case, strict=False)


def _without_tolerance(dtype: str) -> Edit:
    return lambda case: replace(case, tolerance={k: v for k, v in case.tolerance.items() if k != dtype})


def _not_only_a_warning(case: Case) -> Case:
    """``case`` with ``use_deterministic_algorithms(True)`` without ``warn_only``."""
    if "deterministic" not in case.context:
        return case
    return replace(case, context={**case.context, "deterministic": {"warn_only": False}})


def _without(field: str, path: tuple[str, ...]) -> Edit:
    """An edit that removes the entry at ``path`` of ``context`` or ``backend``, and mappings that are empty then."""

    def edit(case: Case) -> Case:
        if field == "context":
            return replace(case, context=_dropped(case.context, path))
        return replace(case, backend=_dropped(case.backend, path))

    return edit


def _dropped(tree: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    key, *rest = path
    left = {k: v for k, v in tree.items() if k != key}
    if rest and key in tree and (inner := _dropped(tree[key], tuple(rest))):
        return {k: inner if k == key else v for k, v in tree.items()}
    return left


def _paths(tree: Mapping[str, Any], deep: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Paths of the entries of a context that can be removed alone. Below a key in ``deep`` each entry is one."""
    for key, value in tree.items():
        if key in deep and value and isinstance(value, Mapping):
            for inner, item in value.items():
                below = item if key == "config" and isinstance(item, Mapping) else {}
                yield from ((key, inner, name) for name in below)
                if not below:
                    yield (key, inner)
        else:
            yield (key,)
