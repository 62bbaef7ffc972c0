"""Luck: the number of runs that tell a variant that passes from a flaky one that only seems to."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...store.text import count
from ..oracle.oracle import Votes

#: The accepted chance that a variant with the rate of the minimal case passes in all its runs.
CHANCE = 0.001
#: The accepted chance that the minimal case fails less often than its runs say.
DOUBT = 0.05
#: The most runs of one variant.
MOST_RUNS = 64
#: Runs of the minimal case that measure its rate: as many as take about `SECONDS`.
FEWEST, MOST, SECONDS = 10, 40, 30.0


@dataclass(frozen=True, slots=True)
class Luck:
    """A minimal case of which ``shown`` of ``runs`` runs failed."""

    shown: int
    runs: int

    @property
    def votes(self) -> Votes:
        """The runs of a variant: one that fails counts, and it passes only if none of them fails."""
        return Votes(1, runs_that_tell(self.shown, self.runs, CHANCE))

    @property
    def refusal(self) -> str:
        """The reason why nothing is judged, empty where variants are judged."""
        if self.shown == 0:
            return f"What matters was not judged: none of {count(self.runs, 'run')} of the minimal case failed."
        if self.votes.runs <= MOST_RUNS:
            return ""
        return (
            f"What matters was not judged: the minimal case fails in {self.shown} of {count(self.runs, 'run')}, and "
            f"each variant would take {self.votes.runs} runs."
        )


def measuring(seconds: float) -> Votes:
    """The runs that measure how often a case fails, if one takes ``seconds``."""
    runs = max(FEWEST, min(MOST, round(SECONDS / max(seconds, 0.01))))
    return Votes(runs, runs, whole=True)


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
