"""Asks workers which candidates eager accepts. This is no query: no backend is called, and nothing is logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...store.document.case import Case
from ..candidate.validity import Way
from ..oracle import tasks
from ..sandbox.pool import Ended, Workers


@dataclass(frozen=True, slots=True)
class Validation:
    """A `fxminify.minifier.candidate.validity.Validator` whose questions workers of ``pool`` answer."""

    pool: Workers
    timeout: float

    def way(self, base: Case) -> Way | None:
        """Choose how to check candidates made of ``base``. Return None if the worker fails."""
        reply = self.pool.submit("way", tasks.way_argument(base), timeout=self.timeout).result()
        return Way(reply.result["way"]) if reply.ended is Ended.DONE else None

    def valid(self, way: Way, candidates: Sequence[Case]) -> Sequence[bool] | None:
        """Return for each candidate whether eager accepts it, or None if the worker fails."""
        reply = self.pool.submit("validity", tasks.validity_argument(way, candidates), timeout=self.timeout).result()
        return list(reply.result["valid"]) if reply.ended is Ended.DONE else None

    def obeys_rules(self, cases: Sequence[Case]) -> Sequence[bool] | None:
        """Return for each case whether its subgraphs obey torch's own rules, or None if the worker fails."""
        reply = self.pool.submit("rules", tasks.rules_argument(cases), timeout=self.timeout).result()
        return list(reply.result["obeyed"]) if reply.ended is Ended.DONE else None
