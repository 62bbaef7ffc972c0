"""Judge the values of two results, for `backends.comparison.compare`.

A value is divergent if its distance from the float64 result is more than ten times what the tolerance, eager's own
error and the perturbed inputs allow: a compiler may use another algorithm, whose error is a few times eager's.
The tolerance counts once instead of ten times in a strict comparison, and where a person gave it for the dtype.
`Judgement.let_pass` returns what counting it ten times lets pass. If eager has the float64 value wherever the results
differ, the larger of two limits counts: ten times the tolerance, and twice what perturbed inputs change at most.
Integers and booleans must agree exactly, unless perturbed inputs change them too (an argmax over a tie). If few values
differ, more perturbed runs are made, because a value next to a step may be on either side of it by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

from ...store.failure import FACTOR
from ...store.text import count
from ..running.execution import is_plain

#: The multiple of the allowed error that is a divergence without a float64 reference; `FACTOR` is the one with it.
FACTOR_UNREFERENCED = 1000.0
#: The multiple of what perturbed inputs move that is a divergence where eager has the float64 value.
_PERTURBED = 2.0
#: If at most one of this number of values differs, more perturbed runs are made.
_VALUES_PER_OUTLIER = 100
#: Of results with more values only those are looked at that may be divergent, and at most so many of them.
MANY = 1 << 22
#: Values whose errors are computed at a time.
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Judged:
    """A divergence in ``count`` of ``of`` values. ``kind`` is ``value``, ``nan`` or ``inf``.

    ``error`` is the largest absolute error of the divergent values, ``eager`` the largest one of eager. ``allowed`` is
    the error that would have been allowed at the worst value (0 for integers and booleans). ``undefined``: eager has no
    finite number at any of them. ``about``: only some of very many values were counted.
    """

    kind: str
    count: int
    of: int
    error: float
    eager: float
    allowed: float
    undefined: bool = False
    about: bool = False

    def elements(self) -> str:
        """In how many values the results differ, in words."""
        return f"{'about ' if self.about else ''}{self.count} of {count(self.of, 'element')}"


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
    if e.numel() > MANY and e.dim():
        rows = max(1, MANY * e.shape[0] // e.numel())
        pieces = zip(e.split(rows), a.split(rows), strict=True)
        return all(close(x, y, tolerance) for x, y in pieces) if rows < e.shape[0] else close(e[0], a[0], tolerance)
    try:
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False)
    except AssertionError:
        return False
    return True


def is_same(e: Any, a: Any) -> bool:
    """Whether two results are the same memory."""
    return (
        is_plain(e)
        and is_plain(a)
        and e.data_ptr() == a.data_ptr() != 0
        and (e.dtype, e.shape, e.stride()) == (a.dtype, a.shape, a.stride())
        and (e.is_conj(), e.is_neg()) == (a.is_conj(), a.is_neg())
    )


class Judgement:
    """The judgement of the compiled result ``a``, eager's ``e``, while results of further runs come in.

    ``exact`` is the float64 result, ``repeated`` the result of a second eager run. `see` takes float64 results for
    perturbed inputs.
    """

    def __init__(
        self,
        e: torch.Tensor,
        a: torch.Tensor,
        exact: torch.Tensor,
        *,
        repeated: torch.Tensor | None = None,
        factor: float = FACTOR,
        tolerance: float | None = None,
        strict: bool = False,
    ) -> None:
        self.e, self.a, self.exact, self.factor, self.tolerance = e, a, exact, factor, tolerance
        results = _Results(e, a, exact, repeated, tolerance)
        margin = 1.0 if tolerance is not None or (strict and factor == FACTOR) else factor
        self._noise = _Noise(results, factor, margin) if e.is_floating_point() else None
        #: The values that are divergent after what was seen; None if that is not known yet.
        self._bad: torch.Tensor | None = None
        if self._noise is None:
            self._truth = exact.to(e.dtype)
            self._bad = (e != a) & (e == self._truth)

    def see(self, other: torch.Tensor) -> None:
        """Take the result of a run on perturbed inputs into account."""
        if self._noise is not None:
            self._noise.see(other)
            self._bad = None
        else:
            self._bad = self._divergent() & (other.to(self.e.dtype) == self.e)

    def differs(self) -> bool:
        """Whether a value is divergent after what was seen."""
        return bool(self._divergent().any())

    def is_in_doubt(self) -> bool:
        """Whether more perturbed runs may show that there is no divergence: few values differ, or integers do."""
        bad = self._divergent()
        few = self._noise is None or self._noise.number(bad) * _VALUES_PER_OUTLIER <= self.e.numel()
        return few and bool(bad.any())

    def judged(self) -> Judged | None:
        """Return the divergence, or None if the values agree."""
        bad = self._divergent()
        if not bool(bad.any()):
            return None
        if self._noise is not None:
            return self._noise.judged(bad)
        distance = (self.a.to(torch.float64) - self.e.to(torch.float64)).abs()
        wrong = float((self.e != self._truth).sum())
        return Judged("value", int(bad.sum()), self.e.numel(), float(distance[bad].max()), wrong, 0.0)

    def beyond_perturbed(self) -> Judged | None:
        """Return the divergence in values that lie further off than perturbed inputs move any value, or None.

        It is only meant for results where eager has the float64 value wherever they differ (`contradicted`): eager's
        error says nothing then, and the multiple of the noise that other results are allowed would let real errors pass
        in short dtypes.
        """
        return None if self._noise is None else self._noise.beyond_perturbed()

    def let_pass(self) -> float:
        """The largest error of a value that a strict comparison would report and this one does not, as a multiple of
        what `torch.testing.assert_close` allows. 0.0 without an error, and for very large results (unknown).
        """
        return 0.0 if self._noise is None else self._noise.let_pass()

    def _divergent(self) -> torch.Tensor:
        if self._bad is None and self._noise is not None:
            self._bad = self._noise.bad()
        assert self._bad is not None
        return self._bad


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
    """Return the difference of results that `Judgement` accepts, if eager agrees with float64 wherever they differ.

    Then the result is ill-conditioned: ``x % 3`` of a large ``x``. The arguments are the arguments of `Judgement`.
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


