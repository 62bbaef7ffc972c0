"""Compare two runs of one graph. A divergence is only reported if the results of eager are reliable.

Compilers reorder arithmetic, so a difference need not be a bug. If results differ by more than
`torch.testing.assert_close` allows, a `Reference` is computed: runs of the graph in eager mode and float64, also
with every input changed by a few units in the last place. Then `backends.comparison.values` judges each value. If a
backend computes everything in a shorter dtype (`fxminify.backends.comparison.precision`), that is a class of its
own.

Every output, changed input and gradient is compared. The first divergence in the order of `CLASSES` is reported,
with the others beside it. A result cannot be judged if it differs between two eager runs, or if it depends on
random numbers and the backend may have drawn others: it has drawn the same if it leaves torch's generator where
eager leaves it. The other results are compared nevertheless. If they agree, `CannotCompare` is raised.

The method follows https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/utils.py (``same``, with a float64
reference), but the condition of the graph is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

from ...store.failure import (
    DETACHED,
    EAGER_NAN,
    FACTOR,
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
from ..running.execution import Run, differentiable, same_states
from .precision import Emulations, Evidence
from .reference import Drawn, Place, Reference
from .values import (
    FACTOR_UNREFERENCED,
    Judged,
    Judgement,
    close,
    contradicted,
    is_same,
    numbers,
    tolerance_of,
)

#: The most values that are judged together where storages are shared.
JUDGED = 1 << 25
#: Classes of divergences; of several divergences, the first class is reported. ``nan``, ``inf``, ``value`` and
#: ``number`` (a result that is no tensor) have the same rank: the first result counts, as in
#: `torch.testing.assert_close`.
CLASSES = (
    "structure", "dtype", "shape", "nan", "inf", "value", "number", "stride", "alias", "mutation", "gradient",
    ILL_CONDITIONED, PRECISION,
)  # fmt: skip
_RANK = {name: CLASSES.index("value" if name in ("nan", "inf", "number") else name) for name in CLASSES}


class CannotCompare(Exception):
    """The results differ, or may differ, and cannot be judged. The message says why, and begins with the place."""

    def __init__(self, reason: str, place: Place | None = None) -> None:
        super().__init__(reason if place is None else f"{place}: {reason}")
        self.place = place


@dataclass(frozen=True, slots=True)
class Accepted:
    """Differences that `torch.testing.assert_close` refuses, and that are no divergences unless the comparison is
    strict, by place: ``ill``, the words about ill-conditioned results, and ``times``, the multiple of what
    `torch.testing.assert_close` allows."""

    ill: dict[str, str] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence: its class, its place (``output 0``, ``input 2``, ``gradient of input 1``) and its details.

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


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """A result to be judged, because it differs by more than `torch.testing.assert_close` allows.

    ``e`` and ``a`` are eager's result and the compiled one as numbers. ``dtype`` is the dtype of eager's result,
    None if it is not a tensor.
    """

    kind: str
    place: Place
    e: torch.Tensor
    a: torch.Tensor
    dtype: torch.dtype | None
    tolerance: float | None
    phase: Phase

    def judgement(self, exact: Any, repeated: Run, *, strict: bool) -> Judgement:
        """The judgement with the float64 result ``exact``; without it if that is None or of another shape."""
        wide = None if exact is None else numbers(exact)
        if wide is None or wide.shape != self.e.shape:
            return self.unreferenced(repeated)
        again = numbers(self.place.read(repeated))
        return Judgement(self.e, self.a, wide, repeated=again, tolerance=self.tolerance, strict=strict)

    def unreferenced(self, repeated: Run | None = None) -> Judgement:
        """The judgement with eager's result as the truth."""
        again = None if repeated is None else numbers(self.place.read(repeated))
        return Judgement(
            self.e, self.a, self.e, repeated=again, factor=FACTOR_UNREFERENCED, tolerance=self.tolerance
        )  # fmt: skip

    def see(self, judgement: Judgement, value: Any) -> bool:
        """Let ``judgement`` see the result of a run on perturbed inputs. False if it is None or of another shape."""
        if value is None or (wide := numbers(value)).shape != self.e.shape:
            return False
        judgement.see(wide)
        return True


