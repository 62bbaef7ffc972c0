"""Check candidates with subgraphs against torch's own rules. Imports torch.

Eager runs a ``cond`` whose branch returns its operand, or a ``while_loop`` whose body writes to one. Dynamo and
AOTAutograd refuse them: results of a subgraph must not alias its operands, operands must not be written to, and
branches must return the same form. So a candidate is compiled as far as AOTAutograd, without any backend and without a
run. If torch refuses even the best case, which is known to fail in a backend, the check decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Never

import torch
import torch._dynamo
from torch._dynamo.backends.debugging import aot_eager

from ...backends.provenance.spec import BackendSpec
from ...repro_templates.source.higher_order import has_public_form
from ...store.document.case import Case
from ...store.live.build import build
from ...store.live.modes import as_it_was
from ..candidate.validity import zeros
from .source_function import source_function
from .validity import context


class _Traced(Exception):
    """AOTAutograd has accepted the graph."""


def obeyed(cases: Sequence[Case]) -> list[bool]:
    """For each of ``cases`` whether Dynamo and AOTAutograd accept it.

    This runs code of the case while it is traced, so call it in a worker. It restores the random state of the process.
    """
    state = torch.get_rng_state()
    try:
        return [_is_accepted(case) for case in cases]
    finally:
        torch._dynamo.reset()
        torch.set_rng_state(state)


def _is_accepted(case: Case) -> bool:
    """Return whether torch traces ``case`` as a program calls it, or with the recorded operators."""
    case = replace(case, tensors=tuple(map(zeros, case.tensors)))
    return _is_traced(case, public=True) or (has_public_form(case.graph) and _is_traced(case, public=False))


def _is_traced(case: Case, *, public: bool) -> bool:
    torch._dynamo.reset()
    try:
        _, inputs = build(case, {})
        _, function = source_function(case, {}, public=public)
        compiled: Callable[..., Any] = torch.compile(
            function, backend=_stops, dynamic=BackendSpec.from_json(case.backend).dynamic
        )
        with context(case), as_it_was():
            compiled(*inputs)
    except Exception as exc:  # noqa: BLE001  whatever torch raises, it refuses the candidate
        return _ended_by(exc)
    return True  # there was nothing to compile


def _stops(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Never:
    aot_eager(graph, inputs)
    raise _Traced


def _ended_by(error: BaseException | None) -> bool:
    """Return whether `_Traced` is among the causes of ``error``."""
    while error is not None and not isinstance(error, _Traced):
        error = getattr(error, "inner_exception", None) or error.__cause__
    return error is not None