@dataclass(frozen=True, slots=True, eq=False)
class _Results:
    """The results of one place: eager's, the compiled, the float64 and the repeated one, and a person's tolerance."""

    e: torch.Tensor
    a: torch.Tensor
    exact: torch.Tensor
    repeated: torch.Tensor | None
    tolerance: float | None

    def pieces(self) -> Iterator[tuple[int, _Errors]]:
        """The errors of some values after the other, each time with the index of the first."""
        for begin in range(0, self.e.numel(), _PIECE):
            yield begin, _Errors(self, slice(begin, begin + _PIECE))


class _Errors:
    """The errors of those values of ``results`` that ``chosen`` chooses, all if it is None."""

    def __init__(self, results: _Results, chosen: slice | torch.Tensor | None) -> None:
        def of(t: torch.Tensor) -> torch.Tensor:
            return t if chosen is None else t.reshape(-1)[chosen]

        e, a, exact, tolerance = of(results.e), of(results.a), of(results.exact), results.tolerance
        rounded = exact.to(e.dtype)
        self.chosen, self.dtype = chosen, e.dtype
        self.kinds = _class(e), _class(a), _class(rounded)
        #: Values where eager and compiled differ in being finite, NaN or an infinity, and eager agrees with float64.
        self.unlike = (self.kinds[0] != self.kinds[1]) & (self.kinds[2] == self.kinds[0])
        rtol, atol = default_tolerances(rounded) if tolerance is None else (tolerance, tolerance)
        wide, compiled, self.exact = (t.to(torch.float64) for t in (e, a, exact))
        self.finite = wide.isfinite() & compiled.isfinite() & self.exact.isfinite()
        self.unit = atol + rtol * self.exact.abs()
        self.error, self.zero = (compiled - self.exact).abs(), self.exact.new_zeros(())
        self.eager = torch.where(self.finite, (wide - self.exact).abs(), self.zero)
        self.worse = self.error > self.eager
        if results.repeated is not None:
            again = (of(results.repeated).to(torch.float64) - self.exact).abs()
            self.eager = torch.where(self.finite & again.isfinite(), torch.maximum(self.eager, again), self.eager)
        self.moved = self.zero

    def see(self, other: torch.Tensor) -> None:
        other = other if self.chosen is None else other.reshape(-1)[self.chosen]
        self.unlike &= _class(other.to(self.dtype)) == self.kinds[2]
        wide = other.double()
        step = torch.where(self.finite & wide.isfinite(), (wide - self.exact).abs(), self.zero)
        self.moved = torch.maximum(self.moved, step)

    def beyond(self, allowed: torch.Tensor) -> torch.Tensor:
        """The values that are divergent if so much is ``allowed``."""
        return self.unlike | (self.finite & self.worse & (self.error > allowed))