class Differences:
    """The differences of ``actual`` from the eager run ``expected``. It keeps the results that are to be judged, and
    nothing else of the runs.

    * ``tolerances`` are absolute and relative tolerances by name of a dtype.
    * If ``detached``, it is a divergence if no output of ``actual`` has a gradient while one of eager has.
      Otherwise this cannot be compared, because a backend may be made for inference.
    """

    def __init__(
        self,
        expected: Run,
        actual: Run,
        tolerances: Mapping[str, float] = MappingProxyType({}),
        *,
        detached: bool = False,
    ) -> None:
        self._tolerances = tolerances
        self._doubts: list[CannotCompare] = []
        self._generators = expected.generators, actual.generators
        self._detached = _detached(expected, actual) if detached else None
        found = list(self._forward(expected, actual))
        if expected.gradients is not None and not any(f.kind in ("structure", "dtype", "shape") for f in found):
            found += self._backward(expected, actual)
        self._found = found
        self._nan = bool(found) and _has_nan(expected)

    def _forward(self, expected: Run, actual: Run) -> Iterator[Divergence | _Open]:
        if len(expected.outputs) != len(actual.outputs) or expected.structure != actual.structure:
            yield Divergence("structure", "outputs", f"eager returns {expected.structure}, compiled {actual.structure}")
            return
        for i, (e, a) in enumerate(zip(expected.outputs, actual.outputs, strict=True)):
            yield from self._result("value", Place("outputs", i), e, a)
        for i, (e, a) in enumerate(zip(expected.outputs, actual.outputs, strict=True)):
            if _alike(e, a) and _strides(e) != _strides(a):
                yield _attribute("stride", f"output {i}", list(e.stride()), list(a.stride()))
        for i, owners in enumerate(zip(_owners(expected), _owners(actual), strict=True)):
            if owners[0] != owners[1]:
                yield _attribute("alias", f"output {i}", *owners)
        for i, (e, a) in enumerate(zip(expected.inputs, actual.inputs, strict=True)):
            if i in actual.overwritten:
                yield _overwritten(Place("inputs", i), a)
            else:
                yield from self._result("mutation", Place("inputs", i), e, a)

    def _backward(self, expected: Run, actual: Run) -> Iterator[Divergence | _Open]:
        if actual.gradients is None:
            self._doubts.append(CannotCompare("the compiled outputs have no gradient"))
            return
        roots = [(differentiable(e), differentiable(a)) for e, a in zip(expected.outputs, actual.outputs, strict=True)]
        for i, (wanted, there) in enumerate(roots):
            if wanted != there:
                yield _attached(f"output {i}", wanted)
        if any(wanted != there for wanted, there in roots):
            return  # each run had other gradients of its outputs
        for i, (e, a) in enumerate(zip(expected.gradients or (), actual.gradients, strict=True)):
            place = Place("gradients", i)
            if (e is None) != (a is None):
                given = a if e is None else e
                if given is not None and bool((given != 0).any()):
                    message = f"{place}: eager gives {_kind(e)}, compiled {_kind(a)}"
                    yield Divergence("gradient", str(place), message, Phase.BACKWARD)
            elif e is not None:
                yield from self._result("value", place, e, a, Phase.BACKWARD)

    def _result(
        self, kind: str, place: Place, e: Any, a: Any, phase: Phase = Phase.FORWARD
    ) -> Iterator[Divergence | _Open]:
        """Yield the differences in one result."""
        if isinstance(e, torch.Tensor) != isinstance(a, torch.Tensor):
            message = f"{place}: eager gives {_kind(e)}, compiled {_kind(a)}"
            yield Divergence("structure", str(place), message, phase)
        elif isinstance(e, torch.Tensor) and e.dtype != a.dtype:
            yield _attribute("dtype", str(place), _dtype(e.dtype), _dtype(a.dtype), phase)
        elif isinstance(e, torch.Tensor) and e.shape != a.shape:
            yield _attribute("shape", str(place), list(e.shape), list(a.shape), phase)
        elif isinstance(e, torch.Tensor | bool | int | float | complex) and not is_same(e, a):
            x, y, tolerance = numbers(e), numbers(a), tolerance_of(e, self._tolerances)
            if x.dtype == y.dtype and x.shape == y.shape and not close(x, y, tolerance):
                dtype = e.dtype if isinstance(e, torch.Tensor) else None
                yield _Open(kind, place, x, y, dtype, tolerance, phase)

    def unequal(self) -> list[str]:
        """The places of results that `torch.testing.assert_close` refuses, whether or not they are divergences."""
        return [str(each.place) for each in self._found if isinstance(each, _Open)]

    def judged(
        self,
        reference: Reference | None = None,
        short: Iterable[str] = (),
        accepted: Accepted | None = None,
        *,
        strict: bool = False,
    ) -> Divergence | None:
        """The divergence, None if the runs agree. Raises `CannotCompare`.

        Without a reference the eager run is the truth, with a wide margin. ``short`` are the shorter dtypes in which
        the backend is known to compute. ``accepted`` is filled with differences that are no divergences.
        If ``strict``, they are divergences.
        """
        judge = _Judge(reference, self._generators, self._doubts, accepted or Accepted(), strict)
        found = judge.judged(self._found, {*short})
        if not found:
            if self._detached is not None:
                return self._detached
            if self._doubts:
                raise self._doubts[0]
            return None
        first = min(found, key=lambda f: (f.phase is Phase.BACKWARD, _RANK[f.kind]) if f.kind != PRECISION else (2, 0))
        others = tuple(f for f in found if f is not first)
        detail = {**first.detail, EAGER_NAN: True} if self._nan else first.detail
        return Divergence(first.kind, first.where, first.message, first.phase, detail, others)


