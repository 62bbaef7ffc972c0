"""Ask the judges that PyTorch's triage asks about a difference, each with its usual tolerances.

They are `torch.testing.assert_close`, and `torch._dynamo.utils.same` with a float64 reference, which PyTorch's own
accuracy minifier uses. The error against float64 is given in units in the last place, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import config
from torch._dynamo.utils import same

from ..running.execution import Run
from .reference import Place


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """The judges about the result at ``where``.

    ``assert_close`` and ``same`` say whether it passes; ``same`` is None without a float64 run. ``units`` is the
    largest error against float64 in units in the last place of its dtype, in three digits or ``inf``; ``eager_units``
    is the error of eager.
    """

    where: str
    assert_close: bool
    same: bool | None = None
    units: str | None = None
    eager_units: str | None = None


def places(run: Run) -> list[Place]:
    """The places of the results of ``run`` that have floating-point values."""
    groups: tuple[tuple[Any, Sequence[Any]], ...] = (("outputs", run.outputs), ("gradients", run.gradients or ()))
    return [
        Place(group, i)
        for group, values in groups
        for i, value in enumerate(values)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided
    ]


def judged(expected: Run, actual: Run, exact: Run | None) -> list[JudgedResult]:
    """Judge the results of ``actual`` that have the form of eager's; ``exact`` is the float64 run, if there is one."""
    found = []
    for place in places(expected):
        e, a = place.read(expected), place.read(actual)
        if not isinstance(a, torch.Tensor) or (a.shape, a.dtype, a.device) != (e.shape, e.dtype, e.device):
            continue
        e, a = e.detach(), a.detach()
        r = None if exact is None else place.read(exact)
        if not isinstance(r, torch.Tensor) or r.shape != e.shape:
            found.append(JudgedResult(str(place), _is_close(a, e)))
            continue
        r = r.detach()
        passes = same(e, a, r, tol=config.repro_tolerance, equal_nan=True, log_error=lambda *_: None)
        found.append(JudgedResult(str(place), _is_close(a, e), bool(passes), _units(a, r), _units(e, r)))
    return found


def _is_close(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(actual, expected)
    except AssertionError:
        return False
    return True


def _units(value: torch.Tensor, exact: torch.Tensor) -> str:
    """The largest distance of ``value`` from ``exact`` in units in the last place of the dtype of ``value``."""
    if not value.numel():
        return "0"
    about = torch.finfo(value.dtype)
    _, exponent = torch.frexp(exact.double().abs().nan_to_num().clamp(min=about.smallest_normal))
    unit = torch.ldexp(torch.full(exponent.shape, about.eps, dtype=torch.float64, device=exact.device), exponent - 1)
    wide = value.double()
    equal = (wide == exact) | (wide.isnan() & exact.isnan())
    distance = ((wide - exact.double()).abs() / unit).nan_to_num(nan=torch.inf, posinf=torch.inf)
    return f"{float(torch.where(equal, 0.0, distance).max()):.3g}"
