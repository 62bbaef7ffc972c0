"""Writes the steps of one reduction as they are accepted: what each changed, and its case where that is small.

Kept cases may add at most `MOST_BYTES` of values to those that were captured. A larger step is listed without its case;
``--from-step`` cannot start there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...store.document import storages
from ...store.document.case import Blobs, Case
from ...store.index import Index, StepInfo
from ..reducer.history import difference
from ..tracing.content_address import content_addressed

#: A case is kept only while its tensors have at most this many elements.
SMALL = 4 << 20
#: Bytes of recorded values that the steps of one reduction may keep.
MOST_BYTES = 8 << 20


class StepLog:
    """The log of accepted steps.

    ``start`` is the case before the first step, ``blobs`` has the storages of every candidate. Each step is
    reported to the last argument after it is stored.
    """

    def __init__(
        self, index: Index, reduction: int, start: Case, blobs: Blobs, told: Callable[[StepInfo], None]
    ) -> None:
        self.index = index
        self.reduction = reduction
        self.blobs = blobs
        self.told = told
        self.last = start
        self.number = 0
        #: The numbers of the steps by the keys of their cases.
        self.numbers: dict[str, int] = {}
        self._kept = set(start.storages)
        self._bytes = 0
        self._started = time.monotonic()

    def add(self, case: Case, key: str, pass_name: str, queries: int) -> None:
        """Store a step with ``case``, the new best case after ``queries`` queries, and then report it."""
        self.number += 1
        self.numbers[key] = self.number
        step = StepInfo(
            self.number, pass_name, key, case.graph.count, len(case.inputs), queries,
            round(time.monotonic() - self._started, 3), difference(self.last, case),
        )  # fmt: skip
        self.last = case
        self._store(step, case)
        self.told(step)

    def _store(self, step: StepInfo, case: Case) -> None:
        if sum(spec.numel for spec in case.tensors) > SMALL:
            self.index.reductions.add_step(self.reduction, step)
            return
        new = {name: storages.size(self.blobs, name) for name in case.storages - self._kept}
        addressed, blobs = content_addressed(case, self.blobs)
        if self._bytes + sum(new.values()) <= MOST_BYTES:
            self._bytes += sum(new.values())
            self._kept |= set(new)
            self.index.reductions.add_step(self.reduction, step, addressed, blobs)
        else:
            self.index.reductions.add_step(self.reduction, step)
            self.index.reductions.accept(self.reduction, addressed, blobs)

    def finish(self, case: Case, blobs: Blobs) -> None:
        """``case``, which is the last one or as good, ends the reduction: it is kept whatever its size."""
        self.index.reductions.accept(self.reduction, case, blobs, step=self.number or None)
