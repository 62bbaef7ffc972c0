"""Do two runs of one graph agree? A divergence is reported only where eager itself can be trusted.

Compilers reorder arithmetic, so results that differ are not yet a bug. Where they differ by more than
`torch.testing.assert_close` allows, a `Reference` is computed: the graph in eager and float64, twice more with every
input moved by a few units in the last place. A value is divergent if it is further from the float64 result than ten
times what the tolerance, eager's own error and the shaken inputs allow. Integers and booleans must agree exactly,
except where shaking the inputs changes them too (an argmax over a tie).

What cannot be judged (a result that random numbers reach, or that is another each time) does not hide the rest; if
nothing else is found it raises `CannotCompare`: it is never a pass.

Method: https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/utils.py (``same``, float64 reference), with the
condition of the graph measured instead of guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

from ..store.failure import Failure, Kind, Phase
from .execution import Run
from .randomness import Drawn
from .reference import Reference

#: In the order in which they are looked for; the first that is found names the divergence.
CLASSES = ("structure", "dtype", "shape", "value", "stride", "alias", "mutation")
#: How many times the allowed error counts as divergence, with a float64 reference and without one.
FACTOR = 10.0
FACTOR_UNREFERENCED = 1000.0


class CannotCompare(Exception):
    """The runs differ, or may differ, and nothing can be said about it."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One disagreement: its class, the place (``output 0``, ``input 2``, ``gradient of input 1``) and the evidence."""

    kind: str
    where: str
    message: str
    phase: Phase = Phase.FORWARD
    detail: dict[str, Any] = field(default_factory=dict)

    def failure(self) -> Failure:
        detail = {"class": self.kind, "where": self.where, **self.detail}
        return Failure(Kind.DIVERGENCE, self.phase, message=self.message, detail=detail)


def compare(expected: Run, actual: Run, reference: Reference | None = None) -> Divergence | None:
    """The first disagreement of ``actual`` with the eager run ``expected``, or None.

    Without a reference the eager run itself is taken for the truth, with a wide margin. Raises `CannotCompare`.
    """
    doubts: list[CannotCompare] = []
    found = _forward(expected, actual, reference, doubts)
    if found is None and expected.gradients is not None:
        found = _backward(expected, actual, reference, doubts)
    if found is None and doubts:
        raise doubts[0]
    return found


def _forward(
    expected: Run, actual: Run, reference: Reference | None, doubts: list[CannotCompare]
) -> Divergence | None:
    if len(expected.outputs) != len(actual.outputs) or expected.structure != actual.structure:
        return Divergence("structure", "outputs", f"eager returns {expected.structure}, compiled {actual.structure}")
    pairs = list(zip(expected.outputs, actual.outputs, strict=True))
    places = [f"output {i}" for i in range(len(pairs))]
    for place, (e, a) in zip(places, pairs, strict=True):
        if isinstance(e, torch.Tensor) != isinstance(a, torch.Tensor):
            return Divergence("structure", place, f"{place}: eager gives {_kind(e)}, compiled {_kind(a)}")
    tensor_pairs = [(i, e, a) for i, (e, a) in enumerate(pairs) if isinstance(e, torch.Tensor)]
    for kind, read in (("dtype", lambda t: str(t.dtype).removeprefix("torch.")), ("shape", lambda t: list(t.shape))):
        for i, e, a in tensor_pairs:
            if read(e) != read(a):
                return _attribute(kind, places[i], read(e), read(a))
    for i, (e, a) in enumerate(pairs):
        found = _value("value", places[i], e, a, reference, partial(_output, index=i), doubts)
        if found:
            return found
    for i, e, a in tensor_pairs:
        if _strides(e) != _strides(a):
            return _attribute("stride", places[i], list(e.stride()), list(a.stride()))
    for i, (e_owner, a_owner) in enumerate(zip(expected.aliases, actual.aliases, strict=True)):
        if e_owner != a_owner:
            return _attribute("alias", places[i], _owner(e_owner), _owner(a_owner))
    for i, (e, a) in enumerate(zip(expected.inputs, actual.inputs, strict=True)):
        found = _value("mutation", f"input {i}", e, a, reference, partial(_input, index=i), doubts)
        if found:
            return found
    return None


def _backward(
    expected: Run, actual: Run, reference: Reference | None, doubts: list[CannotCompare]
) -> Divergence | None:
    if actual.gradients is None:
        doubts.append(CannotCompare("the compiled outputs have no gradient"))
        return None
    for i, (e, a) in enumerate(zip(expected.gradients or (), actual.gradients, strict=True)):
        place = f"gradient of input {i}"
        if e is None or a is None:
            there = a if e is None else e
            if there is not None and bool((there != 0).any()):
                message = f"{place}: eager gives {_kind(e)}, compiled {_kind(a)}"
                return Divergence("structure", place, message, Phase.BACKWARD)
            continue
        if e.dtype != a.dtype:
            return _attribute("dtype", place, str(e.dtype), str(a.dtype), Phase.BACKWARD)
        if e.shape != a.shape:
            return _attribute("shape", place, list(e.shape), list(a.shape), Phase.BACKWARD)
        read = partial(_gradient, index=i)
        found = _value("value", place, e, a, reference, read, doubts, Phase.BACKWARD)
        if found:
            return found
    return None


def _owner(index: int | None) -> str:
    return "no input" if index is None else f"input {index}"


def _output(run: Run, index: int) -> Any:
    return run.outputs[index]


