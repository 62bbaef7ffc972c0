"""Shared state of the attempts at one capture: the replayed capture, its workers, its budget and other failures
found.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace

import psutil

from ...backends.provenance.installed import Installed
from ...backends.provenance.spec import BackendSpec
from ...repro_templates.processes import Processes
from ...store.document.case import Case
from ...store.index import CaptureInfo, Index, StepInfo
from ...store.matching import FailureMatcher
from ...store.signature import Signature
from ..consent import AgreedCase
from ..oracle.replay import Replay
from ..oracle.scheduler import Budget
from ..oracle.verdict import Verdict
from ..sandbox.pool import Ended, Pool, Workers
from ..tracing.content_address import content_addressed
from .early_script import EarlyScript
from .events import Listener, Noted, QueryAnswered, StepAccepted
from .head_start import HeadStart
from .options import MinifyOptions

#: Where a query takes so many seconds, more workers than one pay.
WORTH_MORE = 0.5


def again(index: Index, capture: int, *options: str) -> str:
    """The command that minifies a capture again."""
    return shlex.join(["minify", "run", index.name, str(capture), "--again", *options])


@dataclass(frozen=True, slots=True)
class CaptureSession:
    """A replayed capture, and what its attempts share. ``shown`` is what the replays showed."""

    index: Index
    capture: CaptureInfo
    #: What may run here; ``case`` is it, or a variant or a step of it.
    agreed: AgreedCase
    case: Case
    shown: Replay
    pool: Workers
    processes: Processes
    options: MinifyOptions
    listener: Listener
    early: EarlyScript
    #: The reduction and the number of its step that ``case`` comes from; None for the captured case.
    begun: tuple[int, int] | None = None
    budget: Budget = field(default_factory=Budget)
    #: The part of the case that was replayed instead of the whole.
    head_start: HeadStart = field(default_factory=HeadStart)
    #: By signature; sessions that `dataclasses.replace` makes of this one add to the same.
    _other_failures: dict[str, tuple[Case, Verdict]] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        """Workers at a time: as many as the user wants. If that is not said, one where queries are quick, else as many
        as were started, if there is memory for so many that take as much as the replays did."""
        if self.options.jobs:
            return self.options.jobs
        shown = self.shown.entries.get(self.shown.entry)
        if not isinstance(self.pool, Pool) or self.pool.jobs < 2 or shown is None or shown.seconds < WORTH_MORE:
            return 1
        takes = max(1, 3 * self.pool.peak // 2)
        return max(1, min(self.pool.jobs - 1, psutil.virtual_memory().available // takes))

    def note(self, text: str) -> None:
        """Tell the listener a message for the user."""
        self.listener(Noted(self.capture.id, text))

    def answered(self, nodes: int, stage: str, queries: int) -> None:
        """Tell the listener the progress of the search."""
        self.listener(QueryAnswered(self.capture.id, nodes, self.case.graph.count, queries, stage, self.options.budget))

    def stepped(self, step: StepInfo) -> None:
        """Tell the listener that there is a better case."""
        self.listener(StepAccepted(self.capture.id, step.number, step.pass_name, step.nodes, step.inputs, step.queries))

    def installed(self) -> Installed | None:
        """The packages that a worker with the backend loaded finds installed; None if the worker fails."""
        modules = BackendSpec.from_json(self.case.backend).modules()
        modules += [str(item["module"]) for item in self.case.imports if "module" in item]
        frames = (frame for failure in self.shown.matcher.examples for frame in failure.frames)
        asked = {"modules": modules, "files": sorted({frame.file for frame in frames if "/" in frame.file})}
        reply = self.pool.submit("describe", asked, timeout=60).result()
        return Installed.load(reply.result) if reply.ended is Ended.DONE else None

    def spent(self) -> bool:
        return bool(self.budget.spent())

    @property
    def script_matcher(self) -> FailureMatcher:
        """Find in what a script showed the captured failure, as the replays showed it."""
        return replace(self.shown.matcher, strict=False)

    def add_other_failure(self, case: Case, verdict: Verdict) -> None:
        """Remember that ``case`` shows another failure. Of each signature only the smallest case is remembered.

        Some backends refuse a graph without tensors to start from, such as ``torch.arange(3)`` alone. That is no
        failure of a program that has some.
        """
        if verdict.signature is None or (_has_tensors(self.case) and not _has_tensors(case)):
            return
        known = self._other_failures.get(verdict.signature.digest)
        if known is None or case.graph.count < known[0].graph.count:
            self._other_failures[verdict.signature.digest] = case, verdict

    def forget_other_failure(self, signature: Signature) -> None:
        """The failure with this signature is the captured one."""
        self._other_failures.pop(signature.digest, None)

    def store_other_failures(self) -> list[int]:
        """Store each remembered other failure as a capture of its own. Returns the capture ids."""
        known = self.index.captures.known(self._other_failures)
        ids = []
        for digest, (case, verdict) in self._other_failures.items():
            if digest in known or verdict.signature is None:
                continue
            addressed, blobs = content_addressed(case, self.pool.scratch)
            provenance = {"found": f"while minifying capture {self.capture.id}", "torch": addressed.torch}
            ids.append(
                self.index.captures.add(
                    case=addressed,
                    blobs=blobs,
                    failure=verdict.failure,
                    signature=verdict.signature,
                    provenance=provenance,
                    parent=self.capture.id,
                    ours=self.agreed.ours,
                )
            )
        return ids


def _has_tensors(case: Case) -> bool:
    return any(case.input_tensor(index) is not None for index in range(len(case.inputs)))
