"""What a reduction says of itself: where it stands, what each pass cost and brought, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...store.document.case import Case
from ..tracing.trace import Trace


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a reduction stands. ``nodes`` are compute nodes, ``seconds`` wall time."""

    nodes: int
    start_nodes: int
    inputs: int
    queries: int
    pass_name: str
    seconds: float


@dataclass(slots=True)
class PassStats:
    """What one pass cost and brought. ``repeated`` questions needed no asking, those ``unchanged`` changed nothing, and
    ``invalid`` candidates did not run in eager. ``problems`` are errors of the pass itself: what it raised.
    """

    queries: int = 0
    repeated: int = 0
    accepted: int = 0
    nodes_removed: int = 0
    seconds: float = 0.0
    unchanged: int = 0
    invalid: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Result:
    """The smallest case found. ``complete`` is False where the budget ended the reduction; ``reason`` says why."""

    case: Case
    trace: Trace
    queries: int
    seconds: float
    complete: bool
    reason: str = ""
    stats: Mapping[str, PassStats] = field(default_factory=dict)


class BudgetSpent(Exception):
    """The reduction may not go on; what it found stands."""