def _input(run: Run, index: int) -> Any:
    return run.inputs[index]


def _gradient(run: Run, index: int) -> torch.Tensor | None:
    return run.gradients[index] if run.gradients else None


def _attribute(kind: str, place: str, expected: Any, actual: Any, phase: Phase = Phase.FORWARD) -> Divergence:
    message = f"{place}: {kind} is {expected} in eager, {actual} compiled"
    return Divergence(kind, place, message, phase, {"expected": expected, "actual": actual})


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _strides(t: torch.Tensor) -> list[int] | None:
    """Strides of the dimensions in which there is a step to take; None for a layout without strides."""
    if t.layout is not torch.strided or t.numel() == 0:
        return None
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1]


def _value(
    kind: str,
    place: str,
    expected: Any,
    actual: Any,
    reference: Reference | None,
    read: Callable[[Run], Any],
    doubts: list[CannotCompare],
    phase: Phase = Phase.FORWARD,
) -> Divergence | None:
    """Compare one result; ``read`` finds the same result in another run. What cannot be judged joins ``doubts``."""
    if not isinstance(expected, torch.Tensor | bool | int | float | complex):
        return None
    e, a = _numbers(expected), _numbers(actual)
    if e.dtype != a.dtype or e.shape != a.shape or _close(e, a):
        return None
    exact, shaken, factor = e, list[torch.Tensor](), FACTOR_UNREFERENCED
    if reference is not None:
        if not _close(e, _numbers(read(reference.repeated))):
            doubts.append(CannotCompare(f"{place}: eager gives another result each time"))
            return None
        if reference.repeated.random and _is_drawn(reference.drawn, place):
            doubts.append(CannotCompare(f"{place}: differs, but it is random, and backends may draw other numbers"))
            return None
        runs = [read(run) for run in (reference.exact, *reference.shaken) if run is not None]
        numbers = [_numbers(r) for r in runs if r is not None]
        if reference.exact is not None and [r.shape for r in numbers] == [e.shape] * len(runs):
            exact, *shaken = numbers
            factor = FACTOR
    bad, error, eager_error = _divergent(e, a, exact, shaken, factor)
    count = int(bad.sum())
    if not count:
        if factor != FACTOR:
            doubts.append(CannotCompare(f"{place}: differs, but there is no float64 run to compare with"))
        return None
    message = f"{place}: {count} of {e.numel()} elements differ, error {error:.3g} (eager's own {eager_error:.3g})"
    detail = {"error": repr(error), "eager_error": repr(eager_error), "elements": count, "of": e.numel()}
    return Divergence(kind, place, message, phase, detail)


def _is_drawn(drawn: Drawn, place: str) -> bool:
    """Do random numbers reach ``place``? Gradients are of all outputs together."""
    where, _, index = place.rpartition(" ")
    if where == "output":
        return int(index) in drawn.outputs
    return int(index) in drawn.inputs if where == "input" else drawn.gradients


def _numbers(t: Any) -> torch.Tensor:
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


def _close(e: torch.Tensor, a: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(a, e, equal_nan=True, check_stride=False)
    except AssertionError:
        return False
    return True


def _divergent(
    e: torch.Tensor, a: torch.Tensor, exact: torch.Tensor, shaken: Sequence[torch.Tensor], factor: float
) -> tuple[torch.Tensor, float, float]:
    """Which elements diverge, the largest error among them and eager's largest finite error."""
    if not e.is_floating_point():
        bad = (e != a) & (e == exact.to(e.dtype))
        for other in shaken:
            bad &= other.to(e.dtype) == e
        return bad, float((e != a).sum()), float((e != exact.to(e.dtype)).sum())
    # Where one is finite and the other is not, or both are infinite with other signs: is eager right?
    rounded = exact.to(e.dtype)
    unlike = _class(e) != _class(a)
    bad = unlike & (_class(rounded) == _class(e))
    for other in shaken:
        bad &= _class(other.to(e.dtype)) == _class(rounded)
    e, a, r = (t.to(torch.float64) for t in (e, a, exact))
    finite = e.isfinite() & a.isfinite() & r.isfinite()
    rtol, atol = default_tolerances(rounded)
    unit = atol + rtol * r.abs()
    zero = torch.zeros_like(r)
    error = torch.where(finite, (a - r).abs() / unit, zero)
    eager = torch.where(finite, (e - r).abs() / unit, zero)
    moved = zero
    for other in shaken:
        step = torch.where(finite & other.isfinite(), (other.double() - r).abs() / unit, zero)
        moved = torch.maximum(moved, step)
    allowed = factor * (1 + eager + moved + _typical(eager) + _typical(moved))
    bad |= finite & (error > allowed) & ((a - r).abs() > (e - r).abs())
    worst = torch.where(bad, (a - r).abs(), zero)
    worst = torch.where(bad & ~worst.isfinite(), torch.full_like(worst, float("inf")), worst)
    largest = float(worst.max()) if bad.numel() else 0.0
    return bad, largest, float(torch.where(finite, (e - r).abs(), zero).max()) if bad.numel() else 0.0


def _class(t: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 and 3 the infinities."""
    return t.isnan().int() + 2 * t.isposinf().int() + 3 * t.isneginf().int()


def _typical(errors: torch.Tensor) -> torch.Tensor:
    """The error that nine of ten elements stay below."""
    flat = errors.flatten()
    return flat.kthvalue(max(1, int(0.9 * flat.numel()))).values if flat.numel() else flat.sum()
