"""Captures made by hand: `record` stores a graph module and its inputs as a row.

It serves graphs that no program at hand compiles: from ``torch.export``, from a test of the backend, from a file of
another tool. The row has the same form as every capture; nothing is pickled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ...store.failure import Phase
from ..provenance import origin
from ..running import devices
from ..running.exceptions import differentiates, failure_of
from .graph_snapshot import GraphSnapshot, KeptInputs, flat
from .hook import capturing
from .recorder import STORED, CaptureRecorder
from .refusal import refusal


def record(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    backend: str | Callable[..., Any],
    db: str = "repro.db",
    error: BaseException | None = None,
    phase: str = "compile",
    check: bool = False,
) -> int | None:
    """Add a capture of ``backend`` called on ``gm`` with ``inputs`` to ``db``. Returns its id.

    ``torch.compile(gm, backend=backend)`` is called once with ``inputs``. Its failure is stored and not raised. If
    nothing fails, nothing is stored and the result is None, as it is where ``db`` is a server. ``check`` also compares
    with eager. ``error`` is what the backend raised earlier in ``phase`` (``compile``, ``forward`` or ``backward``);
    then nothing is run, and ``inputs`` are the values of the placeholders, or a structure of them.

    Raises `TypeError` if ``gm`` is no graph module, `ValueError` for an unknown phase, and what
    ``torch.compile`` raises before it calls the backend.
    """
    if not isinstance(gm, fx.GraphModule):
        raise TypeError(f"record takes a torch.fx.GraphModule, not {type(gm).__name__}")
    before = len(STORED)
    if error is not None:
        at = Phase(phase)
        values = tree_leaves(list(inputs))
        snapshot = GraphSnapshot.take(flat(gm), values)
        kept, rng = snapshot.inputs or KeptInputs.keep(values), devices.generators(devices.used(values))
        failure, backward = failure_of(error, at), at is Phase.BACKWARD
        CaptureRecorder(str(db)).record(
            snapshot,
            lambda: origin.spec_of(backend),
            kept,
            rng,
            failure,
            backward=backward,
            eager=partial(refusal, snapshot, kept, rng, failure, backward=backward or differentiates(error)),
        )
    else:
        with capturing(str(db), check=check):
            try:
                # A copy: what Dynamo has compiled of `gm` before, it would call again without asking the backend.
                torch.compile(fx.GraphModule(gm, copy.deepcopy(gm.graph)), backend=backend)(*inputs)
            except Exception:
                if len(STORED) == before:
                    raise
    stored = STORED[-1] if len(STORED) > before else None
    return stored if isinstance(stored, int) else None
