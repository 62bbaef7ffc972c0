"""Check whether candidates are valid programs, without a backend and without recorded values. Imports torch.

Every candidate runs once, and its backward pass if it has one, with tensors of the right shapes and dtypes. Small
tensors are filled with zeros and the graph runs in eager mode. In other cases torch propagates shapes and dtypes
(`FakeTensorMode`) and computes nothing. Neither check depends on the recorded values. So a candidate counts as valid
unless torch refuses it. If torch refuses even ``base``, a case that is known to run, the check decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._pytree import tree_leaves

from ...backends.running.execution import differentiable
from ...store.document.case import Case, Graph, TensorSpec, target_name
from ...store.live.build import build
from ...store.live.modes import as_it_was
from ..candidate.validity import Way, zeros

#: With no more elements in all tensors, a run on zeros is exact and takes less time than fake tensors.
MOST_ELEMENTS = 1 << 16
#: What says that torch cannot propagate shapes here, not that the graph is wrong.
_UNKNOWN = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
    AssertionError,
    NotImplementedError,
)


def way(base: Case, *, live: list[object] | None = None) -> Way:
    """Choose how to check candidates made of ``base``, a case that is known to run."""
    if _loops(base.graph):  # on other values it may never end
        return Way.NONE
    if sum(spec.numel for spec in base.tensors) <= MOST_ELEMENTS and validity(Way.EAGER, [base], live=live) == [True]:
        return Way.EAGER
    return Way.FAKE if validity(Way.FAKE, [base], live=live) == [True] else Way.NONE


def validity(way: Way, candidates: Sequence[Case], *, live: list[object] | None = None) -> list[bool]:
    """Return for each candidate whether torch accepts it, or True if that cannot be decided.

    ``way`` must not be `Way.NONE`. This runs code of the case, so call it in a worker, or in process only for
    `fxminify.reduce`. It restores the random state of the process. ``live`` holds the objects of an in-process case.
    """
    accepts = _in_eager if way is Way.EAGER else _with_fake_tensors
    state = torch.get_rng_state()
    try:
        return [accepts(case, live) for case in candidates]
    finally:
        torch.set_rng_state(state)


def _loops(graph: Graph) -> bool:
    inner = (attr["graph"] for attr in graph.attrs.values() if "graph" in attr)
    return any(target_name(node) == "while_loop" for node in graph.compute) or any(map(_loops, inner))


def _in_eager(case: Case, live: list[object] | None) -> bool:
    try:
        _run(case, zeros, live, nullcontext)
    except Exception:  # noqa: BLE001  whatever torch raises, it refuses the candidate
        return False
    return True


def _with_fake_tensors(case: Case, live: list[object] | None) -> bool:
    try:
        _run(case, _empty, live, lambda: fake_tensor.FakeTensorMode(allow_non_fake_inputs=True))
    except _UNKNOWN:
        return True
    except Exception:  # noqa: BLE001  whatever torch raises, it refuses the candidate
        return False
    return True


def _run(
    case: Case,
    plain: Callable[[TensorSpec], TensorSpec],
    live: list[object] | None,
    mode: Callable[[], AbstractContextManager[Any]],
) -> None:
    """Run the graph of ``case`` in ``mode``, on tensors of torch's class that ``plain`` makes of the recorded ones."""
    tensors = (replace(plain(spec), subclass="", attributes={}) for spec in case.tensors)
    case = replace(case, tensors=tuple(tensors))
    gm, inputs = build(case, {}, live=live)
    with context(case), as_it_was(), mode():
        result = gm.forward(*inputs)  # a call of the module would print the errors of the graph
        if case.backward and (roots := [t for t in tree_leaves(result) if differentiable(t)]):
            torch.autograd.backward(roots, list(map(torch.ones_like, roots)))


def context(case: Case) -> AbstractContextManager[Any]:
    """The ambient state of ``case``, without its random state."""
    if not case.context:
        return nullcontext()
    from ...backends.running import ambient

    state = {name: value for name, value in case.context.items() if name != "rng"}
    applied: AbstractContextManager[Any] = ambient.applied(state, case.tensors, {})
    return applied


def _empty(spec: TensorSpec) -> TensorSpec:
    return spec if spec.parts or spec.layout != "strided" else replace(spec, storage=None, offset=0, init=None)
