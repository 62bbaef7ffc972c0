"""The audit of operators, and the command that lists its findings: ``python tests/shared/audit.py``.

Calls come from torch's operator database. Each becomes a graph of one node, decomposed as AOTAutograd would, and
runs like a graph of a user: on ONNX Runtime if possible, else as an island. The command runs every operator without
the lists in `fxminify.backends.shipped.onnxrt.partition` and prints what they must contain; it takes a quarter of
an hour.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from operators import Call, recorded
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fxminify.backends.shipped.onnxrt import decompositions, exporter, partition
from fxminify.backends.shipped.onnxrt.compiler import Compilation
from fxminify.backends.shipped.onnxrt.options import OnnxrtOptions


def graph_of(op: Any, args: Any, kwargs: Any, table: dict[Any, Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Return a call as an ATen graph of its tensors, and the tensors."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def call(*given: torch.Tensor) -> list[Any]:
        rest = iter(given)
        again = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(again, spec)
        return list(pytree.tree_leaves(op(*args, **kwargs)))

    return make_fx(call, decomposition_table=table, tracing_mode="fake")(*tensors), tensors


def difference(actual: Any, expected: Any) -> str:
    """Describe the difference of a result to eager's, or return an empty text. None is an unrequested result."""
    if not isinstance(expected, torch.Tensor):
        return "" if actual is None or actual == expected else f"{actual} for {expected}"
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype} {list(actual.shape)} for {expected.dtype} {list(expected.shape)}"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    same = torch.allclose(actual.to(wide), expected.to(wide), rtol=2e-3, atol=2e-4, equal_nan=True)
    return "" if same else "other numbers"


def audit(calls: dict[Any, list[Call]], table: dict[Any, Any]) -> dict[str, str]:
    """Operators with a wrong result, and how it is wrong."""
    wrong = {}
    for op, several in calls.items():
        for args, kwargs, expected in several:
            graph, tensors = graph_of(op, args, kwargs, table)
            run: Callable[..., Any] = Compilation(graph, "inference", OnnxrtOptions(), {}).run()
            actual = run([t.clone() for t in tensors])
            said = [difference(a, e) for a, e in zip(actual, pytree.tree_leaves(expected), strict=True)]
            if any(said):
                wrong[partition.name(op)] = "; ".join(filter(None, said))
    return wrong


def everything(names: list[str] | None = None) -> dict[Any, list[Call]]:
    """Calls of every operator that torchlib has a function for or that is core; of entries called ``names`` alone."""
    found = recorded(names or None)
    return {op: calls for op, calls in found.items() if exporter.is_registered(op) or torch.Tag.core in op.tags}


def unlisted(names: list[str] | None = None) -> dict[str, str]:
    """Audit the operators without the lists and without decompositions. Return the failures by operator."""
    calls = everything(names)
    listed, when = dict(partition.WRONG), dict(partition.WRONG_WHEN)
    partition.WRONG.clear()
    partition.WRONG_WHEN.clear()
    try:
        return audit(calls, decompositions.table("none"))
    finally:
        partition.WRONG.update(listed)
        partition.WRONG_WHEN.update(when)


def main() -> None:
    """``python tests/shared/audit.py [ENTRY OF THE DATABASE]...``"""
    torch.set_num_threads(1)
    wrong = unlisted(sys.argv[1:])
    for name, said in sorted(wrong.items()):
        where = "WRONG" if name in partition.WRONG else "WRONG_WHEN" if name in partition.WRONG_WHEN else "NOT LISTED"
        print(f"{where:<10}  {name}: {said}")
    for name in sorted({*partition.WRONG, *partition.WRONG_WHEN} - set(wrong)):
        print(f"not seen    {name}")


if __name__ == "__main__":
    main()