def _has_nan(run: Run) -> bool:
    """Whether a result, a gradient or an input after the call has NaN in it."""
    values = (*run.outputs, *(run.gradients or ()), *run.inputs)
    floating = (t for t in values if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()))
    with torch.no_grad():
        return any(t.layout is torch.strided and bool(torch.isnan(t.sum())) for t in floating)


class _Judge:
    """Judges results that differ. ``doubts`` gets an exception for each that cannot be judged; the rest: see
    `Differences.judged`."""

    def __init__(
        self,
        reference: Reference | None,
        generators: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]],
        doubts: list[CannotCompare],
        accepted: Accepted,
        strict: bool,
    ) -> None:
        self.reference, self.generators, self.doubts = reference, generators, doubts
        self.accepted, self.strict = accepted, strict
        self.evidence: dict[Place, Evidence] = {}

    def judged(self, found: Sequence[Divergence | _Open], short: set[str]) -> list[Divergence]:
        """The divergences in ``found``, in their order."""
        verdicts = self._verdicts([each for each in found if isinstance(each, _Open)])
        divergences = [each if isinstance(each, Divergence) else verdicts.get(each.place) for each in found]
        return self._explained([each for each in divergences if each is not None], short)

    def _verdicts(self, results: Sequence[_Open]) -> dict[Place, Divergence]:
        """The divergences among ``results``."""
        found: dict[Place, Divergence] = {}
        doubts: list[CannotCompare] = []
        for batch in self._batches(results):
            for result, judgement in self._judgements(batch, doubts):
                verdict = self._verdict(result, judgement, doubts)
                if verdict is not None:
                    found[result.place] = verdict
            if found:
                break
        order = {result.place: i for i, result in enumerate(results)}
        self.doubts[:0] = sorted(doubts, key=lambda doubt: order.get(doubt.place, 0) if doubt.place else 0)
        return found

    def _batches(self, results: Sequence[_Open]) -> Iterator[list[_Open]]:
        """``results`` in their order. Where storages are shared, only few values are judged at a time, and none after
        the first divergence."""
        batch: list[_Open] = []
        for result in results:
            large = self.reference is not None and self.reference.shared.numbers
            if batch and large and sum(r.e.numel() for r in (*batch, result)) > JUDGED:
                yield batch
                batch = []
            batch.append(result)
        if batch:
            yield batch

    def _judgements(self, results: Sequence[_Open], doubts: list[CannotCompare]) -> Iterator[tuple[_Open, Judgement]]:
        """Yield each result that can be judged with its judgement, one at a time; ``doubts`` gets the others."""
        reference = self.reference
        if reference is None:
            yield from ((r, r.unreferenced()) for r in results)
            return
        steady, repeated = self._steady(reference, results, doubts)
        places = [r.place for r in steady]
        drawn = {r.place for r in steady if repeated.random and _is_drawn(reference.drawn, r.place)}
        values, moved = self._wide(reference, places, drawn)
        doubtful = []
        for r in steady:
            exact, *others = [of.pop(r.place) for of in values] or [None]
            judgement = r.judgement(None if r.place in moved else exact, repeated, strict=self.strict)
            if judgement.factor == FACTOR and not all(r.see(judgement, other) for other in others):
                judgement = r.unreferenced(repeated)
            if values and r.place not in moved and judgement.is_in_doubt():
                doubtful.append((r, judgement))
            else:
                yield r, judgement
        self._see_more(reference, doubtful)
        yield from doubtful

    def _wide(
        self, reference: Reference, places: Sequence[Place], drawn: set[Place]
    ) -> tuple[list[dict[Place, Any]], set[Place]]:
        """The results of each float64 run at ``places``, and the places whose random numbers were other ones in it."""
        values, moved = list[dict[Place, Any]](), set[Place]()
        for run in reference.wide(places) if places else ():
            moved = drawn if self._draws_other_numbers(run) else moved
            values.append({place: place.read(run) for place in places})
        return values, moved

    def _steady(
        self, reference: Reference, results: Sequence[_Open], doubts: list[CannotCompare]
    ) -> tuple[list[_Open], Run]:
        """The results that a second eager run repeats and whose random numbers are known, and that run."""
        repeated = reference.repeated([r.place for r in results])
        steady = []
        for r in results:
            again = numbers(r.place.read(repeated))
            if again.shape != r.e.shape or not close(r.e, again, r.tolerance):
                doubts.append(CannotCompare("eager gives another result each time", r.place))
            elif repeated.random and _is_drawn(reference.drawn, r.place) and not self._drew_the_same(reference):
                said = "differs, but it is random, and backends may draw other numbers"
                doubts.append(CannotCompare(said, r.place))
            else:
                steady.append(r)
        return steady, repeated

    def _see_more(self, reference: Reference, doubtful: Sequence[tuple[_Open, Judgement]]) -> None:
        """Take further runs on perturbed inputs into account, while they may change a judgement."""
        for run in reference.more([r.place for r, _ in doubtful]) if doubtful else ():
            doubtful = [(r, j) for r, j in doubtful if not r.see(j, r.place.read(run)) or j.differs()]
            if not doubtful:
                return

    def _verdict(self, result: _Open, judgement: Judgement, doubts: list[CannotCompare]) -> Divergence | None:
        """Return the divergence of a result, or None if it has none. If it cannot be judged, add the reason to
        ``doubts``.
        """
        place, judged, referenced = result.place, judgement.judged(), judgement.factor == FACTOR
        ill = None
        if judged is None and referenced:
            ill = contradicted(result.e, result.a, judgement.exact, result.tolerance)
            judged = judgement.beyond_perturbed() if ill is not None else None
        if judged is not None:
            kind = result.kind
            if kind == "value":
                kind = judged.kind if result.dtype is not None else "number"
            if kind == "value" and referenced:
                self.evidence[place] = Evidence(result.a, judgement.exact, result.e)
            message = f"{place} is off by {judged.error:.3g} (eager by {judged.eager:.3g}) in {judged.elements()}"
            return Divergence(kind, str(place), message, result.phase, _figures(judged, result.dtype))
        if not referenced:
            doubts.append(CannotCompare("differs, but there is no float64 run to compare with", place))
        elif (times := judgement.let_pass()) > 0:
            self.accepted.times[str(place)] = times
        elif ill is not None:
            said = (
                f"eager and float64 give {ill.eager:.6g}, compiled {ill.compiled:.6g}, but inputs that differ in "
                "the last place change the result, too"
            )
            if self.strict:
                detail = _figures(ill.judged, result.dtype)
                kind = ILL_CONDITIONED if result.kind == "value" else result.kind
                return Divergence(kind, str(place), f"{place}: {said}", result.phase, detail)
            self.accepted.ill[str(place)] = said
        return None

    def _explained(self, found: list[Divergence], known: set[str]) -> list[Divergence]:
        """Return ``found``, with the class ``precision`` for values whose error comes from a shorter dtype.

        If one place shows the dtype, the size of the error suffices for the other places. If too few errors show
        it, the class stays, and the details name the dtype.
        """
        if self.reference is None or not self.evidence:
            return found
        emulations = Emulations(self.reference.shared, self.evidence)
        short, perhaps = dict[str, str](), dict[str, str]()
        for _ in range(2):
            left = [place for place in self.evidence if str(place) not in short]
            for place, (said, enough) in emulations.explain(left, known).items():
                (short if enough else perhaps)[str(place)] = said
            if not short or known.issuperset(short.values()):
                break
            known.update(short.values())
        for i, one in enumerate(found):
            if one.where in short:
                found[i] = _precision(one, short[one.where])
            elif one.where in perhaps:
                found[i] = replace(one, detail={**one.detail, ROUNDING: perhaps[one.where]})
        return found

    def _draws_other_numbers(self, run: Run) -> bool:
        """Whether a run left the generator in another state than eager: if a result is random, it tells nothing."""
        return not same_states(run.generators, self.generators[0])

    def _drew_the_same(self, reference: Reference) -> bool:
        """Whether the compiled call drew the random numbers that eager drew, as its generator shows."""
        return same_states(*self.generators) and reference.drawn.telling


