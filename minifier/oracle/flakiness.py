"""Does what is left fail as often as what was captured did? If not, since which step?

A candidate is kept for one answer, or for one vote, and a reduction asks many: luck in one of them is likely, and a
failure that always showed may come and go once its case is small. So the result is replayed as often as the capture
was. Where that is in doubt, *firm* votes decide: about the result, about the captured case, which may come and go
by itself, and by bisection about the steps between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from ...store.document.case import Case
from .oracle import MOST_VOTES, Votes
from .verdict import Outcome, Verdict

#: Cases with their keys, in the order in which they were accepted.
Path = Sequence[tuple[Case, str]]
#: Runs of a firm vote about what always showed, and the share of them that may be missed by nature.
FIRM = 10
MISSED = 0.1
#: Runs of a vote about what comes and goes, once luck has misled the search.
HARD = 12


class Asked(Protocol):
    """An oracle that can be told how many votes a question takes."""

    votes: Votes

    def ask(self, case: Case, *, votes: Votes | None = None) -> Verdict: ...


class Log(Protocol):
    """What was answered, by key, and the write-ahead record of what is asked."""

    known: dict[str, Verdict]

    def asked(self, key: str, pass_name: str) -> None: ...

    def answered(self, key: str, verdict: Verdict) -> None: ...


def firm(rate: float, least: float | None = None, runs: int = MOST_VOTES) -> Votes:
    """Votes that tell a case which fails as often as it must from one that does not: at ``rate``, where that is 1, else
    at half of it; at ``least`` if one is given. ``runs`` are those of what comes and goes."""
    runs = FIRM if rate >= 1.0 else runs
    share = least if least is not None else 1.0 - MISSED if rate >= 1.0 else rate / 2
    return Votes(max(1, math.ceil(share * runs)), runs)


class Steadiness:
    """What is known of how often cases fail. ``rate`` is that of the ``replays`` of the capture, ``least`` the share
    that a person asked for. Every answer is in the ``log``, under the key of the case and a name."""

    def __init__(
        self,
        oracle: Asked,
        log: Log,
        *,
        rate: float = 1.0,
        replays: int = 1,
        least: float | None = None,
        firmly: Votes | None = None,
        name: str = "again",
        spent: Callable[[], bool] = lambda: False,
    ) -> None:
        self._oracle = oracle
        self._log = log
        self._name = name
        self._spent = spent
        self._firm = firmly or firm(rate, least)
        self._harder = self._firm if rate >= 1.0 else firm(rate, least, max(HARD, oracle.votes.runs))
        # The answer that a case was kept for is one replay of it.
        self._quick = Votes(replays - 1, replays - 1) if rate >= 1.0 and least is None else oracle.votes
        # What comes and goes passes too many votes by luck; the one about the result is firm at once.
        self._hard = rate < 1.0
        known = log.known.items()
        if any(key.endswith(f"/{name}/firm") and not verdict.same for key, verdict in known):
            self.harden()

    def since(self, start: Case, path: Path, *, doubted: bool = False) -> int | None:
        """The index of the first step of ``path`` since which the failure shows less often than in ``start``; None
        where its end shows it often enough, or ``start`` does not either. ``doubted`` has the firm vote at once."""
        at_once = doubted or self._hard
        if not path or (not at_once and self._shows(*path[-1], self._quick, "")) or self.holds(*path[-1]):
            return None
        return self.first(path) if self.holds(start, "start") else None

    def first(self, path: Path) -> int:
        """`since`, where the end of ``path`` is known to be flaky and what it began with is not."""
        low, high = 0, len(path) - 1
        while low < high:
            middle = (low + high) // 2
            if self.holds(*path[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def holds(self, case: Case, key: str) -> bool:
        """Whether a firm vote on ``case`` says that it fails."""
        return self._shows(case, key, self._firm, "/firm")

    def harden(self) -> None:
        """From now on luck is rare in every vote. What must always fail is out of one after two misses."""
        self._hard = True
        self._oracle.votes = self._harder

    def _shows(self, case: Case, key: str, votes: Votes, kind: str) -> bool:
        key = f"{key}/{self._name}{kind}"
        if key not in self._log.known:
            if not votes.runs or self._spent():
                return True
            self._log.asked(key, self._name)
            self._log.answered(key, self._oracle.ask(case, votes=votes))
        verdict = self._log.known[key]
        return verdict.same or verdict.outcome in (Outcome.INVALID, Outcome.INFRA)  # these say nothing of it
