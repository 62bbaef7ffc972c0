"""The suite ``ops``: every operator of torch's own operator database (``op_db``), on the database's samples.

A program is one entry of the database in one dtype. Its calls are a draw from the samples of the entry. Samples are
made with seeded generators, so a program has the same calls in every process; with seed 0 they are the database's own.
An entry with a variant has a name such as ``linalg.norm.subgradients_at_zero``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from ..programs import PreparedProgram, Program, Selection
from .seeding import seed_all

#: Operators whose results have no defined values; only their shapes, dtypes and strides count.
_UNDEFINED = frozenset(
    {
        "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
        "resize_as_",
    }
)  # fmt: skip
#: The most samples of an entry that are looked at. Few entries have more.
_MOST = 400


class Operators:
    """Torch's operator database as a `fxminify.minifier.hunting.programs.Suite`."""

    def programs(self, wanted: Selection) -> Iterator[Program]:
        product = itertools.product(wanted.dtypes, wanted.gradient, wanted.dynamic, wanted.layouts)
        modes = list(product)
        for name, entry in entries().items():
            if not wanted.has(name):
                continue
            for dtype, gradient, dynamic, layout in modes:
                if _supports(entry, getattr(torch, dtype), gradient, torch.device(wanted.device).type):
                    yield Program(
                        "ops", name, dtype, gradient, dynamic, layout, wanted.seed, wanted.calls, wanted.device
                    )

    def prepare(self, program: Program) -> PreparedProgram:
        entry = entries()[program.name]
        seed_all(program.seed)
        made = entry.sample_inputs(
            program.device, getattr(torch, program.dtype), requires_grad=program.gradient, set_seed=program.seed == 0
        )
        samples = list(itertools.islice(made, _MOST))
        chosen = _drawn(len(samples), program)
        calls = []
        for sample in (samples[i] for i in chosen):
            given = sample.noncontiguous() if program.layout == "noncontiguous" else sample
            calls.append(((given.input, *given.args), dict(given.kwargs)))
        return PreparedProgram(_function(entry.op, entry.name in _UNDEFINED), calls, program.gradient)


def _drawn(total: int, program: Program) -> list[int]:
    """Indices of the samples of ``program``: the first ones with seed 0, else a draw."""
    if total <= program.calls:
        return list(range(total))
    if program.seed == 0:
        return list(range(program.calls))
    key = f"{program.seed} {program.name} {program.dtype}"
    return sorted(random.Random(key).sample(range(total), program.calls))


@cache
def entries() -> dict[str, Any]:
    """The entries of the database by name."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {".".join(filter(None, (entry.name, entry.variant_test_name))): entry for entry in op_db}


def _supports(entry: Any, dtype: torch.dtype, gradient: bool, device: str) -> bool:
    """Return whether the database has samples of ``dtype`` on devices of the type ``device``."""
    if gradient:
        return entry.supports_autograd and dtype in entry.supported_backward_dtypes(device)
    return dtype in entry.supported_dtypes(device)


def _function(op: Any, undefined: bool) -> Any:
    def program(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    def zeros(*args: Any, **kwargs: Any) -> Any:
        return torch.zeros_like(op(*args, **kwargs))

    return zeros if undefined else program


suite = Operators()
