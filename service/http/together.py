"""Combine simultaneous requests to the index into one query.

While one query runs, further requests wait; together they become the next query. So an idle server answers at once,
and a busy one asks its index a few times a second, and not for each request.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from ...store.errors import StoreError, is_full, is_temporary

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


class Together(Generic[_Question, _Answer]):
    """Has ``answer`` answer questions, those that wait together, but not more than ``most`` at once, by their ``size``.

    Where it raises `StoreError` for several, each is asked by itself, so that none fails because of another one. May be
    shared by threads.
    """

    def __init__(
        self,
        name: str,
        answer: Callable[[Sequence[_Question]], Sequence[_Answer]],
        *,
        most: int,
        size: Callable[[_Question], int] = lambda question: 1,
    ) -> None:
        self._answer, self._most, self._size = answer, most, size
        self._lock = threading.Lock()
        self._waiting: list[tuple[_Question, Future[_Answer]]] = []
        self._is_asking = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"fxminify {name}")

    def ask(self, question: _Question) -> Future[_Answer]:
        """The answer, or what asking raised, in a while."""
        future: Future[_Answer] = Future()
        with self._lock:
            self._waiting.append((question, future))
            if self._is_asking:
                return future
            self._is_asking = True
        self._thread.submit(self._ask)
        return future

    def _ask(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_asking = False
                    return
                sizes = itertools.accumulate(self._size(question) for question, _ in self._waiting)
                number = max(1, sum(size <= self._most for size in sizes))
                batch, self._waiting = self._waiting[:number], self._waiting[number:]
            self._settle(batch)

    def _settle(self, batch: Sequence[tuple[_Question, Future[_Answer]]]) -> None:
        try:
            answers = self._answer([question for question, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised where it was asked
            if len(batch) > 1 and isinstance(error, StoreError) and not (is_full(error) or is_temporary(error)):
                for one in batch:
                    self._settle([one])
                return
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
