"""Replace a call by a plain operation of the same form, if the failure needs only the shape and dtype of its result.

The form of a call follows from its values, not from its name, so unknown operators have one, too. The forms are: one
tensor to a tensor like it, two tensors to their broadcast shape, a reduction, another shape, another dtype.
`fxminify.minifier.candidate.order.RANKS` says which operations are plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from ...store.document.case import TensorSpec, Value
from ..candidate.graph_view import GraphView
from ..candidate.hop_calls import Path
from ..candidate.order import RANKS, rank
from ..candidate.patch import Patch
from ..candidate.rewriting import Become, editable
from ..candidate.subgraphs import graphs
from .proposal import Proposal
from .searches import sweep

#: The call that replaces another: the name of a function of torch, args and kwargs.
Form = tuple[str, tuple[Value, ...], dict[str, Value]]

_INTEGERS = frozenset({"uint8", "int8", "int16", "int32", "int64"})


def plain(view: GraphView, step: int) -> Proposal | None:
    """The first step proposes the plain operation of each node, the second one another operation of the form.

    The second step is left out if the graph has one compute node: that is the culprit then. A node that the failure
    blames is left alone.
    """
    if step > 1 or (step == 1 and len(view.compute) == 1):
        return None
    patches = []
    for path, inner in graphs(view):
        for node in editable(inner):
            if node.name in view.blamed:
                continue
            overload = isinstance(node.target, dict) and "op" in node.target
            found = (f for f in forms(inner, node.name, second=step == 1) if RANKS[f[0]] < rank(node))
            if (form := next(found, None)) is not None:
                patches.append(Patch(edits=(_call(path, node.name, form, overload=overload),)))
    # Each node is needed by now, so the chance is small that all of them can be replaced.
    count = len(patches)
    return Proposal(tuple(patches), lambda: sweep(range(count)))


def _call(path: Path, node: str, form: Form, *, overload: bool) -> Become:
    name, args, kwargs = form
    if not overload:
        if name == "to":
            return Become(path, node, "call_method", "to", args, kwargs)
        return Become(path, node, "call_function", {"fn": f"torch.{name}"}, args, kwargs)
    if name == "to":
        args, kwargs = args[:1], {"dtype": args[1]}
    return Become(path, node, "call_function", {"op": f"aten::{_OVERLOADS.get(name, f'{name}.default')}"}, args, kwargs)


_OVERLOADS = {
    "add": "add.Tensor", "mul": "mul.Tensor", "eq": "eq.Tensor", "sum": "sum.dim_IntList", "any": "any.dims",
    "reshape": "view.default", "to": "_to_copy.default",
}  # fmt: skip


def forms(view: GraphView, name: str, *, second: bool) -> Iterator[Form]:
    """Plain calls that return a tensor of the shape and dtype of ``name``, the likeliest to do first."""
    result = view.tensor(name)
    if result is None or result.layout != "strided":
        return
    given = [(s, spec) for s in view.inputs[name] if (spec := view.tensor(s)) is not None]
    if not given:
        if not second:
            kwargs = {"dtype": {"dtype": result.dtype}, "device": {"device": result.device}}
            yield "zeros", (list(result.shape),), kwargs
        return
    for (a, one), (b, two) in pairwise(given):
        if one.dtype == two.dtype and _broadcast(one.shape, two.shape) == result.shape:
            if result.dtype == one.dtype:
                yield "mul" if second else "add", ({"ref": a}, {"ref": b}), {}
            elif result.dtype == "bool" and not second:
                yield "eq", ({"ref": a}, {"ref": b}), {}
    for source, spec in given:
        yield from _of_one({"ref": source}, spec, result, second)


def _of_one(source: Value, spec: TensorSpec, result: TensorSpec, second: bool) -> Iterator[Form]:
    if spec.shape == result.shape:
        if spec.dtype != result.dtype:
            if not second:
                yield "to", (source, {"dtype": result.dtype}), {}
        elif spec.dtype == "bool":
            if not second:
                yield "logical_not", (source,), {}
        else:
            yield "relu" if second else "neg", (source,), {}
    elif spec.dtype == result.dtype:
        if prod(spec.shape) == prod(result.shape):
            if not second:
                yield "reshape", (source, list(result.shape)), {}
        elif (reduced := _reduced(spec.shape, result.shape)) is not None:
            dims, keepdim = reduced
            plain = "amax" if second or spec.dtype in _INTEGERS else "sum"
            yield "any" if spec.dtype == "bool" else plain, (source, list(dims), *((True,) if keepdim else ())), {}


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    short, long = sorted((a, b), key=len)
    filled = (1,) * (len(long) - len(short)) + short
    if any(x != y and 1 not in (x, y) for x, y in zip(filled, long, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(filled, long, strict=True))


def _reduced(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[tuple[int, ...], bool] | None:
    """The dimensions that a reduction from ``before`` to ``after`` removes, and whether it keeps them with size 1.

    None if no reduction does that.
    """
    if len(before) == len(after):
        if all(a in (1, b) for b, a in zip(before, after, strict=True)):
            return tuple(i for i, (b, a) in enumerate(zip(before, after, strict=True)) if a != b), True
        return None
    left = list(after)
    gone = []
    for i, size in enumerate(before):
        if left and left[0] == size:
            left.pop(0)
        else:
            gone.append(i)
    return None if left else (tuple(gone), False)
