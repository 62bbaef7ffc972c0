"""Find valid candidates without the backend. Such a check is not a query.

A worker runs a candidate in eager mode or with fake tensors (`fxminify.minifier.tracing.validity`), and traces one
that has subgraphs, for which torch has rules that eager does not check (`fxminify.minifier.tracing.rules`). Every
answer is kept. The answers are a function of the case, so a reduction remains a function of the verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...store.document.case import Case
from ..candidate.hop_calls import paths
from ..candidate.validity import Validator, Way

#: A run of a graph with more compute nodes than this takes longer than it saves.
MOST_NODES = 32
#: The names of the questions: does eager accept the case, does it obey the rules?
_EAGER, _RULES = "eager", "rules"


class NotKnown(Exception):
    """The shrinker looks ahead, and does not wait for a worker to do so."""


class KnownValidity:
    """The answers of ``validator`` so far, by the key of the candidate. Without one every candidate counts as valid."""

    def __init__(self, validator: Validator | None, key: Callable[[Case], str]) -> None:
        self._validators = {} if validator is None else {_EAGER: validator, _RULES: validator}
        self._key = key
        self._ways: dict[str, Way] = {}
        self._known: dict[tuple[str, str], bool] = {}
        self._looking = False

    def __call__(self, base: Case, candidates: Sequence[Case]) -> tuple[bool, ...]:
        """For each candidate whether it is valid, as ``base`` is. True if that is not known.

        Raises `NotKnown` inside `looking` if a worker would have to be asked.
        """
        if len(base.graph.compute) > MOST_NODES:
            return self.obeys_rules(base, candidates)
        runs = self._answers(_EAGER, candidates, lambda new, validator: self._run(base, new, validator))
        obeys = iter(
            self.obeys_rules(base, [case for case, accepted in zip(candidates, runs, strict=True) if accepted])
        )
        return tuple(accepted and next(obeys) for accepted in runs)

    def obeys_rules(self, base: Case, candidates: Sequence[Case]) -> tuple[bool, ...]:
        """Return for each candidate whether its subgraphs obey torch's rules.

        The answer is True for all candidates if the subgraphs of ``base`` break the rules. Raises `NotKnown` as a call
        does.
        """
        within = [case for case in candidates if paths(case.graph)]
        if not within or not all(self._answers(_RULES, [base], self._trace)):
            return (True,) * len(candidates)
        obeys = iter(self._answers(_RULES, within, self._trace))
        return tuple(not paths(case.graph) or next(obeys) for case in candidates)

    def _answers(
        self,
        question: str,
        cases: Sequence[Case],
        find: Callable[[list[Case], Validator], Sequence[bool] | None],
    ) -> list[bool]:
        """The answers to a question. ``find`` asks a worker about cases that are new."""
        validator = self._validators.get(question)
        if validator is None:
            return [True] * len(cases)
        keys = [(question, self._key(case)) for case in cases]
        new = {key: case for key, case in zip(keys, cases, strict=True) if key not in self._known}
        if new:
            if self._looking:
                raise NotKnown
            found = find(list(new.values()), validator)
            if found is None:  # a case ended the worker, or took too long: the next one may, too
                del self._validators[question]
                return [True] * len(cases)
            self._known.update(zip(new, found, strict=True))
        return [self._known[key] for key in keys]

    def _run(self, base: Case, cases: list[Case], validator: Validator) -> Sequence[bool] | None:
        key = self._key(base)
        way = self._ways.get(key) or validator.way(base)
        if way is None:
            return None
        self._ways[key] = way
        return [True] * len(cases) if way is Way.NONE else validator.valid(way, cases)

    @staticmethod
    def _trace(cases: list[Case], validator: Validator) -> Sequence[bool] | None:
        return validator.obeys_rules(cases)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Inside of this context no worker is asked."""
        self._looking, before = True, self._looking
        try:
            yield
        finally:
            self._looking = before
