"""Explain a minimal case: ask what happens when one thing of it is changed, within a small budget.

Settings come first, because the reduction has answered most of those queries, then dtypes, values, sizes, arguments,
layouts and operators. The sizes that are tried are one less, one more, twice as much and a few others. Dimensions that
depend on one another change together: all that have one large size, or those of a small size that eager requires to be
equal. The explanation holds what the budget allowed. `fxminify.minifier.reporting.wording` puts it into words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import copysign, log10

from ...store.document.case import Blobs, Case
from ..candidate.validity import Validity
from ..oracle.scheduler import Budget, BudgetSpent, QueryScheduler
from ..oracle.verdict import Outcome
from ..passes.dimensions import changeable
from ..reducer.history import EXPLAIN, difference
from .explanation import Explanation, PassingVariant
from .features import Aspect, Feature, ProbeAnswer
from .probes import (
    Names,
    Place,
    Probe,
    arguments,
    as_printed,
    dtypes,
    layouts,
    of_size,
    operators,
    resized,
    settings,
    size_of_values,
    value_sets,
)

#: Queries and seconds that an explanation may take.
MOST, SECONDS = 40, 60.0
#: Queries about how large a number must be.
MOST_POWERS = 5
#: Dimensions that have one size up to this are often independent of one another.
SMALL = 2
#: The most dimensions of one small size that are varied one by one, and the number of answers about sizes after which
#: no other dimension is begun. This leaves a part of the budget for other features.
MOST_PLACES, MOST_SIZES = 6, 18


def explain(
    case: Case,
    blobs: Blobs,
    scheduler: QueryScheduler,
    *,
    put: Callable[[Blobs], None],
    validity: Validity | None = None,
    budget: Budget | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Explanation:
    """The explanation of ``case``, which fails, within ``budget`` (default: `MOST` queries and `SECONDS`).

    ``blobs`` has the storages of ``case``. New storages of a candidate are passed to ``put`` before the query.
    ``validity`` tells which candidates eager accepts; the others are no queries.
    """
    session = _Session(case, blobs, scheduler, put, validity)
    started = clock()
    complete = True
    try:
        with scheduler.limited(budget or Budget(MOST, SECONDS)):
            session.all()
    except BudgetSpent:
        complete = False
    features = tuple(
        Feature(aspect, name, session.now[aspect, name], tuple(answers))
        for (aspect, name), answers in session.answers.items()
        if answers
    )
    variant = None
    if session.nearest is not None:
        near = session.nearest
        variant = PassingVariant(near.words(), difference(as_printed(case), as_printed(near.case)))
    return Explanation(features, variant, session.asked, round(clock() - started, 1), complete)


class _Session:
    """The answers so far, by aspect and name."""

    def __init__(
        self,
        case: Case,
        blobs: Blobs,
        scheduler: QueryScheduler,
        put: Callable[[Blobs], None],
        validity: Validity | None,
    ) -> None:
        self.case = case
        self.blobs = blobs
        self.make_known = put
        self.scheduler = scheduler
        self.validity = validity
        names = Names(case)
        self.names, self.symbols = names.of, names.symbols
        self.asked = 0
        self.now: dict[tuple[Aspect, str], str] = {}
        self.answers: dict[tuple[Aspect, str], list[ProbeAnswer]] = {}
        self.nearest: Probe | None = None

    def all(self) -> None:
        case, blobs = self.case, self.blobs
        self.each(settings(case))
        self.each(dtypes(case, blobs))
        for probe in value_sets(case):
            if probe.name == "values" or self.free(Aspect.VALUES, "values") is False:
                self.put(probe)
        self.magnitude()
        self.sizes()
        self.each(arguments(case))
        self.each(layouts(case, blobs))
        self.each(operators(case))

    def each(self, probes: Iterable[Probe]) -> None:
        waiting = list(probes)
        for number, probe in enumerate(waiting):
            self.ahead(waiting[number : number + self.scheduler.jobs])
            self.put(probe)

    def ahead(self, probes: Iterable[Probe]) -> None:
        """Start queries that will be asked soon, as many as there are idle workers."""
        probes = list(probes)
        for probe in probes:
            self.make_known(probe.blobs)
        self.scheduler.ahead((probe.case, EXPLAIN) for probe in probes if self.is_valid(probe))

    def is_valid(self, probe: Probe) -> bool:
        """Whether eager accepts the candidate, as far as that is known without a query."""
        return self.validity is None or all(self.validity(self.case, [probe.case]))

    def put(self, probe: Probe, *, instead: Sequence[Probe] = ()) -> Outcome:
        """Ask, and keep the answer. Where eager refuses the candidate, ask about the next of ``instead``."""
        tried = [probe, *instead]
        for probe in tried:
            self.make_known(probe.blobs)
            outcome = Outcome.INVALID
            if self.is_valid(probe):
                outcome = self.scheduler.ask(probe.case, EXPLAIN).outcome
                self.asked += 1
            if outcome is not Outcome.INVALID:
                break
        feature = probe.aspect, probe.name
        self.now[feature] = probe.now
        self.answers.setdefault(feature, []).append(ProbeAnswer(probe.value, outcome))
        if outcome is Outcome.PASS and (self.nearest is None or probe.distance < self.nearest.distance):
            self.nearest = probe
        return outcome

    def free(self, aspect: Aspect, name: str) -> bool | None:
        answers = tuple(self.answers.get((aspect, name), ()))
        return Feature(aspect, name, self.now.get((aspect, name), ""), answers).free

    def magnitude(self) -> None:
        """Where a large number fails and 1 passes: find the power of ten from which on it fails."""
        number = size_of_values(self.case)
        passes = self.answers.get((Aspect.VALUES, "values"), ())
        if number is None or ProbeAnswer("ones", Outcome.PASS) not in passes:
            return
        low, high = 0, round(log10(abs(number)))
        for _ in range(MOST_POWERS):
            middle = (low + high) // 2
            if middle == low:
                return
            fails = self.put(of_size(self.case, copysign(10.0**middle, number))) is Outcome.SAME
            low, high = (low, middle) if fails else (middle, high)

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
        others = (3, 17) if size == 1 else (2 * size, 4 * size + 1)
        larger = [next(self.resized(places, size, n, self.name(places)), None) for n in others]
        self.ahead([p for p in larger if p is not None][: self.scheduler.jobs])
        for other in others:  # besides size + 1: a multiple of it, and a number that is no multiple
            self.resize(places, size, other)
        least = 2 if self.is_symbolic(size) else 1  # torch takes 0 and 1 for constants
        below = [n for n in (size - 1, size // 2, 1) if least <= n < size]
        for other in dict.fromkeys(below):
            if self.resize(places, size, other) is Outcome.PASS:
                break
        return True

    def resize(self, places: Sequence[Place], size: int, other: int) -> Outcome | None:
        name = self.name(places)
        if any(answer.value == str(other) for answer in self.answers.get((Aspect.SIZE, name), ())):
            return None
        probes = list(self.resized(places, size, other, name))
        return self.put(probes[0], instead=probes[1:]) if probes else Outcome.INVALID

    def resized(self, places: Sequence[Place], size: int, other: int, name: str) -> Iterator[Probe]:
        """Candidates with this size. They differ in the numbers of the graph that change with it; likeliest first."""
        seen: list[Case] = []
        for follow in ("lists", "all", "none") if size > SMALL else ("none", "lists"):
            made = resized(self.case, places, other, follow, self.blobs)
            if made is not None and made[0] not in seen:
                seen.append(made[0])
                near = 0 if abs(other - size) == 1 else 5
                yield Probe(Aspect.SIZE, name, str(size), str(other), made[0], made[1], near)

    def name(self, places: Sequence[Place]) -> str:
        (size,) = {self.case.tensors[i].shape[d] for i, d in places}
        symbols = [name for name, number in self.symbols if number == size]
        return " = ".join([*symbols, *(f"{self.names.get(i, f'tensor {i}')}.shape[{d}]" for i, d in places)])

    def is_symbolic(self, size: int) -> bool:
        return any(number == size for _, number in self.symbols)
