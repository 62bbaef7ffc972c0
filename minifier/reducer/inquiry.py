"""The questions of an explanation, put to the oracle of a reduction: counted, logged, and several at a time.

What the reduction has asked before is not asked again. Everything else is in the index before it is asked, under a
name of its own, so that it counts for the explanation and not for the passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...store.document.case import Blobs, Case
from ..oracle.verdict import Verdict
from .asking import Asked, Asking, Log
from .engine import Oracle as AnyOracle
from .history import EXPLAIN
from .keys import Keys

#: Questions and seconds that an explanation may take.
MOST, SECONDS = 40, 60.0
#: A candidate, and the storages that it needs besides those of the case.
Candidate = tuple[Case, Blobs]


class Inquiry:
    """``put`` makes storages known to the oracle, ``spent`` says whether the budget of the run is, ``told`` is called
    after every answer. ``jobs`` questions are asked at a time, where the oracle can be asked ahead."""

    def __init__(
        self,
        oracle: AnyOracle,
        log: Log,
        keys: Keys,
        put: Callable[[Mapping[str, bytes]], None],
        *,
        jobs: int = 1,
        spent: Callable[[], bool] = lambda: False,
        told: Callable[[Case], None] = lambda case: None,
    ) -> None:
        self._put = put
        self._spent = spent
        self._asking = Asking(
            oracle, log, keys, jobs=jobs, may=self._may, told=lambda case, name, verdict: told(case)
        )  # fmt: skip
        self.jobs = jobs
        self._until = time.monotonic() + SECONDS

    def ask(self, case: Case, blobs: Blobs) -> Verdict:
        """The verdict on ``case``. Raises `BudgetSpent` where it is not known and may not be asked."""
        self._put(blobs)
        return self._asking.ask(case, EXPLAIN)

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        """These are going to be asked: begin with as many as there are workers for."""
        self._asking.ahead(self._ready(candidates))

    def close(self) -> None:
        """Nobody waits for what is still under way."""
        self._asking.close()

    def _ready(self, candidates: Sequence[Candidate]) -> Iterator[Asked]:
        for case, blobs in candidates:
            self._put(blobs)
            yield case, EXPLAIN

    def _may(self) -> bool:
        return self._asking.asked < MOST and time.monotonic() < self._until and not self._spent()
