"""Rates of failures that come and go: how often one shows at least, and how many passing runs mean that it is gone."""

from __future__ import annotations

import math

#: The accepted chance that passing runs of a script are taken for the end of a failure that comes and goes.
GONE = 0.01
#: The accepted chance that a failure shows less often than its runs say.
DOUBT = 0.05


def runs_that_tell(shown: int, runs: int, chance: float) -> int:
    """The number of runs in which a case passes each time with at most this ``chance``, if it is one that failed in
    ``shown`` of ``runs`` runs."""
    least = least_rate(shown, runs)
    if least <= 0.0:
        raise ValueError("a case that never failed has no rate")
    return 1 if least >= 1.0 else max(1, math.ceil(math.log(chance) / math.log(1.0 - least)))


def least_rate(shown: int, runs: int) -> float:
    """The lower bound of the rate of a case that failed in ``shown`` of ``runs`` runs (Clopper and Pearson, 1934).

    The chance that the true rate is smaller is `DOUBT`.
    """
    if shown == 0:
        return 0.0
    low, high = 0.0, shown / runs
    for _ in range(50):
        rate = (low + high) / 2
        tail = sum(math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(shown, runs + 1))
        low, high = (low, rate) if tail > DOUBT else (rate, high)
    return low
