"""A hang that only takes long: what is left of it must take much longer than its script waits.

Where a compiler's time grows with the graph, a search ends just above its time limit, and a machine that is a little
faster finishes in time. So the result must take `LASTS_TIMES` as long as the alarm of the script. Where it does not,
the search goes on from the last step that does, with time limits that are as much longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...backends.running import deaths
from ...store.document.case import Case
from ...store.failure import Failure
from .oracle import ALARM_TIMES, LASTS_TIMES, Oracle
from .scheduler import BudgetSpent, QueryScheduler
from .verdict import InterestingnessTest, Verdict

#: How many times the limit of a candidate the result must take.
MARGIN = ALARM_TIMES * LASTS_TIMES


class HangMargin:
    """Time limits of what a reduction by ``oracle`` ends with. Only where the failure is a hang there is anything to
    do.

    ``timeout_factor`` is by how much the limits of all candidates were longer than usual. None means that they were
    not, and that the result must still prove to take long enough. ``timeout`` is that of one query, in seconds;
    ``tell`` is called before a case is asked about.
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
        """Seconds after which the script of ``case`` gives up; for what is no hang the time limit of a query."""
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
        """Whether ``case`` takes as long as a result must. Asked once of each case. True of what is no hang, and
        where the budget is spent."""
        oracle = self._oracle
        if oracle is None or self._factor is not None:
            return True

        def ask() -> Verdict:
            self._tell(case)
            return oracle.ask(case, fresh=True)

        oracle.timeout_factor = MARGIN
        try:
            return self._scheduler.ask_once(f"{self._scheduler.key(case)}/lasts", "lasts", ask).same
        except BudgetSpent:
            return True
        finally:
            oracle.timeout_factor = 1.0

    def last_that_lasts(self, cases: Sequence[Case]) -> int | None:
        """The index of the last of ``cases`` that takes long enough, None if none does. The last one is known not to.

        By bisection: smaller cases take less time.
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
        """Seconds after which ``case`` is known to hang: what a candidate gets, or more where it was given more."""
        return oracle.timeout_of(case) / oracle.timeout_factor * (MARGIN if self._factor is None else self._factor)
