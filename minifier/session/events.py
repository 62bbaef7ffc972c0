"""Events of `fxminify.minify`: one frozen dataclass for each kind.

A listener is any callable that takes an event. It is called in the thread that minifies, so it should return
quickly; an exception it raises ends the run like Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...store.index import CaptureInfo


@dataclass(frozen=True, slots=True)
class CaptureStarted:
    """Work on ``capture`` begins."""

    capture: CaptureInfo


@dataclass(frozen=True, slots=True)
class HeadStartBegan:
    """The workers are ready, and look for a small part of the captured graph that fails as captured."""

    capture_id: int


@dataclass(frozen=True, slots=True)
class ReplayStarted:
    """The captured graph is about to be run ``runs`` times or more, to see whether its failure shows here.

    Where a small part of it fails as captured, this part is run instead, and has ``part`` compute nodes.
    """

    capture_id: int
    runs: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class ReplayRan:
    """Run ``number`` of the captured graph, or of a part of it, is over, counted from 1."""

    capture_id: int
    number: int


@dataclass(frozen=True, slots=True)
class ReplayFinished:
    """The failure showed in ``shown`` of ``runs`` runs; ``reason`` explains why it was not reproduced.

    ``entry`` is the way of calling the backend: ``direct``, on the graph, or ``compile``, by `torch.compile`.
    ``part`` has the same meaning as in `ReplayStarted`.
    """

    capture_id: int
    reproduced: bool
    entry: str
    shown: int
    runs: int
    reason: str = ""
    part: int = 0


@dataclass(frozen=True, slots=True)
class QueryAnswered:
    """The backend has judged a candidate.

    ``nodes`` of ``start_nodes`` compute nodes are left after ``queries`` queries. ``stage`` is the running pass, or
    the subject of other queries. ``budget`` is the allowed number of seconds, if any.
    """

    capture_id: int
    nodes: int
    start_nodes: int
    queries: int
    stage: str
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class StepAccepted:
    """A smaller or plainer graph shows the failure, and is the new best case.

    It is step ``number``, counted from 1, and was proposed by ``pass_name``. ``nodes`` and ``inputs`` are counts of
    the graph, ``queries`` is the number of all queries so far.
    """

    capture_id: int
    number: int
    pass_name: str
    nodes: int
    inputs: int
    queries: int


@dataclass(frozen=True, slots=True)
class FirstScript:
    """A script with ``nodes`` compute nodes is stored, and a run of it in a separate process showed the failure.

    The work goes on: the final script replaces it. This event occurs if the failure names the culprit, if a small
    part of the captured graph fails at once, or if a query takes long.
    """

    capture_id: int
    nodes: int


@dataclass(frozen=True, slots=True)
class ScriptVerified:
    """The script was run in ``runs`` processes of their own, and ``shown`` of them showed the failure."""

    capture_id: int
    shown: int
    runs: int


@dataclass(frozen=True, slots=True)
class Noted:
    """Something a person should know, in one sentence."""

    capture_id: int
    text: str


@dataclass(frozen=True, slots=True)
class CaptureFinished:
    """Work on a capture is over; ``capture`` is its row now. ``reason`` says why nothing was done, if nothing was."""

    capture: CaptureInfo
    reason: str = ""


Event = (
    CaptureStarted
    | HeadStartBegan
    | ReplayStarted
    | ReplayRan
    | ReplayFinished
    | QueryAnswered
    | StepAccepted
    | FirstScript
    | ScriptVerified
    | Noted
    | CaptureFinished
)
#: A callable that gets each event when it happens.
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener of those who do not listen."""
