"""Check that the result of reducing a hang takes much longer than its script waits.

If the time of a compiler grows with the graph, the search ends just above the time limit, and a slightly faster machine
finishes in time. Therefore the result must take `LASTS_TIMES` as long as the alarm of the script. If it does not, the
search continues from the last step that does, with longer time limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...backends.running import deaths
from ...store.document.case import Case
from ...store.failure import Failure
from .oracle import ALARM_TIMES, LASTS_TIMES, Oracle
from .scheduler import BudgetSpent, QueryScheduler
from .verdict import InterestingnessTest, Verdict

#: How many times the limit of a candidate the result must take.
MARGIN = ALARM_TIMES * LASTS_TIMES


class HangMargin:
    """Time limits of the result of a reduction by ``oracle``. For other failures than hangs it does nothing.

    ``timeout_factor`` is the factor by which the limits of all candidates were longer than usual. None means that they
    were as usual, so the result must still be checked. ``timeout`` is the limit of one query, in seconds. ``tell`` is
    called before a query.
    """

    def __init__(
        self,
        oracle: InterestingnessTest,
        scheduler: QueryScheduler,
        failure: Failure,
        *,
        timeout: float,
        timeout_factor: float | None = None,
        tell: Callable[[Case], None] = lambda case: None,
    ) -> None:
        self._oracle = oracle if isinstance(oracle, Oracle) and oracle.healthy > 0 else None
        self._scheduler = scheduler
        self._failure = failure
        self._timeout = timeout
        self._factor = timeout_factor
        self._tell = tell

    def alarm(self, case: Case) -> float:
        """Seconds after which the script of ``case`` gives up. For other failures the time limit of a query."""
        if self._oracle is None:
            return self._timeout
        return max(1.0, self._limit(self._oracle, case) / (1.0 if self._factor == 1.0 else LASTS_TIMES))

    def failure(self, case: Case) -> Failure | None:
        """The hang of ``case`` as it was seen; None for every other failure."""
        if self._oracle is None:
            return None
        seconds = round(self._limit(self._oracle, case))
        return deaths.hang(self._failure.phase, seconds, diagnostics=self._failure.diagnostics)

    def lasts(self, case: Case) -> bool:
        """Whether ``case`` takes as long as a result must. Each case is asked about once.

        True where the failure is no hang, and where the budget is spent.
        """
        oracle = self._oracle
        if oracle is None or self._factor is not None:
            return True

        def ask() -> Verdict:
            self._tell(case)
            return oracle.in_full_time(MARGIN).ask(case, fresh=True)

        try:
            return self._scheduler.ask_once(f"{self._scheduler.key(case)}/lasts", "lasts", ask).same
        except BudgetSpent:
            return True

    def last_that_lasts(self, cases: Sequence[Case]) -> int | None:
        """The index of the last of ``cases`` that takes long enough, None if none does. The last case does not.

        Uses bisection, because smaller cases take less time.
        """
        best, low, high = None, 0, len(cases) - 1
        while low < high:
            middle = (low + high) // 2
            if self.lasts(cases[middle]):
                best, low = middle, middle + 1
            else:
                high = middle
        return best

    def _limit(self, oracle: Oracle, case: Case) -> float:
        """Seconds after which ``case`` is known to hang: the longest time limit under which it was run."""
        return replace(oracle, timeout_factor=MARGIN if self._factor is None else self._factor).timeout_of(case)
