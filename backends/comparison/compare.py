"""Compare two runs of one graph. A divergence is only reported if the results of eager are reliable.

Compilers reorder arithmetic, so a difference need not be a bug. If results differ by more than
`torch.testing.assert_close` allows, a `Reference` is computed: runs of the graph in eager mode and float64, also with
every input changed by a few units in the last place. Then `backends.comparison.values` judges each value. If a backend
computes everything in a shorter dtype (`fxminify.backends.comparison.precision`), that is a class of its own.

Every output, changed input and gradient is compared. The first divergence in the order of `CLASSES` is reported, with
the others beside it. A result cannot be judged if it differs between two eager runs, or if it depends on random numbers
and the backend may have drawn others: it has drawn the same if it leaves torch's generator where eager leaves it. The
other results are compared nevertheless. If they agree, `compare` raises `CannotCompare`.

The method is that of https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/utils.py (``same``, with a float64
reference), but the condition of the graph is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from ...store.failure import (
    DETACHED,
    ILL_CONDITIONED,
    NOT_FINITE,
    PRECISION,
    ROUNDING,
    UNDEFINED,
    Failure,
    Phase,
    divergence,
    precision_message,
)
from ...store.text import count
from ..running.execution import Run, differentiable
from .reference import Drawn, Reference
from .values import FACTOR, FACTOR_UNREFERENCED, Judged, close, contradicted, judge, numbers, tolerance_of

#: Classes of divergences; of several divergences, the first class is reported. ``nan``, ``inf``, ``value`` and
#: ``number`` (a result that is no tensor) have the same rank: the first result counts, as in
#: `torch.testing.assert_close`.
CLASSES = (
    "structure", "dtype", "shape", "nan", "inf", "value", "number", "stride", "alias", "mutation", "gradient",
    ILL_CONDITIONED, PRECISION,
)  # fmt: skip
_RANK = {name: CLASSES.index("value" if name in ("nan", "inf", "number") else name) for name in CLASSES}
#: The compiled, the float64 and the eager result as numbers, and a function that finds the result in another run.
Evidence = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Callable[[Run], Any]]


class CannotCompare(Exception):
    """The results differ, or may differ, and cannot be judged. The message says why."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One divergence: its class, its place (``output 0``, ``input 2``, ``gradient of input 1``) and its details.

    ``others`` are further divergences of the same call.
    """

    kind: str
    where: str
    message: str
    phase: Phase = Phase.FORWARD
    detail: dict[str, Any] = field(default_factory=dict)
    others: tuple[Divergence, ...] = ()

    def failure(self) -> Failure:
        return divergence(self._entry(), [other._entry() for other in self.others])

    def _entry(self) -> dict[str, Any]:
        return {
            "class": self.kind, "where": self.where, "phase": str(self.phase), "message": self.message, **self.detail
        }  # fmt: skip


def compare(
    expected: Run,
    actual: Run,
    reference: Reference | None = None,
    tolerances: Mapping[str, float] = MappingProxyType({}),
    short: Iterable[str] = (),
    ill: dict[str, str] | None = None,
    *,
    strict: bool = False,
    detached: bool = False,
) -> Divergence | None:
    """The divergence of ``actual`` from the eager run ``expected``, None if they agree.

    ``tolerances`` are absolute and relative tolerances by name of a dtype. ``short`` are the shorter dtypes in which
    the backend is known to compute. Without a reference the eager run is the truth, with a wide margin. ``ill`` is
    given, by place, what is said of differences that are no divergence because the result is ill-conditioned, although
    eager has the float64 result. If ``strict``, they are divergences. If ``detached``, it is one, too, that no output
    of ``actual`` has a gradient while one of eager has; else this cannot be compared, because a backend may be made
    for inference. Raises `CannotCompare`.
    """
    comparison = _Comparison(expected, actual, reference, tolerances, {} if ill is None else ill, strict)
    found = list(comparison.forward())
    if expected.gradients is not None and not any(f.kind in ("structure", "dtype", "shape") for f in found):
        found += comparison.backward()
    found = comparison.explained(found, {*short})
    if not found:
        if detached and (without := comparison.detached()) is not None:
            return without
        if comparison.doubts:
            raise comparison.doubts[0]
        return None
    first = min(found, key=lambda f: (f.phase is Phase.BACKWARD, _RANK[f.kind]) if f.kind != PRECISION else (2, 0))
    others = tuple(f for f in found if f is not first)
    return Divergence(first.kind, first.where, first.message, first.phase, first.detail, others)


class _Comparison:
    """One comparison. ``doubts`` has an exception for each result that could not be judged; the rest: see `compare`."""

    def __init__(
        self,
        expected: Run,
        actual: Run,
        reference: Reference | None,
        tolerances: Mapping[str, float],
        ill: dict[str, str],
        strict: bool,
    ) -> None:
        self.expected, self.actual, self.reference, self.tolerances = expected, actual, reference, tolerances
        self.ill, self.strict = ill, strict
        self.doubts: list[CannotCompare] = []
        self.evidence: dict[str, Evidence] = {}

    def forward(self) -> Iterator[Divergence]:
        expected, actual = self.expected, self.actual
        if len(expected.outputs) != len(actual.outputs) or expected.structure != actual.structure:
            yield Divergence("structure", "outputs", f"eager returns {expected.structure}, compiled {actual.structure}")
            return
        for i, (e, a) in enumerate(zip(expected.outputs, actual.outputs, strict=True)):
            yield from self._result("value", f"output {i}", e, a, partial(_at, group="outputs", index=i))
        for i, (e, a) in enumerate(zip(expected.outputs, actual.outputs, strict=True)):
            if _alike(e, a) and _strides(e) != _strides(a):
                yield _attribute("stride", f"output {i}", list(e.stride()), list(a.stride()))
        for i, owners in enumerate(zip(_owners(expected), _owners(actual), strict=True)):
            if owners[0] != owners[1]:
                yield _attribute("alias", f"output {i}", *owners)
        for i, (e, a) in enumerate(zip(expected.inputs, actual.inputs, strict=True)):
            yield from self._result("mutation", f"input {i}", e, a, partial(_at, group="inputs", index=i))

    def backward(self) -> Iterator[Divergence]:
        expected, actual = self.expected, self.actual
        if actual.gradients is None:
            self.doubts.append(CannotCompare("the compiled outputs have no gradient"))
            return
        roots = [(differentiable(e), differentiable(a)) for e, a in zip(expected.outputs, actual.outputs, strict=True)]
        for i, (wanted, there) in enumerate(roots):
            if wanted != there:
                yield _attached(f"output {i}", wanted)
        if any(wanted != there for wanted, there in roots):
            return  # each run had other gradients of its outputs
        for i, (e, a) in enumerate(zip(expected.gradients or (), actual.gradients, strict=True)):
            place = f"gradient of input {i}"
            if (e is None) != (a is None):
                given = a if e is None else e
                if given is not None and bool((given != 0).any()):
                    message = f"{place}: eager gives {_kind(e)}, compiled {_kind(a)}"
                    yield Divergence("gradient", place, message, Phase.BACKWARD)
            elif e is not None:
                read = partial(_at, group="gradients", index=i)
                yield from self._result("value", place, e, a, read, Phase.BACKWARD)

    def detached(self) -> Divergence | None:
        """The divergence that no compiled output has a gradient, if that is so and one of eager has."""
        if self.expected.gradients is None or self.actual.gradients is not None:
            return None
        place = next(f"output {i}" for i, e in enumerate(self.expected.outputs) if differentiable(e))
        found = _attached(place, True)
        return replace(found, detail={**found.detail, DETACHED: True})

    def _result(
        self, kind: str, place: str, e: Any, a: Any, read: Callable[[Run], Any], phase: Phase = Phase.FORWARD
    ) -> Iterator[Divergence]:
        """The divergence of one result, if there is one. ``read`` finds the result in another run."""
        if isinstance(e, torch.Tensor) != isinstance(a, torch.Tensor):
            message = f"{place}: eager gives {_kind(e)}, compiled {_kind(a)}"
            yield Divergence("structure", place, message, phase)
        elif isinstance(e, torch.Tensor) and e.dtype != a.dtype:
            yield _attribute("dtype", place, _dtype(e), _dtype(a), phase)
        elif isinstance(e, torch.Tensor) and e.shape != a.shape:
            yield _attribute("shape", place, list(e.shape), list(a.shape), phase)
        elif isinstance(e, torch.Tensor | bool | int | float | complex):
            yield from self._value(kind, place, e, a, read, phase)

    def _value(
        self, kind: str, place: str, expected: Any, actual: Any, read: Callable[[Run], Any], phase: Phase
    ) -> Iterator[Divergence]:
        e, a = numbers(expected), numbers(actual)
        tolerance = tolerance_of(expected, self.tolerances)
        if e.dtype != a.dtype or e.shape != a.shape or close(e, a, tolerance):
            return
        exact, perturbed, repeated, factor = e, list[torch.Tensor](), None, FACTOR_UNREFERENCED
        more: Callable[[], Iterable[torch.Tensor]] = partial(self._more, read, e.shape)
        reference = self.reference
        if reference is not None:
            repeated = numbers(read(reference.repeated))
            if repeated.shape != e.shape or not close(e, repeated, tolerance):
                self.doubts.append(CannotCompare(f"{place}: eager gives another result each time"))
                return
            random = reference.repeated.random and _is_drawn(reference.drawn, place)
            if random and not self._drew_the_same():
                message = f"{place}: differs, but it is random, and backends may draw other numbers"
                self.doubts.append(CannotCompare(message))
                return
            wide = [run for run in (reference.exact, *reference.perturbed) if run is not None]
            found = [numbers(r) for run in wide if (r := read(run)) is not None]
            if random and any(not torch.equal(run.generator, self.expected.generator) for run in wide):
                more = tuple  # float64 draws other numbers: its runs tell nothing
            elif reference.exact is not None and [r.shape for r in found] == [e.shape] * len(wide):
                exact, *perturbed = found
                factor = FACTOR
        judged = judge(e, a, exact, perturbed, more, repeated=repeated, factor=factor, tolerance=tolerance)
        if judged is None:
            if factor != FACTOR:
                self.doubts.append(CannotCompare(f"{place}: differs, but there is no float64 run to compare with"))
            elif (ill := contradicted(e, a, exact, tolerance)) is not None:
                said = (
                    f"eager and float64 give {ill.eager:.6g}, compiled {ill.compiled:.6g}, but inputs that differ in "
                    "the last place change the result as much"
                )
                if self.strict:
                    detail = {
                        **_figures(ill.judged, expected),
                        "eager": repr(ill.eager),
                        "compiled": repr(ill.compiled),
                    }
                    kind = ILL_CONDITIONED if kind == "value" else kind
                    yield Divergence(kind, place, f"{place}: {said}", phase, detail)
                else:
                    self.ill[place] = said
            return
        said = f"off by {judged.error:.3g} (eager by {judged.eager:.3g})"
        if kind == "value":
            kind = judged.kind if isinstance(expected, torch.Tensor) else "number"
        if kind == "value" and factor == FACTOR:
            self.evidence[place] = a, exact, e, read
        message = f"{place} is {said} in {judged.count} of {count(judged.of, 'element')}"
        yield Divergence(kind, place, message, phase, _figures(judged, expected))

    def explained(self, found: list[Divergence], known: set[str]) -> list[Divergence]:
        """``found``, with the class ``precision`` for values whose error is that of a shorter dtype.

        If one place shows the dtype, the size of the error suffices for the other places. Where too few errors show it,
        the class stays, and the details name the dtype.
        """
        if self.reference is None:
            return found
        explain, short, perhaps = self.reference.emulations.explain, dict[str, str](), dict[str, str]()
        for _ in range(2):
            for place in self.evidence.keys() - short:
                said, enough = explain(*self.evidence[place], known) or ("", False)
                if said:
                    (short if enough else perhaps)[place] = said
            if not short or known.issuperset(short.values()):
                break
            known.update(short.values())
        for i, one in enumerate(found):
            if one.where in short:
                found[i] = _precision(one, short[one.where])
            elif one.where in perhaps:
                found[i] = replace(one, detail={**one.detail, ROUNDING: perhaps[one.where]})
        return found

    def _drew_the_same(self) -> bool:
        """Whether the compiled call drew the random numbers that eager drew, as its generator shows."""
        if self.reference is None or not torch.equal(self.expected.generator, self.actual.generator):
            return False
        return self.reference.drawn.telling

    def _more(self, read: Callable[[Run], Any], shape: torch.Size) -> Iterator[torch.Tensor]:
        """The result in further runs on perturbed inputs."""
        if self.reference is not None and self.reference.exact is not None:
            found = (numbers(value) for run in self.reference.more() if (value := read(run)) is not None)
            yield from (value for value in found if value.shape == shape)


def _figures(judged: Judged, expected: Any) -> dict[str, Any]:
    """The details of a divergence of values."""
    detail: dict[str, Any] = {"error": repr(judged.error), "eager_error": repr(judged.eager)}
    detail |= {"allowed": repr(judged.allowed), "elements": judged.count, "of": judged.of}
    detail |= {UNDEFINED: judged.undefined} if judged.kind in NOT_FINITE else {}
    return detail | ({"dtype": _dtype(expected)} if isinstance(expected, torch.Tensor) else {})


def _precision(found: Divergence, short: str) -> Divergence:
    message = precision_message(found.where, found.message, found.detail["dtype"], short)
    return Divergence(PRECISION, found.where, message, found.phase, found.detail | {"as": short})


def _owners(run: Run) -> list[str]:
    """For each output, the input or earlier output whose storage it shares, as a text."""
    pairs = zip(run.aliases, run.shared, strict=True)
    return [f"input {i}" if i is not None else "no input" if o is None else f"output {o}" for i, o in pairs]


def _at(run: Run, group: str, index: int) -> Any:
    """One of the ``outputs``, ``inputs`` or ``gradients`` of a run, None if the group is empty or None."""
    values = getattr(run, group)
    return values[index] if values else None


def _attribute(kind: str, place: str, expected: Any, actual: Any, phase: Phase = Phase.FORWARD) -> Divergence:
    message = f"{place}: {kind} is {expected} in eager, {actual} compiled"
    return Divergence(kind, place, message, phase, {"expected": expected, "actual": actual})


def _attached(place: str, wanted: bool) -> Divergence:
    """The divergence that an output requires a gradient in one of the two runs only: that of eager if ``wanted``."""
    said = "a gradient in eager, and none compiled" if wanted else "no gradient in eager, and one compiled"
    there = ("one", "none") if wanted else ("none", "one")
    detail = {"expected": there[0], "actual": there[1]}
    return Divergence("gradient", place, f"{place} requires {said}", Phase.BACKWARD, detail)


def _dtype(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _alike(e: Any, a: Any) -> bool:
    return isinstance(e, torch.Tensor) and isinstance(a, torch.Tensor) and e.dtype == a.dtype and e.shape == a.shape


def _strides(t: torch.Tensor) -> list[int] | None:
    """Strides of the dimensions with more than one element; None for an empty tensor or a layout without strides."""
    if t.layout is not torch.strided or t.numel() == 0:
        return None
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1]


def _is_drawn(drawn: Drawn, place: str) -> bool:
    """Whether the result at ``place`` depends on random numbers. A gradient depends on all outputs."""
    where, _, index = place.rpartition(" ")
    if where == "output":
        return int(index) in drawn.outputs
    return int(index) in drawn.inputs if where == "input" else drawn.gradients
