"""Captures made by hand: `record` stores the failures of one call of a function, a module or a graph module.

It serves an interactive session in which something has just failed, and graphs that no program at hand compiles: from
``torch.export``, from a test of the backend, from a file of another tool. A row has the same form as every capture;
nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ...store.failure import Phase
from ..provenance import origin
from ..running import devices
from ..running.exceptions import differentiates, failure_of
from ..running.execution import private
from ..running.tracing_state import TracingState
from . import seam
from .graph_snapshot import GraphSnapshot, KeptInputs, flat
from .hook import CapturedBackend, CaptureTarget, capture, capturing, observed
from .recorder import STORED, CaptureRecorder
from .refusal import refusal
from .settings import Settings


def record(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    backend: str | Callable[..., Any],
    db: str = "repro.db",
    error: BaseException | None = None,
    phase: str = "compile",
    check: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    backward: bool = False,
    **compiling: Any,
) -> int | None:
    """Add the failures of ``backend`` in one call to ``db``. Returns the id of the first, None without a failure.

    ``function`` is what `torch.compile` takes: a function, a module, or a graph module. It is compiled with ``backend``
    and with ``compiling``, which are ``options``, ``mode``, ``dynamic`` and ``fullgraph`` of `torch.compile`. It is
    called with ``inputs`` and ``kwargs``. With ``backward`` the sum of its results is differentiated. A failure is
    stored and not raised. Then a function is called once more, with each graph on which the backend fails left to
    eager, so that its other graphs are tried. ``check`` also compares with eager.

    ``error`` is what the backend raised earlier for a graph module, in ``phase`` (``compile``, ``forward`` or
    ``backward``). Then nothing is run, and ``inputs`` are the values of the placeholders, or a structure of them.

    The result is also None where ``db`` is a server. Raises `TypeError` for an ``error`` without a graph module,
    `ValueError` for an unknown phase, and what ``torch.compile`` or eager raise where no backend is at fault.
    """
    before = len(STORED)
    if error is not None:
        if not isinstance(function, fx.GraphModule):
            raise TypeError(f"with an error record takes a torch.fx.GraphModule, not {type(function).__name__}")
        _store(function, inputs, backend, str(db), error, Phase(phase))
    else:

        def call(backend: Callable[..., Any]) -> None:
            results = torch.compile(function, backend=backend, **compiling)(*inputs, **(kwargs or {}))
            if backward:
                leaves = [t for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
                torch.autograd.backward([t.sum() for t in leaves])

        failed = False
        try:
            call(capture(backend, db=str(db), check=check))
        except Exception:
            failed = len(STORED) > before
            if not failed:
                raise
        if failed and not isinstance(function, fx.GraphModule):  # not above: exceptions there would be a cause
            with capturing(str(db), check=check), suppress(Exception):  # of a later call of a graph: it is stored
                call(_OrEager(backend, CaptureTarget(str(db), Settings())))
    stored = STORED[before] if len(STORED) > before else None
    return stored if isinstance(stored, int) else None


def _store(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    backend: str | Callable[..., Any],
    db: str,
    error: BaseException,
    phase: Phase,
) -> None:
    """Store ``error``, which ``backend`` raised for ``gm``."""
    values = tree_leaves(list(inputs))
    snapshot = GraphSnapshot.take(flat(gm), values)
    kept, rng = snapshot.inputs or KeptInputs.keep(values), devices.generators(devices.used(values))
    failure, backward = failure_of(error, phase), phase is Phase.BACKWARD
    CaptureRecorder(db).record(
        snapshot,
        lambda: origin.spec_of(backend),
        kept,
        rng,
        failure,
        backward=backward,
        eager=partial(refusal, snapshot, kept, rng, failure, backward=backward or differentiates(error)),
    )


class _OrEager(CapturedBackend):
    """A backend, and eager for each graph that it does not compile. It is another backend for Dynamo, which calls again
    what it has made of the same code for the same backend."""

    is_deliberate = True

    def __call__(self, gm: Any, inputs: Any, **given: Any) -> Any:
        before = TracingState()
        try:
            return observed(self._backend, private(gm), inputs, given, db="", without_guards=lambda exc: False)
        except Exception as exc:
            if seam.is_control_flow(exc):
                raise
            before.restore()
            return gm.forward
