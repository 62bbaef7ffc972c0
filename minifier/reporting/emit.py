"""Render, verify and store the script of a minimal case, and verify stored scripts again.

A script is stored with the result of its verification: k of n runs, each in a process of its own, showed it. It is
shown only if k is not 0. The script names these numbers itself, so it is rendered again where fewer runs than expected
showed the failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...backends.provenance.installed import Installed
from ...backends.provenance.spec import InvalidSpec
from ...backends.running.confinement import wanted
from ...repro_templates.context import Header
from ...repro_templates.processes import Processes, Script
from ...repro_templates.render import Rendered, render
from ...repro_templates.source.higher_order import has_public_form
from ...repro_templates.source.inputs import NeedsData
from ...repro_templates.verify import Verification, verify
from ...store.document.case import Blobs, Case
from ...store.document.program_lines import comes_from
from ...store.errors import StoreError
from ...store.failure import ILL_CONDITIONED, VALUES, Failure, FailureKind, Phase
from ...store.index import CaptureInfo, Index, State, StoredCapture
from ...store.index.bugs import COMES_FROM
from ...store.matching import FailureMatcher
from ...store.measured import EVIDENCE, MEASURED, as_measured
from ...store.rates import GONE, runs_that_tell
from ..consent import NOT_TRUSTED, AgreedCase, Confirm, Tell, may_run, refuse, silent
from ..reducer.guess import with_random_values
from ..tracing.content_address import content_addressed
from . import record
from .export import embedded_from, search_path, stored_repro, without_script
from .record import make_header

#: Gives the failure of the case of a script as a worker sees it; where its argument is true, with the gradients of the
#: sum of the outputs. None where that is not known.
Evidence = Callable[[bool], Failure | None]
#: Runs of a script that measure how often a flaky failure shows, the most where it does not show, and how many are made
#: before it is looked whether `RATE_SECONDS` are over.
RATE_RUNS, MOST_RUNS, BATCH, RATE_SECONDS = 20, 40, 6, 120.0
#: Seconds that a fresh process may take to import torch and a backend, besides what the failure itself takes.
START = 120.0


def no_evidence(summed: bool) -> Failure | None:
    """Know nothing of the case of a script."""
    return None


@dataclass(frozen=True, slots=True)
class Draft:
    """A script of ``case`` that was run, and is not stored yet."""

    done: Verification
    header: Header
    rendered: Rendered
    case: Case
    blobs: Blobs


class Emitter:
    """Renders, verifies and stores the script of one capture, whose case is ``agreed``.

    ``timeout`` is the limit of one query, in seconds.
    """

    def __init__(
        self,
        index: Index,
        capture: CaptureInfo,
        agreed: AgreedCase,
        matcher: FailureMatcher,
        timeout: float,
        processes: Processes,
    ) -> None:
        self.index = index
        self.capture = capture
        self.agreed = agreed
        self.matcher = matcher
        self.timeout = timeout
        self.processes = processes

    def draft(
        self,
        case: Case,
        blobs: Blobs,
        *,
        failure: Failure,
        queries: int,
        runs: int,
        embed: bool,
        replays: str = "",
        installed: Installed | None = None,
        early: bool = False,
        complete: bool = True,
        evidence: Evidence = no_evidence,
    ) -> Draft:
        """Render the script and run it. Safe in another thread. Raises `Unprintable` and `CannotLoad`.

        ``replays`` says how often the whole graph failed, unless it always did. ``installed`` was found by a
        worker. The run of an ``early`` script may be forked from a process that has only done the imports of the
        script. ``failure`` may belong to a larger graph: the script states the failure of its own run, and also the
        ``evidence`` about this very case. ``complete`` is False if the search for smaller cases was stopped.
        """
        more = {
            "runs": f"{runs} of {runs}", "replays": replays, "installed": installed or Installed(),
            "complete": complete and not early,
        }  # fmt: skip
        best: Draft | None = None
        for way in ways(case, failure):
            header = make_header(self.capture, case, failure, queries=queries, timeout=self.timeout, **way, **more)
            rendered = render(case, blobs, header=header, embed=embed)
            fresh = 0 if early else runs if replays else 1
            done = self._verified(rendered, case, runs=runs, fresh=fresh, again=not early)
            if best is None or done.shown > best.done.shown:
                best = Draft(done, header, rendered, case, blobs)
            if done.shown == done.runs:
                break
        assert best is not None
        if not early and (replays or 0 < best.done.shown < best.done.runs):
            best = replace(best, done=self._more_runs(best, replays))
        done, header = best.done, best.header
        if done.shown != done.runs:
            header = replace(
                header, runs=f"{done.shown} of {done.runs}", tentative=done.mismatch if not done.shown else ""
            )
        if seen := next((one for one in done.failures if one is not None and self.matcher.shows(one)), None):
            known = evidence(header.summed) if failure.kind is FailureKind.DIVERGENCE else None
            header = replace(header, failure=of_the_script(case, known or failure, seen, measured=known is not None))
        if header == best.header:
            return best
        return replace(best, header=header, rendered=render(case, blobs, header=header, embed=embed))

    def _more_runs(self, draft: Draft, replays: str) -> Verification:
        """Run the script of a failure that comes and goes until its rate is known, or it should have shown.

        ``replays`` says how often the whole graph failed.
        """
        done, began = draft.done, time.monotonic()
        shown, _, of = replays.partition(" of ")
        least = runs_that_tell(int(shown), int(of), GONE) if replays and int(shown) else 0
        while (missing := (RATE_RUNS if done.shown else max(RATE_RUNS, min(least, MOST_RUNS))) - done.runs) > 0:
            if time.monotonic() - began > RATE_SECONDS:
                break
            batch = self._verified(draft.rendered, draft.case, runs=min(missing, BATCH), fresh=min(missing, BATCH))
            done = done.with_more(batch)
        return done

    def _verified(self, rendered: Rendered, case: Case, *, runs: int, fresh: int, again: bool = True) -> Verification:
        return verify(
            rendered.text,
            self.matcher.shows,
            runs=runs,
            fresh=fresh,
            again=again,
            timeout=self.timeout + START,
            search_path=search_path(case),
            files=rendered.files,
            embedded=embedded_from(case),
            processes=self.processes,
        )

    def early_draft(
        self, case: Case, blobs: Blobs, *, failure: Failure, queries: int = 0, embed: bool = False
    ) -> Draft:
        """A script that is run once, beside the work that leads to the final one. Raises as `draft` does.

        Where the values of ``case`` do not fit into a script, random ones may do.
        """
        try:
            return self.draft(case, blobs, failure=failure, queries=queries, runs=1, embed=embed, early=True)
        except NeedsData:
            if (drawn := with_random_values(case)) is None:
                raise
            return self.draft(drawn, {}, failure=failure, queries=queries, runs=1, embed=embed, early=True)

    def prepare(self, case: Case, failure: Failure) -> None:
        """Begin with the imports of scripts for the backend of ``case``, and do not wait for them.

        Raises `Unprintable` and `CannotLoad`.
        """
        header = make_header(self.capture, case, failure, queries=0, timeout=self.timeout, runs="", replays="")
        text = render(case, {}, header=header).text
        self.processes.prepare(Script(text, self.timeout + START, search_path(case)))

    def store(self, draft: Draft) -> tuple[State, str]:
        """Store a script. Return its state, and the reason if it is not verified.

        A script that does not show the failure never replaces one that did.
        """
        done = draft.done
        kept = None if done.shown else self.index.repros.get(self.capture.id, "script")
        if kept is not None and kept.verified:
            return State.UNVERIFIED, f"the script does not show the failure: {done.mismatch}"
        case, blobs = content_addressed(draft.case, draft.blobs)
        self.index.repros.save(
            self.capture.id, "script", draft.rendered.text, verified=done.shown, runs=done.runs, log=done.log,
            case=case, blobs=blobs, ours=self.agreed.ours,
        )  # fmt: skip
        record.keep(self.index, self.capture.id, draft.header)
        if done.shown:
            self.index.captures.show_as(self.capture.id, draft.header.failure)
        self.index.artifacts.save(self.capture.id, COMES_FROM, comes_from(draft.case.graph))
        if done.shown:
            return State.VERIFIED, ""
        return State.UNVERIFIED, f"the script does not show the failure: {done.mismatch}"


def of_the_script(case: Case, failure: Failure, seen: Failure, *, measured: bool) -> Failure:
    """``failure`` as a run of the script of ``case`` showed it, which is ``seen``.

    The figures of a comparison with float64 stay where they were ``measured`` on this case.
    """
    if failure.kind in (FailureKind.COMPILE_ERROR, FailureKind.RUNTIME_ERROR) and failure.type == seen.type:
        return replace(failure, message=seen.message, causes=seen.causes)
    if failure.kind is not FailureKind.DIVERGENCE:
        return failure
    if not measured:
        detail = {name: value for name, value in failure.detail.items() if name not in (*EVIDENCE, "others")}
        failure = replace(failure, detail=detail)
    rows = [{**row, "where": _place(case, failure, row["item"])} for row in seen.detail.get(MEASURED, ())]
    return as_measured(failure, rows, seen.message)


def _place(case: Case, failure: Failure, item: int) -> str:
    """Return the name that a comparison in a worker gives to a result. ``item`` is its number in the script."""
    if failure.detail.get("class") == "mutation":
        return f"input {item}"
    if failure.phase is not Phase.BACKWARD:
        return f"output {item}"
    specs = [(i, case.input_tensor(i)) for i in range(len(case.inputs))]
    wanted = [i for i, spec in specs if spec is not None and spec.requires_grad]
    return f"gradient of input {wanted[item] if item < len(wanted) else item}"


def ways(case: Case, failure: Failure) -> list[dict[str, bool]]:
    """Fields of the header to try in order: the script as a person would write it first.

    That shows fewer failures: the gradients of the sum of the outputs, and control flow as functions of torch.
    """
    wrong = (
        failure.kind is FailureKind.DIVERGENCE
        and failure.phase is Phase.BACKWARD
        and failure.detail.get("class") in (*VALUES, ILL_CONDITIONED)
    )
    forms = (True, False) if has_public_form(case.graph) else (True,)
    return [
        {"summed": summed, "public": public} for public in forms for summed in ((True, False) if wrong else (False,))
    ]


def verify_stored(
    db: str,
    ids: Sequence[int],
    *,
    runs: int,
    timeout: float,
    trust: bool = False,
    sandbox: bool = False,
    confirm: Confirm = refuse,
    tell: Tell = silent,
) -> list[dict[str, Any]]:
    """Run the stored scripts again, all or the ones of ``ids``. Return a row for each, in order.

    A verified script stays verified: that a bug is gone here does not make its script wrong. A script that shows
    its failure for the first time becomes verified. A row has ``cannot_run`` if the script or its case cannot be
    read, or if the script is from elsewhere and not trusted. Raises `StoreError` if one of ``ids`` has no script,
    and `NoConfinement` if a ``sandbox`` is not available.
    """
    answers = []
    with Index.open(db, readonly=True) as index, Processes(wanted(sandbox)) as processes:
        for capture in index.captures.find(ids):
            row = {"id": capture.id, "shown": 0, "runs": 0, "signature": capture.signature, "mismatch": ""}
            if capture.problem:
                answers.append({**row, "cannot_run": capture.problem})
                continue
            try:
                stored = index.stored(capture.id)
            except StoreError as error:
                answers.append({**row, "cannot_run": str(error)})
                continue
            if stored.script is None:
                if ids:
                    raise without_script(index, capture)
                continue
            try:
                agreed = may_run(
                    capture.id, stored.captured(), script=stored.script, trust=trust, confirm=confirm,
                    sandbox=sandbox, tell=tell,
                )  # fmt: skip
                if agreed is None:
                    raise StoreError(NOT_TRUSTED)
                done = _again(index, capture, agreed, stored, runs, timeout, processes)
            except (StoreError, InvalidSpec) as error:  # the others are run
                answers.append({**row, "cannot_run": str(error)})
                continue
            if done.shown and capture.state is State.UNVERIFIED:
                with Index.open(db) as writable:
                    writable.repros.save(
                        capture.id, "script", agreed.script, verified=done.shown, runs=done.runs, log=done.log,
                        ours=agreed.ours,
                    )  # fmt: skip
                    writable.captures.set_state(capture.id, State.VERIFIED)
            reason = "" if done.shown else done.blocked_reason
            row |= {"shown": done.shown, "runs": done.runs, "mismatch": done.mismatch, "cannot_run": reason}
            answers.append(row)
    return answers


def _again(
    index: Index,
    capture: CaptureInfo,
    agreed: AgreedCase,
    stored: StoredCapture,
    runs: int,
    timeout: float,
    processes: Processes,
) -> Verification:
    _, files, _ = stored_repro(index, capture.id, "script", unverified=True, stored=stored)
    matcher = FailureMatcher((capture.to_show(),))
    return verify(
        agreed.script, matcher.shows, runs=runs, timeout=timeout, search_path=search_path(agreed.case), files=files,
        embedded=embedded_from(agreed.case), processes=processes,
    )  # fmt: skip
