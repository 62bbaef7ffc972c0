"""What a person can say about a reduction, and who is told how it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class PassFailed(Exception):
    """A pass raised, or made a patch that cannot be applied, and the reduction is strict."""


@dataclass(frozen=True, slots=True)
class MinifyOptions:
    """The options of `minify run`. Times are in seconds, ``memory`` in GiB; 0 ``jobs`` are as many as there is room for
    on the cluster of the ``executor``, or 1. ``min_rate`` is the share of runs in which the failure must show, of a
    candidate and of the result."""

    jobs: int = 1
    match: str = "exact"
    error_regex: str | None = None
    replays: int = 3
    runs: int = 3
    budget: float | None = None
    max_queries: int | None = None
    timeout: float | None = None
    memory: float | None = None
    embed_data: bool = False
    trust: bool = False
    explain: bool = True
    from_step: int | None = None
    executor: str | None = None
    strict: bool = False
    min_rate: float | None = None


class Listener(Protocol):
    """Is told how a reduction goes."""

    def step(self, *, nodes: int, start: int, queries: int, stage: str, budget: float | None = None) -> None: ...

    def note(self, text: str) -> None: ...
