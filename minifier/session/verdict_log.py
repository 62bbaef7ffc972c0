"""The verdict log of one reduction: every query before it is sent, and all verdicts, including earlier runs."""

from __future__ import annotations

from ...store.index import Index
from ..oracle.verdict import Outcome, Verdict
from ..reducer.history import EXPLAIN, problem_key


class VerdictLog:
    """Queries and verdicts by key, in memory and in the index."""

    def __init__(self, index: Index, reduction: int, *, before: int = 0) -> None:
        self.index = index
        #: Queries of the attempts before this one.
        self.before = before
        self.reduction = reduction
        earlier = {k: v for k, v in index.verdicts.find(reduction).items() if v.outcome != Outcome.INFRA}
        self.known: dict[str, Verdict] = {
            key: Verdict(Outcome(stored.outcome), seconds=stored.seconds, detail=stored.detail)
            for key, stored in earlier.items()
        }
        #: Which pass asked each query.
        self.passes = {key: stored.pass_name for key, stored in earlier.items()}
        self._problems: set[tuple[str, str]] = set()
        self._used: set[str] = set()

    def problem(self, pass_name: str, text: str) -> bool:
        """Store an error of a pass. False where it is known. It does not count as a query."""
        if (pass_name, text) in self._problems:
            return False
        self._problems.add((pass_name, text))
        key = problem_key(pass_name, text)
        self.index.verdicts.asked(self.reduction, key, pass_name)
        self.index.verdicts.answered(self.reduction, key, Outcome.INFRA, None, 0.0, text)
        return True

    @property
    def queries(self) -> int:
        """The number of queries whose verdicts the reduction needed, for any number of workers and in every run."""
        return len(self._used)

    @property
    def total(self) -> int:
        """The number of queries, including earlier attempts."""
        return self.before + self.queries

    def asked(self, key: str, pass_name: str) -> None:
        self.passes[key] = pass_name
        self.index.verdicts.asked(self.reduction, key, pass_name)

    def answered(self, key: str, verdict: Verdict) -> None:
        self.known[key] = verdict
        digest = verdict.signature.digest if verdict.signature is not None else None
        self.index.verdicts.answered(self.reduction, key, verdict.outcome, digest, verdict.seconds, verdict.detail)

    def used(self, key: str, pass_name: str) -> None:
        if pass_name != EXPLAIN:
            self._used.add(key)