def _figures(judged: Judged, dtype: torch.dtype | None) -> dict[str, Any]:
    """The details of a divergence of values."""
    detail: dict[str, Any] = {"error": repr(judged.error), "eager_error": repr(judged.eager)}
    detail |= {"allowed": repr(judged.allowed), "elements": judged.count, "of": judged.of}
    detail |= {UNDEFINED: judged.undefined} if judged.kind in NOT_FINITE else {}
    return detail | ({} if dtype is None else {"dtype": _dtype(dtype)})


def _precision(found: Divergence, short: str) -> Divergence:
    message = precision_message(found.where, found.message, found.detail["dtype"], short)
    return Divergence(PRECISION, found.where, message, found.phase, found.detail | {"as": short})


def _owners(run: Run) -> list[str]:
    """For each output, the input or earlier output whose storage it shares, as a text."""
    pairs = zip(run.aliases, run.shared, strict=True)
    return [f"input {i}" if i is not None else "no input" if o is None else f"output {o}" for i, o in pairs]


def _attribute(kind: str, place: str, expected: Any, actual: Any, phase: Phase = Phase.FORWARD) -> Divergence:
    message = f"{place}: {kind} is {expected} in eager, {actual} compiled"
    return Divergence(kind, place, message, phase, {"expected": expected, "actual": actual})


