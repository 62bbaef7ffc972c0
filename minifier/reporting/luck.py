"""Luck: the number of runs that tell a variant that passes from a flaky one that only seems to."""

from __future__ import annotations

from dataclasses import dataclass

from ...store.rates import runs_that_tell
from ...store.text import count
from ..oracle.oracle import Votes

#: The accepted chance that a variant with the rate of the minimal case passes in all its runs.
CHANCE = 0.001
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
