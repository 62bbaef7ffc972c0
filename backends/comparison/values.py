"""Do two results agree, as far as eager itself can be trusted? The numbers behind `backends.comparison.compare`.

A value is divergent if it is further from the float64 result than ten times what the tolerance, eager's own error and
the perturbed inputs allow. A tolerance that a person gave for the type counts once instead of ten times. Integers and
booleans must agree exactly, except where shaking the inputs changes them too (an argmax over a tie). Where few values
differ more perturbed runs are made: a value next to a step falls to one side of it by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

#: How many times the allowed error counts as divergence, with a float64 reference and without one.
FACTOR = 10.0
FACTOR_UNREFERENCED = 1000.0
#: Of so many values one or fewer differ: more perturbed runs are asked.
_FEW = 100


@dataclass(frozen=True, slots=True)
class Judged:
    """``kind`` is ``value``, ``nan`` or ``inf``; ``error`` the largest absolute error of the ``count`` divergent ones,
    ``eager`` eager's own, ``allowed`` what would have passed at the worst of them (0 for exact types)."""

    kind: str
    count: int
    of: int
    error: float
    eager: float
    allowed: float


def numbers(t: Any) -> torch.Tensor:
    """Plain dense numbers to compare: complex as pairs of reals, sparse and quantized ones unpacked."""
    if not isinstance(t, torch.Tensor):
        return torch.tensor(t)
    t = t.detach()
    if t.is_quantized:
        t = t.dequantize()
    if t.layout is not torch.strided:
        t = t.to_dense()
    t = t.resolve_conj().resolve_neg()
    return torch.view_as_real(t) if t.is_complex() else t


def tolerance_of(value: Any, tolerances: Mapping[str, float]) -> float | None:
    """What a person allowed for the type of ``value``, a tensor or a number of Python."""
    name = str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "float64"
    return tolerances.get(name)


def close(e: torch.Tensor, a: torch.Tensor, tolerance: float | None = None) -> bool:
    """What `torch.testing.assert_close` says of two results of one type and shape, NaN being equal to NaN."""
    if not e.is_floating_point():
        tolerance = None
    try:
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False)
    except AssertionError:
        return False
    return True


def judge(
    e: torch.Tensor,
    a: torch.Tensor,
    exact: torch.Tensor,
    perturbed: Sequence[torch.Tensor],
    more: Callable[[], Iterable[torch.Tensor]],
    *,
    repeated: torch.Tensor | None = None,
    factor: float = FACTOR,
    tolerance: float | None = None,
) -> Judged | None:
    """Which values of ``a`` diverge from eager's ``e``, if any do. ``exact`` is the truth, ``perturbed`` and ``more()``
    are what it becomes for other inputs, ``repeated`` is a second eager run."""
    if e.is_floating_point():
        noise = _Noise(e, a, exact, repeated, factor, tolerance)
        noise.see(perturbed)
        bad = noise.bad()
        if bool(bad.any()) and int(bad.sum()) * _FEW <= bad.numel():
            for other in more():
                noise.see([other])
                if not (bad := noise.bad()).any():
                    break
        return noise.judged(bad) if bool(bad.any()) else None
    truth = exact.to(e.dtype)
    bad = (e != a) & (e == truth)
    for other in perturbed:
        bad &= other.to(e.dtype) == e
    if bool(bad.any()):
        for other in more():
            bad &= other.to(e.dtype) == e
            if not bad.any():
                break
    if not bad.any():
        return None
    distance = (a.to(torch.float64) - e.to(torch.float64)).abs()
    return Judged("value", int(bad.sum()), e.numel(), float(distance[bad].max()), float((e != truth).sum()), 0.0)


class _Noise:
    """What may be expected of each value, learned from more and more runs."""

    def __init__(
        self,
        e: torch.Tensor,
        a: torch.Tensor,
        exact: torch.Tensor,
        repeated: torch.Tensor | None,
        factor: float,
        tolerance: float | None,
    ) -> None:
        rounded = exact.to(e.dtype)
        self.kinds = _class(e), _class(a), _class(rounded)
        #: Where one is finite and the other is not, or both are infinite with other signs: is eager right?
        self.unlike = (self.kinds[0] != self.kinds[1]) & (self.kinds[2] == self.kinds[0])
        self.dtype, self.factor, self.margin = e.dtype, factor, factor if tolerance is None else 1.0
        rtol, atol = default_tolerances(rounded) if tolerance is None else (tolerance, tolerance)
        self.e, self.a, self.r = (t.to(torch.float64) for t in (e, a, exact))
        self.finite = self.e.isfinite() & self.a.isfinite() & self.r.isfinite()
        self.unit = atol + rtol * self.r.abs()
        self.zero = torch.zeros_like(self.r)
        self.eager = torch.where(self.finite, (self.e - self.r).abs(), self.zero)
        if repeated is not None:
            again = (repeated.to(torch.float64) - self.r).abs()
            self.eager = torch.where(self.finite & again.isfinite(), torch.maximum(self.eager, again), self.eager)
        self.moved = self.zero

    def see(self, perturbed: Iterable[torch.Tensor]) -> None:
        for other in perturbed:
            self.unlike &= _class(other.to(self.dtype)) == self.kinds[2]
            wide = other.double()
            step = torch.where(self.finite & wide.isfinite(), (wide - self.r).abs(), self.zero)
            self.moved = torch.maximum(self.moved, step)

    def allowed(self) -> torch.Tensor:
        noise = self.eager + self.moved
        if float(self.unit.min()) > 0 if self.unit.numel() else False:
            typical = _typical(self.eager / self.unit) + _typical(self.moved / self.unit)
            noise = noise + typical * self.unit
        return self.margin * self.unit + self.factor * noise

    def bad(self) -> torch.Tensor:
        error = (self.a - self.r).abs()
        worse = error > torch.where(self.finite, (self.e - self.r).abs(), self.zero)
        return self.unlike | (self.finite & worse & (error > self.allowed()))

    def judged(self, bad: torch.Tensor) -> Judged:
        finite = bad & self.finite
        eager = float(self.eager.max())
        unlike = bad & self.unlike
        if bool(unlike.any()):
            nan = bool(((self.kinds[0] == 1) | (self.kinds[1] == 1))[unlike].any())
            kind = "nan" if nan else "inf"
            return Judged(kind, int(bad.sum()), bad.numel(), float("nan" if nan else "inf"), eager, 0.0)
        error = torch.where(finite, (self.a - self.r).abs(), self.zero)
        worst = int(error.argmax())
        allowed = float(self.allowed().flatten()[worst])
        return Judged("value", int(bad.sum()), bad.numel(), float(error.max()), eager, allowed)


def _class(t: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 and 3 the infinities."""
    return t.isnan().int() + 2 * t.isposinf().int() + 3 * t.isneginf().int()


def _typical(errors: torch.Tensor) -> torch.Tensor:
    """The error that nine of ten elements stay below."""
    flat = errors.flatten()
    return flat.kthvalue(max(1, int(0.9 * flat.numel()))).values if flat.numel() else flat.sum()
