"""The script as an oracle: every candidate is rendered as a script and run in a fresh process.

It is slow, because each query starts a process with torch and the backend. It is exact, because it sees what the
maintainer will see: a run counts only if a fresh process agrees. It is used where the workers and the script disagree
about a case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...backends.provenance.spec import CannotLoad
from ...repro_templates.processes import Processes
from ...repro_templates.render import render
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.verify import verify
from ...store.document.case import Blobs, Case
from ...store.failure import Failure
from ...store.index import CaptureInfo
from ...store.matching import FailureMatcher
from ...store.signature import signature
from ..oracle.oracle import ONCE, Votes
from ..oracle.verdict import Outcome, Verdict
from ..reporting.emit import START, ways
from ..reporting.export import embedded_from, search_path
from ..reporting.record import make_header


@dataclass(frozen=True, slots=True)
class ScriptOracle:
    """``timeout`` is in seconds, without the start of a process; ``blobs`` has the storages of every candidate."""

    capture: CaptureInfo
    failure: Failure
    matcher: FailureMatcher
    timeout: float
    blobs: Blobs
    processes: Processes
    votes: Votes = ONCE

    def with_votes(self, votes: Votes) -> ScriptOracle:
        """Return this oracle with other votes."""
        return replace(self, votes=votes)

    def ask(self, case: Case, *, fresh: bool = True, votes: Votes | None = None) -> Verdict:
        """SAME where the script shows the failure, PASS where it ends without one, INVALID for everything else.

        A script cannot tell a failure of the backend from an error of the graph. Of several ways to write it one is
        enough.
        """
        verdict = Verdict(Outcome.INVALID)
        for way in ways(case, self.failure):
            verdict = self._ask(case, votes or self.votes, **way)
            if verdict.outcome in (Outcome.SAME, Outcome.FLAKY):
                break
        return verdict

    def _ask(self, case: Case, votes: Votes, **way: bool) -> Verdict:
        header = make_header(self.capture, case, self.failure, queries=0, timeout=self.timeout, **way)
        try:
            rendered = render(case, self.blobs, header=header, embed=True)
        except (Unprintable, CannotLoad) as error:
            return Verdict(Outcome.INVALID, detail=str(error))
        done = verify(
            rendered.text, self.matcher.shows, runs=votes.runs, fresh=1, timeout=self.timeout + START,
            search_path=search_path(case), files=rendered.files, embedded=embedded_from(case), processes=self.processes,
        )  # fmt: skip
        seen = [failure for failure in done.failures if failure is not None]
        failure = next(filter(self.matcher.shows, seen), next(iter(seen), None))
        if done.shown and failure is not None:
            outcome = Outcome.SAME if done.shown >= votes.needed else Outcome.FLAKY
            return Verdict(outcome, signature(failure), failure, detail=f"{done.shown} of {done.runs} runs")
        if failure is None:
            return Verdict(Outcome.PASS, detail=f"0 of {done.runs} runs")
        return Verdict(Outcome.INVALID, detail=done.mismatch)
