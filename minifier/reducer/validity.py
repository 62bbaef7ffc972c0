"""Which candidates eager accepts, found out without the backend: such a question is no query.

A worker answers it (`fxminify.minifier.tracing.validity`), and every answer is kept. The answers are a function of the
case, so a reduction remains a function of the verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...store.document.case import Case
from ..candidate.validity import Validator, Way

#: A run of a graph with more compute nodes than this takes longer than it saves.
MOST_NODES = 32


class NotKnown(Exception):
    """The shrinker looks ahead, and does not wait for a worker to do so."""


class KnownValidity:
    """The answers of ``validator`` so far, by the key of the candidate. Without one every candidate counts as valid."""

    def __init__(self, validator: Validator | None, key: Callable[[Case], str]) -> None:
        self._validator = validator
        self._key = key
        self._ways: dict[str, Way] = {}
        self._known: dict[str, bool] = {}
        self._looking = False

    def __call__(self, base: Case, candidates: Sequence[Case]) -> tuple[bool, ...]:
        """For each candidate whether eager accepts it, as it does ``base``. True if that is not known.

        Raises `NotKnown` inside `looking` if a worker would have to be asked.
        """
        if self._validator is None or len(base.graph.compute) > MOST_NODES:
            return (True,) * len(candidates)
        keys = [self._key(case) for case in candidates]
        new = {key: case for key, case in zip(keys, candidates, strict=True) if key not in self._known}
        if new:
            if self._looking:
                raise NotKnown
            self._known.update(zip(new, self._find(base, list(new.values()), self._validator), strict=True))
        return tuple(self._known[key] for key in keys)

    def _find(self, base: Case, candidates: list[Case], validator: Validator) -> Sequence[bool]:
        key = self._key(base)
        way = self._ways.get(key) or validator.way(base)
        found = None
        if way is not None:
            self._ways[key] = way
            found = [True] * len(candidates) if way is Way.NONE else validator.valid(way, candidates)
        if found is None:  # a candidate ended the worker, or took too long: the next one may, too
            self._validator = None
        return [True] * len(candidates) if found is None else found

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Inside of this context no worker is asked."""
        self._looking, before = True, self._looking
        try:
            yield
        finally:
            self._looking = before
