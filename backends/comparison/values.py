"""Judge the values of two results, for `backends.comparison.compare`.

A value is divergent if its distance from the float64 result is more than ten times what the tolerance, eager's own
error and the perturbed inputs allow. A tolerance that a person gave for the dtype counts once instead of ten times.
Integers and booleans must agree exactly, unless perturbed inputs change them too (an argmax over a tie). If few values
differ, more perturbed runs are made, because a value next to a step may be on either side of it by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

#: The multiple of the allowed error that is a divergence, with a float64 reference and without one.
FACTOR = 10.0
FACTOR_UNREFERENCED = 1000.0
#: If at most one of so many values differs, more perturbed runs are made.
_FEW = 100


@dataclass(frozen=True, slots=True)
class Judged:
    """A divergence in ``count`` of ``of`` values. ``kind`` is ``value``, ``nan`` or ``inf``.

    ``error`` is the largest absolute error of the divergent values, ``eager`` the largest one of eager. ``allowed`` is
    the error that would have been allowed at the worst value (0 for integers and booleans). ``undefined``: eager has no
    finite number at any of them.
    """

    kind: str
    count: int
    of: int
    error: float
    eager: float
    allowed: float
    undefined: bool = False


def numbers(t: Any) -> torch.Tensor:
    """``t`` as a plain dense tensor, complex numbers as pairs of reals."""
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
    """The tolerance that a person gave for the dtype of ``value``, a tensor or a Python number; else None."""
    name = str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "float64"
    return tolerances.get(name)


def close(e: torch.Tensor, a: torch.Tensor, tolerance: float | None = None) -> bool:
    """Whether `torch.testing.assert_close` accepts two results of one dtype and shape. NaN equals NaN."""
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
    """The divergence of the compiled result ``a`` from eager's ``e``, None if there is none.

    ``exact`` is the float64 result, ``perturbed`` and ``more()`` are float64 results for perturbed inputs, and
    ``repeated`` is the result of a second eager run.
    """
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


@dataclass(frozen=True, slots=True)
class IllConditioned:
    """A difference that perturbed inputs make, too, although eager has the float64 result wherever it differs.

    ``eager`` and ``compiled`` are the values that differ most.
    """

    eager: float
    compiled: float
    judged: Judged


def contradicted(
    e: torch.Tensor, a: torch.Tensor, exact: torch.Tensor, tolerance: float | None = None
) -> IllConditioned | None:
    """The difference of results that `judge` accepts, if eager agrees with float64 wherever they differ.

    Then the result is ill-conditioned: ``x % 3`` of a large ``x``. Arguments are those of `judge`.
    """
    truth = exact.to(e.dtype)
    right = (e == truth) | ((e != e) & (truth != truth))
    rtol, atol = default_tolerances(e) if tolerance is None else (tolerance, tolerance)
    differs = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True) if e.is_floating_point() else a != e
    if not bool(differs.any()) or not bool(right[differs].all()):
        return None
    distance = torch.where(differs, (a.double() - e.double()).abs().nan_to_num(nan=torch.inf), -1.0)
    worst = int(distance.argmax())
    judged = Judged("value", int(differs.sum()), e.numel(), float(distance.max()), 0.0, 0.0)
    return IllConditioned(e.flatten()[worst].item(), a.flatten()[worst].item(), judged)


class _Noise:
    """The error that is allowed for each value, after each further run."""

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
        #: Values where eager and compiled differ in being finite, NaN or an infinity, and eager agrees with float64.
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
            undefined = bool((self.kinds[0][bad] != 0).all())
            return Judged(kind, int(bad.sum()), bad.numel(), float("nan" if nan else "inf"), eager, 0.0, undefined)
        error = torch.where(finite, (self.a - self.r).abs(), self.zero)
        worst = int(error.argmax())
        allowed = float(self.allowed().flatten()[worst])
        return Judged("value", int(bad.sum()), bad.numel(), float(error.max()), eager, allowed)


def _class(t: torch.Tensor) -> torch.Tensor:
    """The class of each value: 0 for finite ones, 1 for NaN, 2 and 3 for the infinities."""
    return t.isnan().int() + 2 * t.isposinf().int() + 3 * t.isneginf().int()


def _typical(errors: torch.Tensor) -> torch.Tensor:
    """The 90th percentile of ``errors``, 0 if there are none."""
    flat = errors.flatten()
    return flat.kthvalue(max(1, int(0.9 * flat.numel()))).values if flat.numel() else flat.sum()
