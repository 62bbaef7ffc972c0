"""A reduction of a made case without workers: its oracle is a function, its index a few dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any

from made import Held

from fxminify.minifier.candidate.trace import Trace
from fxminify.minifier.oracle.oracle import Votes, tally
from fxminify.minifier.oracle.scheduler import QueryScheduler
from fxminify.minifier.oracle.verdict import Outcome, Verdict
from fxminify.minifier.passes import PASSES, Pass
from fxminify.minifier.sandbox.pool import Ended, Reply
from fxminify.minifier.session.options import MinifyOptions
from fxminify.minifier.session.reduction import Reduction, Search
from fxminify.minifier.session.verdict_log import VerdictLog
from fxminify.store.document.case import Case
from fxminify.store.index import StepInfo

Rate = Callable[[Case], float]


class Moody:
    """A case fails in a share of its runs: ``rate(case)`` of them, drawn from a seeded generator."""

    def __init__(self, rate: Rate, seed: int, votes: Votes) -> None:
        self.rate, self.rng, self.votes = rate, Random(seed), votes
        self.asked = self.runs = 0

    def with_votes(self, votes: Votes) -> Moody:
        """The same one, which goes on counting, with other votes."""
        self.votes = votes
        return self

    def ask(self, case: Case, *, fresh: bool = False, votes: Votes | None = None) -> Verdict:
        self.asked += 1
        verdicts: list[Verdict] = []
        while (verdict := tally(verdicts, votes or self.votes) if verdicts else None) is None:
            self.runs += 1
            verdicts.append(Verdict(Outcome.SAME if self.rng.random() < self.rate(case) else Outcome.PASS))
        return verdict

    def replace_workers(self) -> None:
        """A new one is as moody."""


class Book:
    """The index, as far as a descent writes to it."""

    def __init__(self, verdicts: dict[str, Any] | None = None) -> None:
        self.answers: dict[str, Any] = dict(verdicts or {})
        self.names: dict[str, str] = {}
        self.steps: list[StepInfo] = []
        self.notes: list[str] = []
        self.reductions = self

    def find(self, reduction: int) -> dict[str, Any]:
        return self.answers

    def asked(self, reduction: int, key: str, name: str) -> None:
        self.names[key] = name

    def answered(self, reduction: int, key: str, outcome: str, digest: str, seconds: float, detail: str) -> None:
        self.answers[key] = SimpleNamespace(
            outcome=outcome, seconds=seconds, detail=detail, pass_name=self.names.get(key, "")
        )

    def add_step(self, reduction: int, step: StepInfo, *case: Any) -> None:
        self.steps.append(step)

    def accept(self, *best: Any) -> None:
        pass


def descent(
    case: Case,
    trace: Trace,
    rate: Rate,
    seed: int,
    *,
    oracle: Any = None,
    shown: float = 1.0,
    book: Book | None = None,
    passes: tuple[Pass, ...] = PASSES,
    **options: Any,
) -> tuple[Reduction, Any, Book]:
    """Return the reduction of ``case``, its oracle and its index. A candidate fails in a share of its runs."""
    book = book or Book()
    chosen = MinifyOptions(**options)
    oracle = oracle or Moody(rate, seed, Votes.for_rate(shown, chosen.min_rate))
    failed: Future[Reply] = Future()
    failed.set_result(Reply(Ended.INFRA))
    held = Held({spec.storage: bytes(4 * spec.numel) for spec in (*case.tensors, *trace.tensors) if spec.storage})
    index: Any = SimpleNamespace(reductions=book, verdicts=book)
    services: Any = SimpleNamespace(
        index=index, options=chosen, others=SimpleNamespace(add=lambda case, verdict: None),
        pool=SimpleNamespace(
            scratch=held, submit=lambda *a, **k: failed, replace_workers=oracle.replace_workers
        ),
        note=book.notes.append, stepped=lambda step: None, answered=lambda *progress: None,
    )  # fmt: skip
    log = VerdictLog(index, 1)
    scheduler = QueryScheduler(oracle, log=log)
    search = Search(case, trace, rate=shown, timeout=10.0, passes=passes)
    return Reduction(search, services, oracle, scheduler, log, lambda case, waited: None), oracle, book
