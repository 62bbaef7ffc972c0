"""``fxminify_torchscript``: `torch.jit.script`, and `torch.jit.optimize_for_inference` where no gradient is asked for.

Dynamo hands out lazily compiled graph modules, which ``torch.jit.script`` cannot read (torch's own ``ts`` backend
before torch 2.14 fails on every graph for that reason); a plain copy of the module is scripted instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..running.execution import private, trains
from .options_reader import read

NAME = "fxminify_torchscript"


@dataclass(frozen=True, slots=True)
class TorchScriptOptions:
    """The options of the backend, which are empty."""


def optimize_for_inference(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Script ``gm``; freeze and optimize it where its inputs need no gradient. Raises what TorchScript raises."""
    read(TorchScriptOptions, options, NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is deprecated; a user who asks for it knows
        script: Any = torch.jit.script(private(gm, plain=True))
        if not trains(example_inputs):
            script = torch.jit.optimize_for_inference(script)
    return lambda *args: script(*args)
