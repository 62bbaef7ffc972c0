"""Explain a minimal case: ask what happens when one thing of it is changed, within a small budget.

Settings and arguments that may be left out come first, because the reduction has answered most of those queries. Then
come other arguments, dtypes, sizes, values, layouts, arguments that are left out, and operators. The sizes that are
tried are one more, a power of two, a large odd number and smaller ones. Dimensions that depend on one another change
together: all dimensions of one large size, or dimensions of a small size that eager requires to be equal.

What eager refuses on the minimal case is tried on a larger case that fails as well: the minimal case with another size,
or an earlier step of the reduction. A candidate that passes is asked about twice, the second time in a fresh worker. A
failure that comes and goes needs more runs for each answer (`Luck`). The explanation holds what the budget allowed.
`fxminify.minifier.reporting.wording` puts it into words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import copysign, log10

from ...store.document.case import Blobs, Case
from ...store.failure import ROUNDING
from ...store.text import shortened
from ..candidate.trace import Trace
from ..candidate.validity import Validity
from ..oracle.oracle import Votes
from ..oracle.scheduler import Budget, BudgetSpent, QueryScheduler
from ..oracle.verdict import Outcome, Verdict
from ..passes.dimensions import changeable
from ..reducer.history import EXPLAIN, difference
from .explanation import Explanation, PassingVariant
from .features import Aspect, Claim, Feature, ProbeAnswer
from .luck import Luck
from .probes import (
    Names,
    Place,
    Probe,
    arguments,
    as_printed,
    defaults,
    dtypes,
    layouts,
    of_size,
    operators,
    resized,
    settings,
    size_of_values,
    value_sets,
)
from .same_bug import is_same_but_for_dtypes
from .size_rules import telling_size

#: Queries and seconds that an explanation may take.
MOST, SECONDS = 48, 90.0
#: The most characters of another failure that an answer quotes.
_QUOTED = 160
#: Queries about how large a number must be.
MOST_POWERS = 5
#: Dimensions that have one size up to this are often independent of one another.
SMALL = 2
#: The most dimensions of one small size that are varied one by one, and the number of answers about sizes after which
#: no other dimension is begun. This leaves a part of the budget for other features.
MOST_PLACES, MOST_SIZES, MOST_DIVISORS = 6, 18, 4
#: The most larger cases on which a value is tried that eager refuses on the minimal case.
MOST_LARGER = 8
#: The most dimensions of one size that are made smaller alone.
MOST_ALONE = 3
#: A size to which a small one is raised: powers of two up to this are where vectors and tiles end.
VECTOR = 16


@dataclass(frozen=True, slots=True)
class Background:
    """Facts besides the minimal case.

    ``trace`` has the signatures of the functions that its nodes call. ``steps`` are earlier cases of the reduction,
    each with its number, the last one first; ``step_trace`` has the signatures for their nodes. ``again`` runs a
    case anew in fresh workers. ``headline`` is the headline of the failure.
    """

    trace: Trace | None = None
    steps: Sequence[tuple[int, Case]] = ()
    step_trace: Trace | None = None
    again: Callable[[Case, Votes | None], Verdict] | None = None
    headline: str = ""


@dataclass(frozen=True, slots=True)
class Larger:
    """A case that fails as the minimal one does, and is larger. ``words`` say how: ``with x.shape[2] = 17``."""

    words: str
    case: Case
    trace: Trace | None = None


def explain(
    case: Case,
    blobs: Blobs,
    scheduler: QueryScheduler,
    *,
    put: Callable[[Blobs], None],
    validity: Validity | None = None,
    background: Background | None = None,
    luck: Luck | None = None,
    budget: Budget | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Explanation:
    """The explanation of ``case``, which fails, within ``budget`` (default: `MOST` queries and `SECONDS`).

    ``blobs`` has the storages of ``case``. New storages of a candidate are passed to ``put`` before the query.
    ``validity`` tells which candidates eager accepts; the others are no queries. ``luck`` is for a failure that comes
    and goes, None for one that always shows.
    """
    names = tuple(dict.fromkeys(Names(case).of.values()))
    if luck is not None and luck.refusal:
        return Explanation((), tensors=names, shown=luck.shown, runs=luck.runs, unjudged=luck.refusal)
    session = _Session(case, blobs, scheduler, put, validity, background or Background(), luck)
    started = clock()
    complete = True
    try:
        with scheduler.limited(budget or Budget(MOST, SECONDS)):
            session.all()
    except BudgetSpent:
        complete = False
    variant = None
    if session.nearest is not None:
        near = session.nearest
        variant = PassingVariant(near.words(), difference(as_printed(case), as_printed(near.case)))
    shown, runs = (0, 0) if luck is None else (luck.shown, luck.runs)
    seconds = round(clock() - started, 1)
    return Explanation(
        session.features(), variant, session.asked, seconds, complete, tensors=names, shown=shown, runs=runs
    )


class _Session:
    """The answers so far, by aspect and name."""

    def __init__(
        self,
        case: Case,
        blobs: Blobs,
        scheduler: QueryScheduler,
        put: Callable[[Blobs], None],
        validity: Validity | None,
        background: Background,
        luck: Luck | None,
    ) -> None:
        self.case = case
        self.blobs = blobs
        self.make_known = put
        self.scheduler = scheduler
        self.validity = validity
        self.background = background
        self.luck = luck
        names = Names(case)
        self.names, self.symbols = names.of, names.symbols
        self.asked = 0
        self.now: dict[tuple[Aspect, str], str] = {}
        self.answers: dict[tuple[Aspect, str], list[ProbeAnswer]] = {}
        self.nearest: Probe | None = None
        #: Sizes with which the case fails: the probe with the largest size for each name.
        self.larger: dict[str, Probe] = {}

    def features(self) -> tuple[Feature, ...]:
        return tuple(
            Feature(aspect, name, self.now[aspect, name], tuple(answers))
            for (aspect, name), answers in self.answers.items()
            if answers
        )

    def all(self) -> None:
        case, blobs, trace = self.case, self.blobs, self.background.trace
        self.each(settings(case))
        given = list(arguments(case, trace))
        self.each(probe for probe in given if probe.is_omission)
        self.each(dtypes(case, blobs))
        self.each(probe for probe in given if not probe.is_omission)
        self.sizes()
        self.on_larger(lambda larger: (*arguments(larger.case, larger.trace), *settings(larger.case)))
        for probe in value_sets(case):
            if probe.name == "values" or self.claim(Aspect.VALUES, "values") in (
                Claim.MATTERS,
                Claim.OTHERWISE,
                Claim.CLOSE,
            ):
                self.put(probe)
        self.magnitude()
        self.each(layouts(case, blobs))
        self.each(defaults(case, trace))
        self.on_larger(lambda larger: defaults(larger.case, larger.trace))
        self.each(operators(case))

    def each(self, probes: Iterable[Probe]) -> None:
        waiting = list(probes)
        for number, probe in enumerate(waiting):
            self.ahead(waiting[number : number + self.scheduler.jobs])
            self.put(probe)

    def ahead(self, probes: Iterable[Probe]) -> None:
        """Start queries that will be asked soon, as many as there are idle workers."""
        if self.luck is not None:
            return
        probes = list(probes)
        for probe in probes:
            self.make_known(probe.blobs)
        self.scheduler.ahead((probe.case, EXPLAIN) for probe in probes if self.is_valid(probe.case))

    def is_valid(self, candidate: Case, base: Case | None = None) -> bool:
        """Whether eager accepts the candidate, as far as that is known without a query."""
        return self.validity is None or all(self.validity(base or self.case, [candidate]))

    def put(self, probe: Probe) -> Outcome:
        """Ask about a candidate, and keep the answer."""
        return self.put_first([probe])[1]

    def put_first(self, probes: Sequence[Probe]) -> tuple[Probe, Outcome]:
        """Ask about the first of ``probes`` that eager accepts, and keep the answer."""
        for probe in probes:
            self.make_known(probe.blobs)
            answer = self.answer(probe)
            if answer.outcome is not Outcome.INVALID:
                break
        feature = probe.aspect, probe.name
        self.now[feature] = probe.now
        self.answers.setdefault(feature, []).append(answer)
        if answer.outcome is Outcome.PASS and (self.nearest is None or probe.distance < self.nearest.distance):
            self.nearest = probe
        return probe, answer.outcome

    def answer(self, probe: Probe, larger: Larger | None = None) -> ProbeAnswer:
        """Ask the oracle about a candidate of the minimal case, or of a ``larger`` one."""
        on = "" if larger is None else larger.words
        if not self.is_valid(probe.case, None if larger is None else larger.case):
            return ProbeAnswer(probe.value, Outcome.INVALID, runs=0, on=on)
        verdict = self.verdict(probe.case)
        self.asked += 1
        outcome, said = verdict.outcome, _said(verdict)
        shown, runs = (0, 0) if outcome is Outcome.INVALID else verdict.counted
        other_dtype = outcome is Outcome.OTHER and probe.aspect is Aspect.DTYPE
        if other_dtype and is_same_but_for_dtypes(self.background.headline, said):
            outcome, shown = Outcome.SAME, runs
        told = outcome not in (Outcome.SAME, Outcome.PASS)
        return ProbeAnswer(probe.value, outcome, shown, runs, on, shortened(said, _QUOTED) if told else "")

    def verdict(self, case: Case) -> Verdict:
        """The verdict on a candidate. That it passes is asked twice, or as often as `Luck` says."""
        again, key = self.background.again, self.scheduler.key(case)
        if self.luck is not None and again is not None:
            votes = self.luck.votes
            return self.scheduler.ask_once(f"{key}/{EXPLAIN}{votes.runs}", EXPLAIN, lambda: again(case, votes))
        verdict = self.scheduler.ask(case, EXPLAIN)
        if verdict.outcome is not Outcome.PASS or again is None:
            return verdict
        second = self.scheduler.ask_once(f"{key}/{EXPLAIN}", EXPLAIN, lambda: again(case, None))
        if second.outcome is Outcome.PASS:
            unequal = verdict.unequal or second.unequal
            return Verdict(Outcome.CLOSE, detail=unequal) if unequal else Verdict(Outcome.PASS, detail="0 of 2 runs")
        return Verdict(Outcome.FLAKY, detail=f"it passes in one run, and the next one says: {second.outcome}")

    def claim(self, aspect: Aspect, name: str) -> Claim:
        answers = tuple(self.answers.get((aspect, name), ()))
        return Feature(aspect, name, self.now.get((aspect, name), ""), answers).claim

    def magnitude(self) -> None:
        """Find the smallest power of ten that fails, if a large number fails and 1 passes."""
        number = size_of_values(self.case)
        passes = self.answers.get((Aspect.VALUES, "values"), ())
        if number is None or not any(a.value == "ones" and a.outcome is Outcome.PASS for a in passes):
            return
        low, high = 0, round(log10(abs(number)))
        for _ in range(MOST_POWERS):
            middle = (low + high) // 2
            if middle == low:
                return
            fails = self.put(of_size(self.case, copysign(10.0**middle, number))) is Outcome.SAME
            low, high = (low, middle) if fails else (middle, high)

    # Larger cases

    def on_larger(self, probes: Callable[[Larger], Iterable[Probe]]) -> None:
        """Try what eager refuses on the minimal case on larger cases, until one of them gives an answer."""
        refused = [
            (feature, answer.value)
            for feature, answers in self.answers.items()
            for answer in answers
            if answer.outcome is Outcome.INVALID and feature[0] in (Aspect.ARGUMENT, Aspect.DEFAULT, Aspect.SETTING)
        ]
        places = {(p.aspect, p.name): p.place for p in probes(Larger("", self.case, self.background.trace))}
        for larger in self.larger_cases() if refused else ():
            found = {(p.aspect, p.place, p.value): p for p in probes(larger)}
            for feature, value in list(refused):
                probe = found.get((feature[0], places.get(feature, ()), value))
                if probe is None:
                    continue
                answer = self.answer(probe, larger)
                if answer.outcome is not Outcome.INVALID:
                    self.answers[feature].append(answer)
                    refused.remove((feature, value))
            if not refused:
                return

    def larger_cases(self) -> Iterator[Larger]:
        """Cases that fail as the minimal one does: it with one other size, and earlier steps, the last one first."""
        grown = sorted(self.larger.values(), key=lambda probe: -int(probe.value))[: MOST_LARGER // 2]
        for probe in grown:
            yield Larger(f"with {probe.name} = {probe.value}", probe.case, self.background.trace)
        shapes = {tuple(spec.shape for spec in self.case.tensors)}
        left = MOST_LARGER - len(grown)
        for number, case in self.background.steps:
            if left == 0:
                return
            shape = tuple(spec.shape for spec in case.tensors)
            if shape in shapes:
                continue  # what eager refuses depends on the shapes
            shapes.add(shape)
            left -= 1
            inputs = ", ".join(f"{name}: {_typed(case, i)}" for i, name in list(Names(case).of.items())[:3])
            yield Larger(f"in step {number} of the reduction ({inputs})", case, self.background.step_trace)

    # Sizes

    def sizes(self) -> None:
        """Vary every size of the inputs and of the attributes of the graph."""
        if self.case.earlier:
            return
        groups: dict[int, list[Place]] = {}
        for i in changeable(self.case):
            for d, size in enumerate(self.case.tensors[i].shape):
                groups.setdefault(size, []).append((i, d))
        before = self.asked
        for size in sorted(groups, reverse=True):
            group = groups[size]
            if self.asked - before >= MOST_SIZES:
                return
            # All dimensions of a symbolic size belong to it. Dimensions that only equal it may: eager decides.
            whole = size > SMALL or len(group) == 1 or self.is_symbolic(size)
            if size == 0 or (whole and self.vary(group, size)) or self.is_symbolic(size):
                continue
            done: set[Place] = set()
            for place in group[:MOST_PLACES] if len(group) > 1 else ():
                if place not in done and self.asked - before < MOST_SIZES:
                    ties = ([place], *([place, other] for other in group if other != place))
                    done |= next((set(tied) for tied in ties if self.vary(tied, size)), set())

    def vary(self, places: Sequence[Place], size: int) -> bool:
        """Ask about other sizes of ``places``. False where eager refuses the first two."""
        first = self.resize(places, size, size + 1)
        if first is Outcome.INVALID and self.resize(places, size, 2 * size) in (Outcome.INVALID, None):
            self.answers.pop((Aspect.SIZE, self.name(places)), None)
            return False
        others = sizes_besides(size)
        larger = [next(self.resized(places, size, n, self.name(places)), None) for n in others]
        self.ahead([p for p in larger if p is not None][: self.scheduler.jobs])
        for other in others:
            self.resize(places, size, other)
        least = 2 if self.is_symbolic(size) else 1  # torch takes 0 and 1 for constants
        below = [n for n in (size - 1, size // 2, 1) if least <= n < size]
        for other in dict.fromkeys(below):
            if self.resize(places, size, other) is Outcome.PASS:
                break
        self.find_divisor(places, size)
        self.weigh(places, size)
        return True

    def weigh(self, places: Sequence[Place], size: int) -> None:
        """Ask whether the nearest smaller size that passes fails in one of several ``places`` alone, and whether it
        fails where another dimension of the tensor has more elements instead. Then the size itself is not needed."""
        name = self.name(places)
        found = self.answers.get((Aspect.SIZE, name), [])
        passed = [int(a.value) for a in found if a.outcome is Outcome.PASS and 0 < int(a.value) < size]
        if not passed or self.is_symbolic(size):
            return
        nearest = max(passed)
        if len(places) > 1:
            trials = [(Larger(f"in {self.dimension(place)} alone", self.case), place) for place in places[:MOST_ALONE]]
        else:
            trials = [(grown, places[0]) for grown in self.grown(places[0], -(-size // nearest))]
        for larger, place in trials:
            for probe in self.resized([place], size, nearest, name, larger.case):
                answer = self.answer(probe, larger)
                if answer.outcome is not Outcome.INVALID:
                    found += [answer] if answer.outcome is Outcome.SAME else []
                    break

    def grown(self, place: Place, times: int) -> Iterator[Larger]:
        """The case with another dimension of a tensor ``times`` as large."""
        i, d = place
        spec = self.case.tensors[i]
        for other, size in enumerate(spec.shape):
            if other != d and size and spec.storage is None:
                made = resized(self.case, [(i, other)], times * size, "none", self.blobs)
                if made is not None and self.is_valid(made[0]):
                    yield Larger(f"with {self.dimension((i, other))} = {times * size}", made[0])
                    return

    def dimension(self, place: Place) -> str:
        return f"{self.names.get(place[0], f'tensor {place[0]}')}.shape[{place[1]}]"

    def find_divisor(self, places: Sequence[Place], size: int) -> None:
        """Ask about more sizes while those that fail are multiples of several numbers, and those that pass of none."""
        for _ in range(MOST_DIVISORS):
            answers = self.answers.get((Aspect.SIZE, self.name(places)), ())
            fails, passed = (
                [int(a.value) for a in answers if a.outcome is outcome and not a.on]
                for outcome in (Outcome.SAME, Outcome.PASS)
            )
            other = telling_size(size, [size, *fails], passed)
            if other is None or self.resize(places, size, other) not in (Outcome.SAME, Outcome.PASS):
                return

    def resize(self, places: Sequence[Place], size: int, other: int) -> Outcome | None:
        name = self.name(places)
        if any(answer.value == str(other) for answer in self.answers.get((Aspect.SIZE, name), ())):
            return None
        probes = list(self.resized(places, size, other, name))
        if not probes:
            return Outcome.INVALID
        probe, outcome = self.put_first(probes)
        before = self.larger.get(name)
        if outcome is Outcome.SAME and other > (size if before is None else int(before.value)):
            self.larger[name] = probe
        return outcome

    def resized(
        self, places: Sequence[Place], size: int, other: int, name: str, base: Case | None = None
    ) -> Iterator[Probe]:
        """Candidates with this size, of ``base`` or the minimal case. They differ in the numbers of the graph that
        change with it; likeliest first."""
        seen: list[Case] = []
        for follow in ("lists", "all", "none") if size > SMALL else ("none", "lists"):
            made = resized(base or self.case, places, other, follow, self.blobs)
            if made is not None and made[0] not in seen:
                seen.append(made[0])
                near = 0 if abs(other - size) == 1 else 5
                yield Probe(Aspect.SIZE, name, str(size), str(other), made[0], blobs=made[1], distance=near)

    def name(self, places: Sequence[Place]) -> str:
        (size,) = {self.case.tensors[i].shape[d] for i, d in places}
        symbols = [name for name, number in self.symbols if number == size]
        return " = ".join([*symbols, *map(self.dimension, places)])

    def is_symbolic(self, size: int) -> bool:
        return any(number == size for _, number in self.symbols)


def sizes_besides(size: int) -> tuple[int, int]:
    """The sizes to try besides ``size`` and its successor: a power of two, and a larger number that is odd."""
    power = VECTOR
    while power < 2 * size:
        power *= 2
    return power, max(VECTOR, 4 * size) + 1


def _said(verdict: Verdict) -> str:
    """The reason of a verdict in the words of an explanation."""
    short = None if verdict.failure is None else verdict.failure.detail.get(ROUNDING)
    return f"{verdict.detail}, as computing in {short} would be" if short else verdict.detail


def _typed(case: Case, tensor: int) -> str:
    spec = case.tensors[tensor]
    return f"{spec.dtype}{list(spec.shape)}"
