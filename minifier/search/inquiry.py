"""The questions of an explanation, put to the oracle of a reduction: counted, logged, and several at a time.

What the reduction has asked before is not asked again. Everything else is in the index before it is asked, under a
name of its own, so that it counts for the explanation and not for the passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from ...store.case import Blobs, Case
from ..oracle.verdict import Verdict
from ..reduction.history import EXPLAIN
from .account import BudgetSpent
from .engine import Oracle as AnyOracle
from .identity import Keys

#: Questions and seconds that an explanation may take.
MOST, SECONDS = 40, 60.0
#: A candidate, and the storages that it needs besides those of the case.
Candidate = tuple[Case, Blobs]


class Log(Protocol):
    """What was answered, by key, and the write-ahead record of what is asked."""

    known: dict[str, Verdict]

    def asked(self, key: str, pass_name: str) -> None: ...

    def answered(self, key: str, verdict: Verdict) -> None: ...


class Inquiry:
    """``put`` makes storages known to the oracle, ``spent`` says whether the budget of the run is, ``told`` is called
    after every answer. ``jobs`` questions are asked at a time, where the oracle can be asked ahead."""

    def __init__(
        self,
        oracle: AnyOracle,
        log: Log,
        keys: Keys,
        put: Callable[[Mapping[str, bytes]], None],
        *,
        jobs: int = 1,
        spent: Callable[[], bool] = lambda: False,
        told: Callable[[Case], None] = lambda case: None,
    ) -> None:
        self.jobs = jobs
        self._oracle = oracle
        self._submit: Callable[[Case], Future[Verdict]] | None = getattr(oracle, "submit", None)
        self._log = log
        self._keys = keys
        self._put = put
        self._spent = spent
        self._told = told
        self._asked = 0
        self._until = time.monotonic() + SECONDS
        self._flying: dict[str, Future[Verdict]] = {}

    def ask(self, case: Case, blobs: Blobs) -> Verdict:
        """The verdict on ``case``. Raises `BudgetSpent` where it is not known and may not be asked."""
        key = self._keys.key(case)
        if key not in self._log.known:
            if key in self._flying:
                verdict = self._flying.pop(key).result()
            elif self._may():
                self._begin(key, blobs)
                verdict = self._oracle.ask(case)
            else:
                raise BudgetSpent("")
            self._log.answered(key, verdict)
            self._told(case)
        return self._log.known[key]

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        """These are going to be asked: begin with as many as there are workers for."""
        if self._submit is None or self.jobs < 2:
            return
        for case, blobs in candidates:
            key = self._keys.key(case)
            if key in self._log.known or key in self._flying:
                continue
            if len(self._flying) >= self.jobs or not self._may():
                return
            self._begin(key, blobs)
            self._flying[key] = self._submit(case)

    def close(self) -> None:
        """Nobody waits for what is still under way."""
        for future in self._flying.values():
            future.cancel()
        self._flying.clear()

    def _may(self) -> bool:
        return self._asked < MOST and time.monotonic() < self._until and not self._spent()

    def _begin(self, key: str, blobs: Blobs) -> None:
        self._asked += 1
        self._put(blobs)
        self._log.asked(key, EXPLAIN)
