"""Whether a bug is fixed on this installation: its script is run again, and where that passes, its captured graph, too.

A minimal graph may pass because it shows too little of the failure by now, while the graph that it was made of still
fails (https://github.com/google/oss-fuzz/issues/1732). Then the bug is not fixed, and its capture is minified again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...backends.provenance.spec import BackendSpec, CannotLoad
from ...minifier.consent import AgreedCase, may_run, refuse
from ...minifier.oracle.replay import LIMIT, replay
from ...minifier.regression.retest import RetestOptions, installation, keep, retest_case, run
from ...minifier.sandbox.launcher import BackendImportError, SandboxError
from ...minifier.session.options import MinifyOptions
from ...minifier.session.replays import variants
from ...minifier.session.resources import SharedResources
from ...repro_templates.processes import Processes
from ...store.errors import StoreError
from ...store.failure import Failure
from ...store.index import Index, Retest, RetestResult
from ...store.matching import FailureMatcher


@dataclass(frozen=True, slots=True)
class BugRetest:
    """The results of a script, and of the captured graph if it was run as well.

    ``versions`` are the versions of torch and of the package of the backend.
    """

    script: Retest
    versions: dict[str, str]
    graph: RetestResult | None = None
    reason: str = ""

    @property
    def is_fixed(self) -> bool:
        return self.script.result is RetestResult.FIXED and self.graph is RetestResult.FIXED

    @property
    def fails(self) -> bool:
        return RetestResult.FAILING in (self.script.result, self.graph)

    @property
    def is_stale(self) -> bool:
        """The script passes, and the graph that it was made of fails."""
        return self.script.result is RetestResult.FIXED and self.graph is RetestResult.FAILING

    def __str__(self) -> str:
        parts = [f"its script: {self.script.result}", self.script.message]
        if self.graph is not None:
            parts += [f"its captured graph: {self.graph}", self.reason]
        return "; ".join(part for part in parts if part)


def retest_bug(index: Index, capture_id: int, options: MinifyOptions) -> BugRetest | None:
    """Run the script of a capture, whose lease this index holds, and perhaps its graph. The result of the script is
    stored. Returns None where they may not run here. Raises `StoreError` where there is no verified script."""
    asked = RetestOptions(trust=options.trust)
    capture, stored = index.captures.get(capture_id), index.stored(capture_id)
    if stored.script is None or not stored.script.repro.verified:
        raise StoreError(f"capture {capture_id} has no verified script")
    case = retest_case(index, capture, stored, "", asked, refuse)
    graph = may_run(capture_id, stored.captured(), trust=options.trust)
    if graph is None or case.agreed is None:
        return None
    with Processes(None) as processes:
        found, _ = run(case, asked.timeout, processes)
    found = keep(index, case, found)
    versions = {name: text for name, text in installation(case.distribution).items() if name != "python"}
    if found.result is not RetestResult.FIXED:
        return BugRetest(found, versions)
    failure = capture.to_show()
    return BugRetest(found, versions, *_graph(index, graph, failure, replace(options, replays=case.runs)))


def _graph(index: Index, agreed: AgreedCase, failure: Failure, options: MinifyOptions) -> tuple[RetestResult, str]:
    """Run the captured graph. Return its result, and the reason if it cannot run."""
    case = agreed.case
    if problem := BackendSpec.from_json(case.backend).problem:
        return RetestResult.CANNOT_RUN, problem
    seconds = failure.detail.get("seconds")
    limit = float(seconds) if isinstance(seconds, int | float) else LIMIT
    others: list[str] = []
    try:
        with SharedResources(options) as resources:
            pool = resources.workers(agreed)
            pool.scratch.put(index.blobs.view(case.storages))
            for way in variants(case, failure):
                shown = replay(pool, way, FailureMatcher((failure,)), runs=options.replays, limit=limit)
                if shown.reproduced:
                    return RetestResult.FAILING, ""
                others += [] if shown.passes else [shown.reason.replace("\n", "; ")]
    except (BackendImportError, CannotLoad, SandboxError) as error:
        return RetestResult.CANNOT_RUN, str(error)
    return (RetestResult.CHANGED, others[0]) if others else (RetestResult.FIXED, "")