class _Noise:
    """The error that is allowed for each value, after each further run.

    Of very many values, only possible divergences are examined, or some of these. The typical noise then comes from
    a sample of all values.
    """

    def __init__(self, results: _Results, factor: float, margin: float) -> None:
        self.of, self.factor, self.margin = results.e.numel(), factor, margin
        self.step, self.largest = 1, 0.0
        if self.of <= MANY:
            self.errors = self.typical = _Errors(results, None)
            return
        suspects = []
        for begin, errors in results.pieces():
            self.largest = max(self.largest, float(errors.eager.max()))
            suspects.append(errors.beyond(self.margin * errors.unit).nonzero().flatten() + begin)
        found = torch.cat(suspects)
        self.step = max(1, -(-found.numel() // MANY))
        self.errors = _Errors(results, found[:: self.step])
        self.typical = _Errors(results, torch.arange(0, self.of, -(-self.of // MANY), device=results.e.device))

    def see(self, other: torch.Tensor) -> None:
        self.errors.see(other)
        if self.typical is not self.errors:
            self.typical.see(other)

    def let_pass(self) -> float:
        errors = self.errors
        if self.typical is not errors:  # only values that are beyond the margin were looked at
            return 0.0
        missed = errors.beyond(self.allowed(1.0)) & ~self.bad() & (errors.unit > 0)
        times = torch.where(missed & errors.finite, errors.error / errors.unit, errors.zero)
        return float(times.max()) if times.numel() else 0.0

    def allowed(self, margin: float | None = None) -> torch.Tensor:
        """The allowed error of each value, if the tolerance counts ``margin`` times."""
        errors, typical = self.errors, self.typical
        noise = errors.eager + errors.moved
        if float(typical.unit.min()) > 0 if typical.unit.numel() else False:
            some = typical.exact != 0  # most gradients of an embedding are zeros, and exact
            usual = _typical((typical.eager / typical.unit)[some]) + _typical((typical.moved / typical.unit)[some])
            noise = noise + usual * errors.unit
        return (self.margin if margin is None else margin) * errors.unit + self.factor * noise

    def bad(self) -> torch.Tensor:
        return self.errors.beyond(self.allowed())

    def beyond_perturbed(self) -> Judged | None:
        errors = self.errors
        if self.typical is not errors or not bool((errors.unit > 0).all()):
            return None
        most = (errors.moved / errors.unit).max()  # few runs move a single value by chance far or hardly at all
        allowed = (_PERTURBED * most).clamp(min=self.margin) * errors.unit
        bad = errors.beyond(allowed)
        return self.judged(bad, allowed) if bool(bad.any()) else None

    def number(self, bad: torch.Tensor) -> int:
        """The number of values that are ``bad``."""
        return int(bad.sum()) * self.step

    def judged(self, bad: torch.Tensor, limits: torch.Tensor | None = None) -> Judged:
        errors, number, about = self.errors, self.number(bad), self.step > 1
        eager = self.largest if self.typical is not errors else float(errors.eager.max())
        unlike = bad & errors.unlike
        if bool(unlike.any()):
            nan = bool(((errors.kinds[0] == 1) | (errors.kinds[1] == 1))[unlike].any())
            kind = "nan" if nan else "inf"
            undefined = bool((errors.kinds[0][bad] != 0).all())
            return Judged(kind, number, self.of, float("nan" if nan else "inf"), eager, 0.0, undefined, about)
        error = torch.where(bad & errors.finite, errors.error, errors.zero)
        worst = int(error.argmax())
        allowed = float((self.allowed() if limits is None else limits).flatten()[worst])
        return Judged("value", number, self.of, float(error.max()), eager, allowed, False, about)


def _class(t: torch.Tensor) -> torch.Tensor:
    """The class of each value: 0 for finite ones, 1 for NaN, 2 and 3 for the infinities."""
    return t.isnan().to(torch.int8) + 2 * t.isposinf().to(torch.int8) + 3 * t.isneginf().to(torch.int8)


def _typical(errors: torch.Tensor) -> torch.Tensor:
    """Return the 90th percentile of ``errors``, or 0 if it is empty."""
    flat = errors.flatten()
    return flat.kthvalue(max(1, int(0.9 * flat.numel()))).values if flat.numel() else flat.sum()
