"""The query scheduler: all queries of a search, which are logged and counted, go through it.

It owns the key of a candidate, the verdicts that are known, the write-ahead log and the budget, and keeps the workers
of the oracle busy. The shrinker, explanations, confirmation votes and hang margins are its clients.

A client asks for one verdict at a time and may name candidates that it is likely to ask about next. Idle workers answer
those ahead of time. Such a query counts and is logged like any other. The client still receives the verdicts in its own
order, so its result does not depend on the number of workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Protocol

from ...store.document.case import Case
from ...store.text import count
from .keys import Keys
from .verdict import InterestingnessTest, Outcome, Verdict

#: A candidate, and the name of the pass (or other client) that asks about it.
Query = tuple[Case, str]
#: Ends the key of a query that a worker answers which has answered nothing else.
FRESH = "/fresh"


class BudgetSpent(Exception):
    """No more queries may be asked. What was found so far is valid."""


class WriteAheadLog(Protocol):
    """Records each query before it is sent, and its verdict.

    ``known`` holds all verdicts by key, including the verdicts of an earlier run of the same reduction. ``used`` is
    called with each verdict that a client needed; verdicts of queries that were sent ahead may never be needed.
    """

    known: dict[str, Verdict]

    def asked(self, key: str, name: str) -> None: ...

    def answered(self, key: str, verdict: Verdict) -> None: ...

    def used(self, key: str, name: str) -> None: ...


class MemoryLog:
    """A log that is kept in memory only. It starts with the verdicts of an earlier run, without failures of our own."""

    def __init__(self, known: Mapping[str, Verdict] | None = None) -> None:
        self.known = {k: v for k, v in (known or {}).items() if v.outcome is not Outcome.INFRA}

    def asked(self, key: str, name: str) -> None:
        pass

    def answered(self, key: str, verdict: Verdict) -> None:
        self.known[key] = verdict

    def used(self, key: str, name: str) -> None:
        pass


class Budget:
    """A limit on queries and on seconds from now on. None means without limit.

    `reserve` seconds of these are kept for the work after the queries.
    """

    def __init__(
        self,
        queries: int | None = None,
        seconds: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queries = queries
        self.seconds = seconds
        self.asked = 0
        self.reserve = 0.0
        self.clock = clock
        self.started = clock()

    def spent(self) -> str:
        """Return the limit that is used up, such as ``9 queries``, or an empty text if none is."""
        if self.queries is not None and self.asked >= self.queries:
            return count(self.queries, "query")
        if self.seconds is not None and self.clock() - self.started >= self.seconds - self.reserve:
            return f"{self.seconds:g} seconds"
        return ""


class QueryScheduler:
    """Sends queries to ``oracle``.

    More than one of ``jobs`` needs an oracle that has ``submit``. ``answered(case, name, verdict)`` is called after
    every answer to `ask`.
    """

    def __init__(
        self,
        oracle: InterestingnessTest,
        *,
        jobs: int = 1,
        log: WriteAheadLog | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._wanted_jobs = jobs
        self.switch_to(oracle)
        self.log: WriteAheadLog = log if log is not None else MemoryLog()
        first = budget if budget is not None else Budget()
        self.clock = first.clock
        self._budgets = [first]
        self._flying: dict[str, tuple[Case, str, Future[Verdict]]] = {}
        self._keys = Keys()
        #: The number of queries that were asked, without those that an earlier run answered.
        self.queries = 0
        self.answered: Callable[[Case, str, Verdict], None] = lambda case, name, verdict: None

    def switch_to(self, oracle: InterestingnessTest) -> None:
        """Send the queries from now on to ``oracle``, such as the same one with stricter votes."""
        self._oracle = oracle
        self._submit: Callable[..., Future[Verdict]] | None = getattr(oracle, "submit", None)
        self.jobs = self._wanted_jobs if self._submit is not None else 1

    def key(self, case: Case) -> str:
        return self._keys.key(case)

    def known(self, case: Case) -> bool | None:
        """Whether ``case`` shows the failure, None where that is not known yet."""
        verdict = self.log.known.get(self.key(case))
        return None if verdict is None else verdict.same

    def use(self, case: Case, name: str) -> None:
        """Note that ``name`` needed the verdict on ``case``, which is `known`."""
        self.log.used(self.key(case), name)

    def spent(self) -> str:
        """Return the budget that is used up, or an empty text while there is something left."""
        return next(filter(None, (budget.spent() for budget in self._budgets)), "")

    @contextmanager
    def limited(self, budget: Budget) -> Iterator[None]:
        """Inside this context queries count against ``budget`` as well."""
        self._budgets.append(budget)
        try:
            yield
        finally:
            self._budgets.remove(budget)
            self.withdraw()

    def ask(self, case: Case, name: str, following: Callable[[], Iterable[Query]] = tuple) -> Verdict:
        """The verdict on ``case``. ``following`` gives the queries that may come next, the likeliest first.

        Raises `BudgetSpent` where the verdict is not known and no more queries may be asked.
        """
        key = self.key(case)
        while key not in self.log.known:
            if key not in self._flying:
                self._begin(key, name)
                if self._submit is None or self.jobs < 2:
                    self._learn(key, case, name, self._oracle.ask(case))
                    break
                self._flying[key] = case, name, self._submit(case)
            self.ahead(following())
            self._collect()
        self.log.used(key, name)
        return self.log.known[key]

    def confirm(self, case: Case, name: str) -> Verdict:
        """Return the verdict of an unused worker on ``case``. It may have been asked for by `begin_to_confirm`.

        Needs an oracle whose ``ask`` and ``submit`` take ``fresh``. Raises `BudgetSpent` as `ask` does.
        """
        key = self.key(case) + FRESH
        while key not in self.log.known:
            if key in self._flying:
                self._collect()
            else:
                self._begin(key, name)
                self._learn(key, case, name, self._oracle.ask(case, fresh=True))  # type: ignore[call-arg]
        self.log.used(key, name)
        return self.log.known[key]

    def begin_to_confirm(self, case: Case, name: str) -> None:
        """Have an unused worker asked about ``case`` beside other queries, if there are several workers."""
        key = self.key(case) + FRESH
        if self._submit is None or self.jobs < 2 or key in self.log.known or key in self._flying or self.spent():
            return
        self._begin(key, name)
        self._flying[key] = case, name, self._submit(case, fresh=True)

    def ahead(self, queries: Iterable[Query]) -> None:
        """Start as many of ``queries`` as there are idle workers. What is known or under way is skipped."""
        if self._submit is None or self.jobs < 2:
            return
        remaining = iter(queries)
        while len(self._flying) < self.jobs and (query := next(remaining, None)) is not None:
            case, name = query
            key = self.key(case)
            if key in self.log.known or key in self._flying:
                continue
            if self.spent():
                return
            self._begin(key, name)
            self._flying[key] = case, name, self._submit(case)

    def ask_once(self, key: str, name: str, ask: Callable[[], Verdict]) -> Verdict:
        """The verdict of a special query, such as a vote: ``ask`` is called once in the life of a reduction.

        ``key`` starts with the key of the case. Raises `BudgetSpent` as `ask` does.
        """
        if key not in self.log.known:
            self._begin(key, name)
            self.log.answered(key, ask())
        self.log.used(key, name)
        return self.log.known[key]

    def correct(self, key: str, verdict: Verdict) -> None:
        """Replace a verdict that turned out to be wrong."""
        self.log.answered(key, verdict)

    def withdraw(self) -> None:
        """Cancel all running queries. Their answers are not needed any more."""
        for _, _, future in self._flying.values():
            future.cancel()
        self._flying.clear()

    def _begin(self, key: str, name: str) -> None:
        """Count a query, and write it down before it is asked."""
        if spent := self.spent():
            raise BudgetSpent(spent)
        for budget in self._budgets:
            budget.asked += 1
        self.queries += 1
        self.log.asked(key, name)

    def _collect(self) -> None:
        """Wait for at least one answer, and note all that are there."""
        done, _ = wait([future for _, _, future in self._flying.values()], return_when=FIRST_COMPLETED)
        for key, (case, name, future) in list(self._flying.items()):
            if future in done:
                del self._flying[key]
                self._learn(key, case, name, future.result())

    def _learn(self, key: str, case: Case, name: str, verdict: Verdict) -> None:
        self.log.answered(key, verdict)
        self.answered(case, name, verdict)
