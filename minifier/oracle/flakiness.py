"""Check that the result of a reduction fails as often as the captured case did. If not, find the step that is to blame.

A candidate is accepted after one answer or one vote. A reduction asks many queries, so one of them may show the failure
by chance, and a failure that always showed may become flaky as the case gets smaller. Therefore the result is replayed
as often as the capture was. Where that leaves a doubt, *confirmation votes* decide: first about the result, then about
the captured case, which may be flaky itself, then by bisection about the steps between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from ...store.document.case import Case
from .oracle import MOST_VOTES, Votes
from .scheduler import BudgetSpent, QueryScheduler
from .verdict import Outcome, Verdict

#: Cases with their keys, in the order in which they were accepted.
Path = Sequence[tuple[Case, str]]
#: Runs of a confirmation vote about a failure that always showed, and the share of them that may pass.
CONFIRMATIONS = 10
MISSED = 0.1
#: Runs of a vote about a flaky failure, once a chance answer has misled the search.
STRICT_RUNS = 12


class VotingOracle(Protocol):
    """An oracle that runs a candidate as often as ``votes`` says."""

    @property
    def votes(self) -> Votes: ...

    def with_votes(self, votes: Votes) -> VotingOracle: ...

    def ask(self, case: Case, *, fresh: bool = False, votes: Votes | None = None) -> Verdict: ...


def confirmation_votes(rate: float, least: float | None = None, runs: int = MOST_VOTES) -> Votes:
    """Votes that tell a case which fails as often as it must from one that does not.

    A case must fail at ``rate`` where that is 1, else at half of it, or at ``least`` if that is given. ``runs`` is the
    number of runs for a failure that comes and goes.
    """
    runs = CONFIRMATIONS if rate >= 1.0 else runs
    share = least if least is not None else 1.0 - MISSED if rate >= 1.0 else rate / 2
    return Votes(max(1, math.ceil(share * runs)), runs)


class Flakiness:
    """The failure rate of cases, and the votes that confirm them.

    `oracle` answers about candidates: the given one, or the same with stricter votes after a chance answer.
    ``rate`` is the share of the ``replays`` of the capture that failed. ``least`` is the share that the user requires.
    ``confirm`` replaces the usual confirmation votes. Every vote is logged under the key of its case and ``name``.
    """

    def __init__(
        self,
        oracle: VotingOracle,
        scheduler: QueryScheduler,
        *,
        rate: float = 1.0,
        replays: int = 1,
        least: float | None = None,
        confirm: Votes | None = None,
        name: str = "again",
    ) -> None:
        self.oracle = oracle
        self._scheduler = scheduler
        self._name = name
        self._confirm = confirm or confirmation_votes(rate, least)
        self._strict = (
            self._confirm if rate >= 1.0 else confirmation_votes(rate, least, max(STRICT_RUNS, oracle.votes.runs))
        )  # fmt: skip
        # The answer that a case was accepted for is one replay of it.
        self._quick = Votes(replays - 1, replays - 1) if rate >= 1.0 and least is None else oracle.votes
        # A flaky failure passes many votes by chance, so the first vote about the result is a confirmation vote.
        self._at_once = rate < 1.0
        known = scheduler.log.known.items()
        if any(key.endswith(f"/{name}/confirmed") and not verdict.same for key, verdict in known):
            self.use_stricter_votes()

    def first_flaky(self, start: Case, path: Path, *, doubted: bool = False) -> int | None:
        """The index of the first step of ``path`` since which the failure shows less often than in ``start``.

        None where the end of the path shows it often enough, or where ``start`` does not either. ``doubted`` asks for
        the confirmation vote at once.
        """
        at_once = doubted or self._at_once
        if not path or (not at_once and self._shows(*path[-1], self._quick, "")) or self.confirms(*path[-1]):
            return None
        return self.bisect(path) if self.confirms(start, "start") else None

    def bisect(self, path: Path) -> int:
        """`first_flaky`, where the end of ``path`` is known to be flaky and what it began with is not."""
        low, high = 0, len(path) - 1
        while low < high:
            middle = (low + high) // 2
            if self.confirms(*path[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def confirms(self, case: Case, key: str) -> bool:
        """Whether a confirmation vote on ``case`` says that it fails. True where the budget is spent."""
        return self._shows(case, key, self._confirm, "/confirmed")

    def use_stricter_votes(self) -> None:
        """Use the stricter vote for every candidate from now on. What must always fail is out after two misses."""
        self._at_once = True
        self.oracle = self.oracle.with_votes(self._strict)

    def _shows(self, case: Case, key: str, votes: Votes, kind: str) -> bool:
        if not votes.runs:
            return True
        ask: Callable[[], Verdict] = lambda: self.oracle.ask(case, votes=votes)  # noqa: E731
        try:
            verdict = self._scheduler.ask_once(f"{key}/{self._name}{kind}", self._name, ask)
        except BudgetSpent:
            return True
        return verdict.same or verdict.outcome in (Outcome.INVALID, Outcome.INFRA)  # these say nothing of it
