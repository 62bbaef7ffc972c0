"""A hang that only takes long: what is left of it must take much longer than its script waits.

Where a compiler's time grows with the graph, a search ends just above its time limit, and a machine that is a little
faster finishes in time. So the result must last `LASTS_TIMES` as long as the alarm of the script; where it does not,
the search goes on from the last step that does, with as much more patience.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...backends.running import deaths
from ...store.document.case import Case
from ...store.failure import Failure
from .oracle import ALARM_TIMES, LASTS_TIMES, Oracle

if TYPE_CHECKING:
    from ..session.attempt import EntryAttempt

#: How many times the limit of a candidate the result must take.
PATIENCE = ALARM_TIMES * LASTS_TIMES


def limit(attempt: EntryAttempt, case: Case) -> float:
    """Seconds after which ``case`` is known to hang: what a candidate gets, or more where it was given more."""
    oracle = attempt.oracle
    assert isinstance(oracle, Oracle)
    return oracle.timeout_of(case) / oracle.patience * (PATIENCE if attempt.patience is None else attempt.patience)


def alarm(attempt: EntryAttempt, case: Case) -> float:
    """Seconds after which the script of ``case`` gives up; for what is no hang the time limit of a question."""
    if not _is_slow(attempt):
        return attempt.timeout
    return max(1.0, limit(attempt, case) / (1.0 if attempt.patience == 1.0 else LASTS_TIMES))


def seen(attempt: EntryAttempt, case: Case) -> Failure | None:
    """The hang as it was seen of ``case``; None for everything else."""
    if not _is_slow(attempt):
        return None
    shown = attempt.of.shown.failures[0]
    return deaths.hang(shown.phase, round(limit(attempt, case)), diagnostics=shown.diagnostics)


def lasts(attempt: EntryAttempt, case: Case) -> bool:
    """Whether ``case`` takes as long as a result must. Asked once of each case; true of what is no hang."""
    if not _is_slow(attempt) or attempt.patience is not None:
        return True
    key, oracle, log = f"{attempt.descent.keys.key(case)}/lasts", attempt.oracle, attempt.log
    assert isinstance(oracle, Oracle)
    if key not in log.known:
        if attempt.of.spent():
            return True
        attempt.listen(case.graph.count, "does it last?")
        log.asked(key, "lasts")
        oracle.patience = PATIENCE
        try:
            log.answered(key, oracle.ask(case, fresh=True))
        finally:
            oracle.patience = 1.0
    return log.known[key].same


def more_patient(attempt: EntryAttempt) -> EntryAttempt:
    """The attempt that follows one whose result does not last: from its last step that does, with more patience; where
    none does the same again, whose result is taken as it is."""
    found = _last_that_lasts(attempt)
    if found is None:
        return type(attempt)(attempt.of, attempt.entry, patience=1.0)
    number, case = found
    begun = (attempt.log.reduction, number) if number else attempt.of.begun
    return type(attempt)(replace(attempt.of, case=case, begun=begun), attempt.entry, patience=PATIENCE)


def _is_slow(attempt: EntryAttempt) -> bool:
    return isinstance(attempt.oracle, Oracle) and attempt.oracle.healthy > 0


def _last_that_lasts(attempt: EntryAttempt) -> tuple[int, Case] | None:
    """Its number, 0 for the start, by halving: smaller cases take less time."""
    cases = [attempt.descent.start, *(case for case, _ in attempt.descent.path)]
    best, low, high = None, 0, len(cases) - 1
    while low < high:
        middle = (low + high) // 2
        if lasts(attempt, cases[middle]):
            best, low = (middle, cases[middle]), middle + 1
        else:
            high = middle
    return best
