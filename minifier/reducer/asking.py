"""Questions one after the other, and idle workers for those that may come next.

What is asked ahead is asked for good: it is counted and logged, and its answer is there when somebody wants it. The
order in which answers are wanted is the asker's, so they come out the same whatever was asked ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Protocol

from ...store.document.case import Case
from ..oracle.verdict import Verdict
from .account import BudgetSpent
from .engine import Oracle
from .keys import Keys

#: A candidate, and the name under which it is asked about.
Asked = tuple[Case, str]


class Log(Protocol):
    """What was answered, by key, and the write-ahead record of what is asked."""

    known: dict[str, Verdict]

    def asked(self, key: str, pass_name: str) -> None: ...

    def answered(self, key: str, verdict: Verdict) -> None: ...


class Asking:
    """``may`` says whether one more question may be asked, ``told`` is called after every answer. ``jobs`` questions
    are asked at a time, where the oracle can be asked ahead."""

    def __init__(
        self,
        oracle: Oracle,
        log: Log,
        keys: Keys,
        *,
        jobs: int = 1,
        may: Callable[[], bool] = lambda: True,
        told: Callable[[Case, str, Verdict], None] = lambda case, name, verdict: None,
    ) -> None:
        self._oracle = oracle
        self._submit: Callable[[Case], Future[Verdict]] | None = getattr(oracle, "submit", None)
        self.jobs = jobs if self._submit is not None else 1
        self._log = log
        self._keys = keys
        self._may = may
        self._told = told
        self._flying: dict[str, tuple[Case, str, Future[Verdict]]] = {}
        #: How many questions were asked.
        self.asked = 0

    def known(self, case: Case) -> bool | None:
        """The answer, where it is there."""
        key = self._keys.key(case)
        return self._log.known[key].same if key in self._log.known else None

    def ask(self, case: Case, name: str, later: Callable[[], Iterable[Asked]] = tuple) -> Verdict:
        """The verdict on ``case``; ``later`` may be asked next. Raises `BudgetSpent` where it may not be asked."""
        key = self._keys.key(case)
        while key not in self._log.known:
            if key not in self._flying:
                if not self._may():
                    raise BudgetSpent("")
                self._begin(key, name)
                if self._submit is None or self.jobs < 2:
                    self._learn(key, case, name, self._oracle.ask(case))
                    break
                self._flying[key] = case, name, self._submit(case)
            self.ahead(later())
            self._collect()
        return self._log.known[key]

    def ahead(self, candidates: Iterable[Asked]) -> None:
        """Begin with as many of ``candidates`` as there are idle workers for."""
        if self._submit is None or self.jobs < 2:
            return
        following: Iterator[Asked] = iter(candidates)
        while len(self._flying) < self.jobs and (asked := next(following, None)) is not None:
            case, name = asked
            key = self._keys.key(case)
            if key in self._log.known or key in self._flying:
                continue
            if not self._may():
                return
            self._begin(key, name)
            self._flying[key] = case, name, self._submit(case)

    def close(self) -> None:
        """Nobody waits for what is still under way."""
        for _, _, future in self._flying.values():
            future.cancel()
        self._flying.clear()

    def _begin(self, key: str, name: str) -> None:
        """Count a question and write it down before it is asked."""
        self.asked += 1
        self._log.asked(key, name)

    def _collect(self) -> None:
        """Wait for at least one answer, and note all that are there."""
        done, _ = wait([future for _, _, future in self._flying.values()], return_when=FIRST_COMPLETED)
        for key, (case, name, future) in list(self._flying.items()):
            if future in done:
                del self._flying[key]
                self._learn(key, case, name, future.result())

    def _learn(self, key: str, case: Case, name: str, verdict: Verdict) -> None:
        self._log.answered(key, verdict)
        self._told(case, name, verdict)
