"""A small module under one backend, forward and backward: ``python -m fxminify.backends.provenance.selftest NAME``.

The last line of standard output is the answer, ``{"result": str}``. `catalog.try_each` runs it in a process of its own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from ..adapters import fails_on_purpose
from .absent import absent


def run(name: str) -> str:
    """Return ``ok``, or the first failure as a short text."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    x = torch.randn(5, 4)
    try:
        compiled = torch.compile(module, backend=name)
        with torch.no_grad():
            if not _agree(compiled(x), module(x)):
                return "wrong numbers"
    except Exception as exc:  # noqa: BLE001  this is the answer
        return _failed(name, exc)
    try:
        pairs = zip(_gradients(compiled, module, x), _gradients(module, module, x), strict=True)
        if not all(_agree(a, b) for a, b in pairs):
            return "wrong gradients"
    except Exception as exc:  # noqa: BLE001  this is the answer
        return f"forward only: {_said(exc)}"
    return "ok"


def _failed(name: str, exc: Exception) -> str:
    """Whether the backend ``name``, which raised ``exc``, is not installed, fails on purpose, or just fails."""
    if why := absent(exc, name):
        return f"not installed: {why}"
    return f"{'fails on purpose' if fails_on_purpose(name) else 'fails'}: {_said(exc)}"


def _gradients(function: Any, module: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad()
    function(x).sum().backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def _agree(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-2, atol=1e-3)


def _said(exc: BaseException) -> str:
    """The type and the first line of the innermost exception."""
    exc = getattr(exc, "inner_exception", exc)
    lines = str(exc).strip().splitlines() or ["no message"]
    return f"{type(exc).__name__}: {lines[0]}"


if __name__ == "__main__":
    print(json.dumps({"result": run(sys.argv[1])}), flush=True)
