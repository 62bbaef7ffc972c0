"""The suite ``modules``: every module of torch's own module database (``module_db``), on the database's inputs.

A program is one module class in one dtype. Its calls are the first inputs of the database, each with a module that is
constructed for it. With gradients the modules are in training mode; without, their parameters require none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from ..programs import PreparedProgram, Program, Selection
from .seeding import seed_all


class Modules:
    """Torch's module database as a `fxminify.minifier.hunting.programs.Suite`."""

    def programs(self, wanted: Selection) -> Iterator[Program]:
        modes = list(itertools.product(wanted.dtypes, wanted.gradient, wanted.dynamic))
        for name, entry in entries().items():
            supported = entry.supported_dtypes(torch.device(wanted.device).type)
            for dtype, gradient, dynamic in modes if wanted.has(name) else ():
                if getattr(torch, dtype) in supported:
                    yield Program(
                        "modules", name, dtype, gradient, dynamic, seed=wanted.seed, calls=wanted.calls,
                        device=wanted.device,
                    )  # fmt: skip

    def prepare(self, program: Program) -> PreparedProgram:
        entry = entries()[program.name]
        seed_all(program.seed)
        inputs = entry.module_inputs_func(
            entry, device=program.device, dtype=getattr(torch, program.dtype), requires_grad=program.gradient,
            training=program.gradient,
        )  # fmt: skip
        modules, calls = [], []
        for number, given in enumerate(inputs[: program.calls]):
            made = entry.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
            module = made.to(program.device, getattr(torch, program.dtype)).train(program.gradient)
            modules.append(module if program.gradient else module.requires_grad_(False))
            calls.append(((number, *given.forward_input.args), dict(given.forward_input.kwargs)))

        def call(number: int, *args: Any, **kwargs: Any) -> Any:
            return modules[number](*args, **kwargs)

        return PreparedProgram(call, calls, program.gradient)


@cache
def entries() -> dict[str, Any]:
    """The entries of the database by name."""
    from torch.testing._internal.common_modules import module_db

    return {entry.name: entry for entry in module_db}


suite = Modules()
