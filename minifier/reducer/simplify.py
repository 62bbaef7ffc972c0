"""The last stage of a reduction: what is left of the case is made plain.

A failure that depends on none of it takes one question: everything is made plain at once, as if every answer were
yes. Else all but sizes, then what stands around the graph, is tried so; then the
`fxminify.minifier.passes.canonicalize`
run one after the other, each with its own questions. A candidate that was asked about already costs nothing, so asking
for all at once and then for a part is cheap.

What is asked next is a function of the answers (note 3), so it can be told from assumed ones, too: that is how idle
workers are given work, and why the result does not depend on their number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ...store.document.case import Case
from ..candidate.lint import flaw
from ..passes.canonicalize import (
    ALL_BUT_SIZES,
    SIMPLIFICATIONS,
    SURROUNDINGS,
    Candidates,
    Simplification,
    Storages,
    name_of,
)
from .asking import Asked

#: Is told what was wrong with which simplification.
Problem = Callable[[Exception, str], None]
#: How far ahead is looked for questions, and how likely an answer is taken to be like the one before, or yes at first.
AHEAD = 24
ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class Stage:
    """What is asked for under one ``name``: all of ``group`` at once where that is more than one thing, or what the one
    simplification in it proposes."""

    name: str
    said: str
    group: tuple[Simplification, ...]
    at_once: bool = False


STAGES: tuple[Stage, ...] = (
    Stage("everything", "All simplifications at once: most failures depend on none of it.", SIMPLIFICATIONS, True),
    Stage("all-but-sizes", "All but smaller dimensions at once: a graph may need its sizes.", ALL_BUT_SIZES, True),
    Stage("surroundings", "Those at once that leave the tensors as they are.", SURROUNDINGS, True),
    *(Stage(name_of(s), s.__doc__ or "", (s,)) for s in SIMPLIFICATIONS),
)


def listing() -> list[dict[str, str]]:
    """Rows for `minify passes`, in the order in which they ask."""
    return [{"pass": stage.name, "stage": "simplify", "what": stage.said} for stage in STAGES]


class Simplifying:
    """A simplification that runs: the candidate it asks about (``asked``, None at the end), and what it would ask after
    assumed answers. ``case`` is the plainest one so far that a stage ended with.

    Deterministic: the same candidates in the same order whenever the answers are the same. ``problem`` is told where a
    simplification raises, proposes no change or what is no graph; it goes on without that.
    """

    def __init__(self, case: Case, storages: Storages, problem: Problem) -> None:
        self.case = case
        self.asked: Asked | None = None
        self._storages = storages
        self._problem = problem
        self._stage = 0
        self._answers: tuple[bool, ...] = ()
        self._candidates = self._begin(0, case, problem)
        self._advance(None)

    def answer(self, same: bool) -> None:
        self._answers += (same,)
        self._advance(same)

    def _advance(self, same: bool | None) -> None:
        while self._stage < len(STAGES):
            try:
                candidate = next(self._candidates) if same is None else self._candidates.send(same)
            except StopIteration as end:
                self._stage, self.case, self._answers, same = self._stage + 1, end.value, (), None
                if self._stage < len(STAGES):
                    self._candidates = self._begin(self._stage, self.case, self._problem)
            else:
                self.asked = candidate, STAGES[self._stage].name
                return
        self.asked = None

    def later(self, known: Callable[[Case], bool | None]) -> Iterator[Asked]:
        """What may be asked after the waiting question, the likeliest first; ``known`` tells answers that are there."""
        numbers = count()
        waiting = [(-1.0, next(numbers), self._stage, self.case, self._answers)]
        for _ in range(AHEAD):
            if not waiting:
                return
            chance, _, stage, case, answers = heapq.heappop(waiting)
            found = self._at(stage, case, answers)
            if found is None:
                continue
            stage, case, answers, candidate = found
            answer = known(candidate)
            if answer is None and chance > -1.0:
                yield candidate, STAGES[stage].name
            yes = ALIKE if not answers or answers[-1] else 1 - ALIKE
            for same, share in ((True, yes), (False, 1 - yes)):
                if answer is None or answer is same:
                    chance_of_it = chance * (share if answer is None else 1.0)
                    heapq.heappush(waiting, (chance_of_it, next(numbers), stage, case, (*answers, same)))

    def _at(self, stage: int, case: Case, answers: tuple[bool, ...]) -> tuple[int, Case, tuple[bool, ...], Case] | None:
        """Where a run stands that was in ``stage`` with ``case`` and got ``answers``, and the candidate it asks about;
        None at the end."""
        while stage < len(STAGES):
            candidates = self._begin(stage, case, lambda exc, name: None)
            try:
                candidate = next(candidates)
                for same in answers:
                    candidate = candidates.send(same)
            except StopIteration as end:
                stage, case, answers = stage + 1, end.value, ()
            else:
                return stage, case, answers, candidate
        return None

    def _begin(self, stage: int, case: Case, problem: Problem) -> Candidates:
        todo = STAGES[stage]
        if todo.at_once:
            return _at_once(case, self._storages, todo.group, problem)
        return _guarded(todo.group[0], case, self._storages, problem)


def _at_once(case: Case, storages: Storages, group: Sequence[Simplification], problem: Problem) -> Candidates:
    """What ``group`` would make of ``case`` if nothing mattered, where more than one of it has something to do."""
    plain, changed = case, 0
    for simplification in group:
        before = plain
        candidates = _guarded(simplification, plain, storages, problem)
        try:
            next(candidates)
            while True:
                candidates.send(True)
        except StopIteration as end:
            plain = end.value
        changed += plain != before
    return plain if changed > 1 and (yield plain) else case


def _guarded(simplification: Simplification, case: Case, storages: Storages, problem: Problem) -> Candidates:
    """The candidates of ``simplification`` that can be asked about. Whatever it does, what is returned was accepted."""
    name, best = name_of(simplification), case
    try:
        candidates = simplification(case, storages)
        candidate = next(candidates)
        while True:
            if candidate == best:
                problem(ValueError("it proposed no change"), name)
                same = True
            elif (wrong := flaw(candidate)) is not None:
                problem(ValueError(wrong), name)
                same = False
            else:
                same = yield candidate
            best = candidate if same else best
            candidate = candidates.send(same)
    except StopIteration as end:
        if end.value != best:
            problem(ValueError("what it ended with is not what was accepted last"), name)
    except Exception as exc:  # noqa: BLE001  an error in one simplification is no reason to lose what the others can do
        problem(exc, name)
    return best
