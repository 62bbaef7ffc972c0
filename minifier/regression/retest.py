"""`minify retest`: runs every minimal case of an index with the packages that are installed now.

A case is a verified script, run as `minify verify` runs it: in processes of their own, in an empty directory. For
another backend the case is rendered again with that backend. The outcome is a `RetestResult`: the captured failure
still shows, every run of the script ends without a failure, something else fails, or the compiler was never reached.
Each result is stored at once, so an interrupted retest can be resumed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from ...backends.provenance.spec import BackendSpec, CannotLoad, InvalidSpec
from ...backends.running.confinement import Confinement, wanted
from ...repro_templates.processes import Processes
from ...repro_templates.render import render
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.inputs import SIDE_FILE
from ...repro_templates.verify import Verification, verify
from ...store.errors import StoreError
from ...store.failure import FailureKind
from ...store.index import CaptureInfo, Index, Retest, RetestResult, StoredCapture
from ...store.index.database import now
from ...store.matching import FailureMatcher
from ...store.rates import GONE, runs_that_tell
from ...store.signature import signature
from ..consent import NOT_TRUSTED, AgreedCase, Confirm, Tell, may_run, refuse, silent
from ..oracle.ablation import named
from ..reporting.export import alarm, embedded_from, search_path, stored_repro
from ..reporting.record import make_header
from ..reporting.script_file import python_path
from ..reporting.standing import NOT_MINIFIED, UNRECORDED, Expect, Standing, as_expected, history, standing

#: The most runs of one case.
MOST_RUNS = 60


@dataclass(frozen=True, slots=True)
class RetestOptions:
    """``runs`` processes for each case (at least 2), ``timeout`` seconds for each; ``jobs`` cases at a time."""

    backends: tuple[str, ...] = ()
    expect: Expect = Expect.KNOWN
    runs: int = 2
    timeout: float = 600.0
    jobs: int = 1
    trust: bool = False
    sandbox: bool = False
    record: bool = True
    again: bool = False


@dataclass(frozen=True, slots=True)
class RetestCase:
    """A minimal case and the backend to run it under.

    ``agreed`` is what may run, None where nothing may. ``text`` is its script, or one rendered from its case, ``files``
    are stored beside it.
    """

    capture: CaptureInfo
    backend: str
    own: bool
    agreed: AgreedCase | None = None
    text: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    search_path: tuple[str, ...] = ()
    embedded: str = ""
    runs: int = 2
    #: It failed in so many runs of so many when its script was verified.
    shown: int = 1
    of: int = 1
    #: How many runs are fresh processes at least, as `verify` counts them.
    fresh: int = 1
    #: Why there is no script to run.
    blocked_reason: str = NOT_TRUSTED
    distribution: str = ""

    @property
    def name(self) -> str:
        return f"{self.capture.id}[{self.capture.signature}{'' if self.own else f'-{self.backend}'}]"


@dataclass(frozen=True, slots=True)
class RetestAnswer:
    """The result of a case. ``retest`` is None for a case that was never minified; ``message`` is the reason."""

    case: RetestCase
    retest: Retest | None
    expected: bool
    standing: Standing | None
    message: str = ""
    #: The end of the output of each run.
    log: str = ""
    #: The result is from before an interruption; the case was not run again.
    resumed: bool = False

    @property
    def result(self) -> str:
        return NOT_MINIFIED if self.retest is None else self.retest.result.value

    def to_json(self) -> dict[str, Any]:
        capture, found = self.case.capture, self.retest
        row: dict[str, Any] = {
            "id": capture.id, "signature": capture.signature, "kind": capture.kind, "backend": self.case.backend,
            "result": self.result, "as_expected": self.expected, "message": self.message,
        }  # fmt: skip
        if found is None:
            return row
        row |= {"shown": found.shown, "runs": found.runs, "seconds": found.seconds, "versions": dict(found.versions),
                "at": found.at, "other_signature": found.signature}  # fmt: skip
        if self.standing is not None:
            row |= {"since": self.standing.since.at, "changed": self.standing.changed(),
                    "standing": self.standing.text(), "first_seen": capture.created}  # fmt: skip
        return row


def retest(
    db: str,
    ids: Sequence[int],
    options: RetestOptions,
    *,
    confirm: Confirm = refuse,
    tell: Tell = silent,
    begin: Callable[[list[RetestCase]], None] = lambda cases: None,
    done: Callable[[RetestAnswer], None] = lambda answer: None,
) -> list[RetestAnswer]:
    """Run the minimal cases of the captures ``ids`` of ``db`` again, or all. Returns the answers in order.

    ``begin`` is called with all cases to run, ``done`` with each answer as it arrives. Raises `StoreError`, and
    `NoConfinement` where ``options.sandbox`` cannot be had.
    """
    confinement = wanted(options.sandbox)
    with Index.open(db, readonly=not options.record) as index:
        if options.record:
            index.settle()
        cases, skipped = collect(index, ids, options, confirm, tell)
        begin(cases)
        known = index.retests.find([c.id for c in index.captures.find(ids)] if ids else [])
        round_id: int | None = None
        answered: list[Retest] = []
        if options.record:
            config = {"cases": [s.name for s in cases], "runs": options.runs, "versions": installation()}
            round_id, answered = index.retests.begin_round(config, resume=not options.again)
        earlier = {(row.capture, row.backend): row for row in answered}
        before = [row for row in known if row.id not in {r.id for r in answered}]
        answers = {answer.case.name: answer for answer in skipped}

        def answer(case: RetestCase, found: Retest, log: str = "", *, resumed: bool = False) -> None:
            made = replace(judge(case, found, before, options.expect), log=log, resumed=resumed)
            answers[case.name] = made
            done(made)

        for case in [s for s in cases if (s.capture.id, s.backend) in earlier]:
            answer(case, earlier[case.capture.id, case.backend], resumed=True)
        todo = [s for s in cases if s.name not in answers]
        for case, found, log in _run_all(todo, options, confinement):
            answer(case, keep(index, case, found, round_id) if options.record else found, log)
        if round_id is not None:
            index.retests.finish_round(round_id)
    return sorted(answers.values(), key=lambda a: (a.case.capture.id, not a.case.own, a.case.backend))


def collect(
    index: Index, ids: Sequence[int], options: RetestOptions, confirm: Confirm, tell: Tell = silent
) -> tuple[list[RetestCase], list[RetestAnswer]]:
    """The cases to run, and an answer for each capture that has none."""
    cases, skipped = [], []
    for capture in index.captures.find(ids):
        if capture.problem:
            cases.append(RetestCase(capture, capture.backend, own=True, blocked_reason=capture.problem))
            continue
        try:
            stored = index.stored(capture.id)
        except StoreError as error:  # the others are run
            cases.append(RetestCase(capture, capture.backend, own=True, blocked_reason=str(error)))
            continue
        if stored.script is None or not stored.script.repro.verified:
            case = RetestCase(capture, capture.backend, own=True)
            skipped.append(
                RetestAnswer(case, None, expected=True, standing=None, message=_unminified(index, capture, stored))
            )
            continue
        for name in options.backends or ("",):
            try:
                case = retest_case(index, capture, stored, name, options, confirm, tell)
            except (StoreError, InvalidSpec) as error:  # the others are run
                own = name in ("", capture.backend)
                case = RetestCase(capture, capture.backend if own else name, own, blocked_reason=str(error))
            cases.append(case)
    return cases, skipped


def _unminified(index: Index, capture: CaptureInfo, stored: StoredCapture) -> str:
    if stored.script is not None:
        return f"its script never showed the failure: {capture.reason or capture.state}"
    if capture.state == "unsupported":
        return f"it has no script, and cannot have one: {capture.reason}"
    return f"{capture.state}, it has no script: minify run {index.name} {capture.id}"


def retest_case(
    index: Index,
    capture: CaptureInfo,
    stored: StoredCapture,
    name: str,
    options: RetestOptions,
    confirm: Confirm,
    tell: Tell = silent,
) -> RetestCase:
    """The verified script of a capture, or its minimal case under the backend ``name``, as far as it may run. Raises
    `StoreError` and `InvalidSpec`."""
    assert stored.script is not None
    repro, own = stored.script.repro, name in ("", capture.backend)
    case = RetestCase(
        capture, capture.backend if own else name, own, shown=repro.verified, of=repro.runs,
        runs=min(enough(repro.verified, repro.runs, options.runs), max(MOST_RUNS, options.runs)),
    )  # fmt: skip
    failure = capture.to_show()
    if own:
        captured = stored.captured()
        agreed = may_run(
            capture.id, captured, script=stored.script, trust=options.trust, confirm=confirm, sandbox=options.sandbox,
            tell=tell,
        )  # fmt: skip
        if agreed is None:
            return case
        _, files, _ = stored_repro(index, capture.id, "script", stored=stored)
        return replace(
            case,
            agreed=agreed,
            text=agreed.script,
            files=tuple(files.items()),
            search_path=(*search_path(agreed.case), *python_path()),
            embedded=embedded_from(agreed.case),
            distribution=BackendSpec.from_json(agreed.case.backend).distribution,
            fresh=0 if repro.verified == repro.runs else case.runs,
            blocked_reason="",
        )
    minimal = stored.minimal()
    spec = named(name, BackendSpec.from_json(minimal.case.backend))
    minimal = replace(minimal, case=replace(minimal.case, backend=spec.to_json()))
    agreed = may_run(
        capture.id, minimal, trust=options.trust, confirm=confirm, sandbox=options.sandbox, tell=tell
    )  # fmt: skip
    if agreed is None:
        return case
    best = agreed.case
    header = make_header(capture, best, failure, queries=capture.queries, timeout=alarm(repro.text))
    try:
        rendered = render(best, index.blobs.view(best.storages), header=header, embed=SIDE_FILE in repro.text)
    except (Unprintable, CannotLoad) as error:
        return replace(case, blocked_reason=f"no script can be printed: {error}")
    return replace(
        case, agreed=agreed, text=rendered.text, files=tuple(rendered.files.items()),
        search_path=(*search_path(best), *python_path()), distribution=spec.distribution, blocked_reason="",
    )  # fmt: skip


def enough(verified: int, of: int, runs: int) -> int:
    """The number of passing runs that make a script fixed whose failure showed in ``verified`` of ``of`` runs."""
    return max(runs, 2, 1 if verified >= of else runs_that_tell(verified, of, GONE))


def _run_all(
    cases: Sequence[RetestCase], options: RetestOptions, confinement: Confinement | None
) -> Iterator[tuple[RetestCase, Retest, str]]:
    """Yield each case with its retest and its log as they arrive. After Ctrl-C no process is left running."""
    with Processes(confinement) as processes, ThreadPoolExecutor(options.jobs) as together:
        waiting: dict[Future[tuple[Retest, str]], RetestCase] = {}
        left = iter(cases)
        try:
            while True:
                for case in left:
                    waiting[together.submit(run, case, options.timeout, processes)] = case
                    if len(waiting) == options.jobs:
                        break
                if not waiting:
                    return
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), *future.result()
        except BaseException:
            processes.stop()
            raise


def run(case: RetestCase, timeout: float, processes: Processes) -> tuple[Retest, str]:
    """Run a case in ``processes``. Returns the retest, not yet stored, and the log. Raises `Stopped` if these were."""
    started = time.monotonic()
    capture = case.capture
    found = Verification(0, 0, blocked_reason=case.blocked_reason or NOT_TRUSTED)
    if case.agreed is not None and not case.blocked_reason:
        found = verify(
            case.text,
            FailureMatcher((capture.to_show(),)).shows,
            runs=case.runs,
            fresh=case.fresh,
            timeout=timeout,
            search_path=case.search_path,
            files=dict(case.files),
            embedded=case.embedded,
            processes=processes,
        )
    result, message, other = classify(found)
    needed = enough(case.shown, case.of, case.runs)
    if result is RetestResult.FIXED and case.runs < needed:
        result = RetestResult.CANNOT_RUN
        before = f"it failed in {case.shown} of {case.of} before"
        message = f"it passes in all of {case.runs} runs, but {needed} would tell: {before}"
    versions = installation(case.distribution) | dict(found.versions)
    seconds = round(time.monotonic() - started, 1)
    retest = Retest(
        UNRECORDED, capture.id, case.backend, result, message, other, found.shown, found.runs, seconds, versions, now()
    )
    return retest, found.log


def classify(found: Verification) -> tuple[RetestResult, str, str]:
    """The outcome of the runs of a script: the result, a message, and the digest of another failure."""
    if found.shown:
        return RetestResult.FAILING, "" if found.shown == found.runs else f"in {found.shown} of {found.runs} runs", ""
    if found.blocked_reason:
        return RetestResult.CANNOT_RUN, found.blocked_reason, ""
    failure = next((f for f in found.failures if f is not None), None)
    if failure is not None and failure.kind is FailureKind.CRASH and failure.signal == 9:
        return RetestResult.CANNOT_RUN, "it was killed (SIGKILL), probably because memory ran out", ""
    if failure is not None:
        return RetestResult.CHANGED, failure.headline(), signature(failure).digest
    if found.passed == found.runs:
        return RetestResult.FIXED, "", ""
    return RetestResult.CHANGED, f"run without watching it, {found.log.rpartition('[plain: ')[2].partition(',')[0]}", ""


def keep(index: Index, case: RetestCase, found: Retest, round_id: int | None = None) -> Retest:
    """Store ``found``. Returns it as stored. Nothing is stored of a capture that cannot be read."""
    if case.capture.problem:
        return found
    return index.retests.add(
        case.capture.id, case.backend, found.result, message=found.message, signature=found.signature,
        shown=found.shown, runs=found.runs, seconds=found.seconds, versions=found.versions, round_id=round_id,
    )  # fmt: skip


def judge(case: RetestCase, found: Retest, known: Sequence[Retest], expect: Expect) -> RetestAnswer:
    """The answer for the retest ``found``, given the retests ``known`` before."""
    torch = found.versions.get("torch", "")
    before = history(case.capture, case.backend, known, torch=torch)
    expected = found.result is not RetestResult.CANNOT_RUN and as_expected(found, before, case.own, expect)
    where = standing(case.capture, case.backend, [*known, found], torch=torch)
    again = "fixed before, and failing again" if any(r.result is RetestResult.FIXED for r in before) else ""
    parts = [found.message, again if found.result in (RetestResult.FAILING, RetestResult.CHANGED) else ""]
    return RetestAnswer(case, found, expected, where, "; ".join(part for part in parts if part))


def installation(distribution: str = "") -> dict[str, str]:
    """The installed versions that can be read without importing a package."""
    found = {"python": platform.python_version()}
    for name in ("torch", distribution):
        try:
            found |= {name: metadata.version(name)} if name else {}
        except metadata.PackageNotFoundError:
            continue
    return found
