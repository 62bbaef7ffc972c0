"""Services of a minification: the index, the workers, the processes of scripts, the budget and the listener."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from ...backends.provenance.installed import Installed
from ...backends.provenance.spec import BackendSpec
from ...repro_templates.processes import Processes
from ...store.document.case import Case
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index, StepInfo
from ...store.matching import FailureMatcher
from ..consent import AgreedCase
from ..oracle.scheduler import Budget
from ..reporting.emit import Emitter
from ..sandbox.pool import Ended, Workers
from .early_script import EarlyScript
from .events import Listener, Noted, QueryAnswered, StepAccepted
from .options import MinifyOptions
from .other_failures import OtherFailures

#: Where a query takes so many seconds, more workers than one pay.
WORTH_MORE = 0.5


@dataclass(frozen=True, slots=True)
class Services:
    """Made once for each capture and passed to every stage of its minification.

    ``agreed`` is the case that may run here. The stages work on it, on a variant of it, or on a step of its history.
    """

    index: Index
    capture: CaptureInfo
    agreed: AgreedCase
    options: MinifyOptions
    listener: Listener
    pool: Workers
    processes: Processes
    budget: Budget
    early: EarlyScript
    others: OtherFailures

    def note(self, text: str) -> None:
        """Send the listener a message for the user."""
        self.listener(Noted(self.capture.id, text))

    def answered(self, nodes: int, start_nodes: int, stage: str, queries: int) -> None:
        """Store an early script that is ready, and send the listener the progress of the search."""
        self.early.tell()
        self.listener(QueryAnswered(self.capture.id, nodes, start_nodes, queries, stage, self.options.budget))

    def stepped(self, step: StepInfo) -> None:
        """Send the listener a better case."""
        self.listener(StepAccepted(self.capture.id, step.number, step.pass_name, step.nodes, step.inputs, step.queries))

    def spent(self) -> bool:
        return bool(self.budget.spent())

    def again(self, *options: str) -> str:
        """Return the command that minifies the capture again."""
        return shlex.join(["minify", "run", self.index.name, str(self.capture.id), "--again", *options])

    def emitter(self, matcher: FailureMatcher, limit: float) -> Emitter:
        """Return an emitter of scripts whose query may take ``limit`` seconds."""
        return Emitter(self.index, self.capture, self.agreed, matcher, limit, self.processes)

    def installed(self, case: Case, failures: Sequence[Failure]) -> Installed | None:
        """The packages that a worker with the backend loaded finds installed; None if the worker fails."""
        modules = BackendSpec.from_json(case.backend).modules()
        modules += [str(item["module"]) for item in case.imports if "module" in item]
        frames = (frame for failure in failures for frame in failure.frames)
        asked = {"modules": modules, "files": sorted({frame.file for frame in frames if "/" in frame.file})}
        reply = self.pool.submit("describe", asked, timeout=60).result()
        return Installed.load(reply.result) if reply.ended is Ended.DONE else None


def workers_at_a_time(wanted: int, started: int, seconds: float, peak: int) -> int:
    """Return how many workers answer queries at a time.

    These are as many as ``wanted``. If that is 0, it is one where a query takes few ``seconds``. Otherwise it is one
    less than were ``started``, if there is memory for so many that take more than the ``peak`` bytes of the replays.
    """
    if wanted:
        return wanted
    if started < 2 or seconds < WORTH_MORE:
        return 1
    takes = max(1, 3 * peak // 2)
    return max(1, min(started - 1, psutil.virtual_memory().available // takes))
