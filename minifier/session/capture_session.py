"""What the attempts at one capture have in common: the capture as it was replayed, its workers, and the budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...backends.provenance.installed import Installed
from ...backends.provenance.spec import BackendSpec
from ...store.document.case import Case
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index, StepInfo
from ...store.index.trust import is_ours, origin_tag
from ..oracle.replay import Likeness, Replay
from ..oracle.scheduler import Budget
from ..oracle.verdict import Verdict
from ..sandbox.pool import Ended, Workers
from ..tracing.content_address import content_addressed
from .events import Listener, Noted, QueryAnswered, StepAccepted
from .options import MinifyOptions


@dataclass(slots=True)
class CaptureSession:
    """A capture that was replayed, the workers that know its backend, and what its attempts have in common."""

    index: Index
    capture: CaptureInfo
    case: Case
    shown: Replay
    pool: Workers
    options: MinifyOptions
    listener: Listener
    #: The reduction and the step of it that ``case`` is from, where it is not the captured one.
    begun: tuple[int, int] | None = None
    others: dict[str, tuple[Case, Verdict]] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)

    def note(self, text: str) -> None:
        """Tell the listener something that a person should know."""
        self.listener(Noted(self.capture.id, text))

    def answered(self, nodes: int, stage: str, queries: int) -> None:
        """Tell the listener how far the search is."""
        self.listener(QueryAnswered(self.capture.id, nodes, self.case.graph.count, queries, stage, self.options.budget))

    def stepped(self, step: StepInfo) -> None:
        """Tell the listener that there is a better case."""
        self.listener(StepAccepted(self.capture.id, step.number, step.pass_name, step.nodes, step.inputs, step.queries))

    def installed(self) -> Installed | None:
        """What a worker that has compiled with the backend finds installed; None where it does not say."""
        modules = BackendSpec.from_json(self.case.backend).modules()
        modules += [str(item["module"]) for item in self.case.imports if "module" in item]
        reply = self.pool.submit("describe", {"modules": modules}, timeout=60).result()
        return Installed.load(reply.result) if reply.ended is Ended.DONE else None

    def spent(self) -> bool:
        return bool(self.budget.spent())

    def is_shown(self, failure: Failure) -> bool:
        """Whether a failure seen in a fresh process is the captured one, or one of those that the replays showed."""
        target = self.shown.target
        likeness = Likeness(self.shown.failures[0], target.match, target.error_regex)
        return target.shows(failure) or likeness.holds(failure)

    def keep_others(self) -> list[int]:
        """Store the other failures that candidates showed, the smallest example of each, as captures of their own."""
        known = {c.signature for c in self.index.captures.find()}
        ids = []
        for digest, (case, verdict) in self.others.items():
            if digest in known or verdict.signature is None:
                continue
            addressed, blobs = content_addressed(case, self.pool.scratch)
            provenance = {"found": f"while minifying capture {self.capture.id}", "torch": addressed.torch}
            if is_ours(self.case, self.capture.provenance.get("origin")):
                provenance["origin"] = origin_tag(addressed)
            ids.append(
                self.index.captures.add(
                    case=addressed,
                    blobs=blobs,
                    failure=verdict.failure,
                    signature=verdict.signature,
                    provenance=provenance,
                    parent=self.capture.id,
                )
            )
        return ids