def _attached(place: str, wanted: bool) -> Divergence:
    """Return the divergence of an output that requires a gradient in one run only: in eager if ``wanted``."""
    said = "a gradient in eager, and none compiled" if wanted else "no gradient in eager, and one compiled"
    there = ("one", "none") if wanted else ("none", "one")
    detail = {"expected": there[0], "actual": there[1]}
    return Divergence("gradient", place, f"{place} requires {said}", Phase.BACKWARD, detail)


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _alike(e: Any, a: Any) -> bool:
    return isinstance(e, torch.Tensor) and isinstance(a, torch.Tensor) and e.dtype == a.dtype and e.shape == a.shape


def _strides(t: torch.Tensor) -> list[int] | None:
    """Strides of the dimensions with more than one element; None for an empty tensor or a layout without strides."""
    if t.layout is not torch.strided or t.numel() == 0:
        return None
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1]


def _is_drawn(drawn: Drawn, place: Place) -> bool:
    """Whether the result at ``place`` depends on random numbers. A gradient depends on all outputs."""
    if place.group == "outputs":
        return place.index in drawn.outputs
    return place.index in drawn.inputs if place.group == "inputs" else drawn.gradients


def _overwritten(place: Place, value: Any) -> Divergence:
    """The divergence of an input that only the compiled call wrote to. Its former values are lost."""
    message = f"{place} is written to by the compiled call, not by eager"
    return Divergence("mutation", str(place), message, Phase.FORWARD, {"dtype": _dtype(value.dtype)})


def _detached(expected: Run, actual: Run) -> Divergence | None:
    """The divergence that no compiled output has a gradient, if that is so and one of eager has."""
    if expected.gradients is None or actual.gradients is not None:
        return None
    place = next(f"output {i}" for i, e in enumerate(expected.outputs) if differentiable(e))
    found = _attached(place, True)
    return replace(found, detail={**found.detail, DETACHED: True})
