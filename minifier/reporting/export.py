"""Export what a reduction found: the script as it was verified, or another format of the same case.

The script is stored text and is exported unchanged. Other formats are rendered from the minimal case and the record of
the script, so they state the same facts. A format that can run is run before it is exported, and the result is stored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...backends.provenance.spec import BackendSpec, CannotLoad
from ...backends.running.confinement import wanted
from ...repro_templates.anonymous import anonymous
from ...repro_templates.context import Header
from ...repro_templates.formats import Runner, UnknownFormat, find
from ...repro_templates.processes import Processes
from ...repro_templates.render import TemplateError, render
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.inputs import SIDE_FILE
from ...repro_templates.verify import Verification
from ...store.document.case import Blobs, Case
from ...store.errors import StoreError
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index, State, StoredCapture
from ...store.matching import FailureMatcher
from ..consent import AgreedCase, Tell, may_run, silent
from . import record, script_header


def search_path(case: Case) -> list[str]:
    """Directories of this machine with the modules of the backend and of the operators.

    A directory with a torch of its own is left out: it would hide the installed one.
    """
    paths = [*case.backend.get("search_path", ())]
    for item in case.imports:
        paths += item.get("search_path", ())
    paths = [os.path.expanduser(path) for path in paths]  # below the home directory they are relative to that
    return [path for path in dict.fromkeys(paths) if not Path(path, "torch", "__init__.py").exists()]


def embedded_from(case: Case) -> str:
    """The file from which the script copies its backend, or may do so. Empty where the script imports the backend."""
    return next((way.source.file for way in BackendSpec.from_json(case.backend).ways() if way.source is not None), "")


class NotMinified(StoreError):
    """There is no script yet. The message says how to make one."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A requested document: a format or the text of a template, anonymous names, values beside the script.

    ``unverified`` also allows a script that did not show the failure.
    """

    format: str = "script"
    template: str = ""
    rename: bool = False
    unverified: bool = False

    @property
    def is_stored(self) -> bool:
        """Whether the text is the stored script as it is."""
        return self.format == "script" and not self.template and not self.rename


@dataclass(frozen=True, slots=True)
class Export:
    """A text, the files it needs beside it, and how often it showed the failure.

    ``tentative`` says why it did not show the failure, or why that is not known. ``search_path`` has the directories
    of this machine from which it imports.
    """

    text: str
    files: Mapping[str, bytes]
    info: dict[str, Any]
    tentative: str = ""
    search_path: tuple[str, ...] = ()


def stored_repro(
    index: Index, capture_id: int, format: str, *, unverified: bool = False, stored: StoredCapture | None = None
) -> tuple[str, dict[str, bytes], dict[str, Any]]:
    """The text of a stored script or of another format, the files it needs beside it, and its record. Runs nothing.

    ``stored`` is the capture if it was read before. Raises `StoreError` where there is no script yet, or none that was
    verified and ``unverified`` is False.
    """
    found = prepared(index, capture_id, ExportRequest(format, unverified=unverified), stored).draw()
    return found.text, dict(found.files), found.info


@dataclass(frozen=True, slots=True)
class Prepared:
    """The source of a requested text: the stored ``script``, or else the case and the facts about it."""

    request: ExportRequest
    script: str
    info: dict[str, Any]
    case: Case | None = None
    blobs: Blobs = field(default_factory=dict)
    header: Header | None = None
    search_path: tuple[str, ...] = ()

    def draw(self, *, tentative: str = "") -> Export:
        """The text, with a note that it is ``tentative`` where that is not empty. Raises `StoreError`."""
        if self.case is None or self.header is None:
            return Export(self.script, {}, self.info, search_path=self.search_path)
        request = self.request
        case, header = self.case, replace(self.header, tentative=tentative) if tentative else self.header
        if request.rename:
            case, header = anonymous(case, header)
        embed, wanted = SIDE_FILE in self.script, f"capture {self.info['id']} cannot be printed as {request.format}"
        try:
            made = render(
                case, self.blobs, format=request.format, header=header, embed=embed, template=request.template
            )
        except (Unprintable, CannotLoad) as error:
            raise StoreError(f"{wanted}: {error}") from error
        except TemplateError as error:
            raise StoreError(f"the template cannot be filled: {error}; docs/templates.md lists what it sees") from error
        files, script = dict(made.files), find("script").file
        if script in files and not request.rename:
            files[script] = self.script.encode()
        text = self.script if request.is_stored else made.text
        return Export(text, files, self.info, header.tentative, self.search_path)


def without_script(index: Index, capture: CaptureInfo) -> StoreError:
    """Return the error that explains why a capture has no script, with the command that may make one."""
    id, why = capture.id, capture.reason.partition("\n")[0].rstrip(".")
    run = f"minify run {index.name} {id}"
    match capture.state:
        case State.UNSUPPORTED:
            return StoreError(f"capture {id} has no script, and cannot have one: {why}")
        case State.EAGER_REFUSES:
            return StoreError(f"capture {id} has no script, because it is no failure of the backend: {why}")
        case State.NOT_REPRODUCED:
            look = f"minify show {index.name} {id}"
            return StoreError(
                f"capture {id} has no script, because its failure did not show in the replay ({why}). "
                f"What the replay showed: {look}; replay it again: {run} --again"
            )
        case State.BLOCKED if capture.failure is not None and capture.failure.absent:
            return StoreError(f"capture {id} has no script: {why}; then run the program again")
        case State.BLOCKED:
            return NotMinified(f"capture {id} has no script yet: {why}; then {run}")
        case _:
            return NotMinified(f"capture {id} has no script yet ({capture.state}); make one: {run}")


def prepared(index: Index, capture_id: int, request: ExportRequest, stored: StoredCapture | None = None) -> Prepared:
    """Collect the source of the requested text. ``stored`` is the capture if it was read before.

    Raises `StoreError` like `stored_repro`.
    """
    try:
        find(request.format)
    except UnknownFormat as error:
        raise StoreError(str(error)) from error
    capture = index.captures.get(capture_id)
    stored = index.stored(capture_id) if stored is None else stored
    repro = None if stored.script is None else stored.script.repro
    if repro is None:
        raise without_script(index, capture)
    if not repro.verified and not request.unverified:
        raise StoreError(
            f"the script of capture {capture_id} did not show the failure in {repro.runs} fresh runs; --force shows it"
        )
    info = {"id": capture_id, "format": request.format, "verified": repro.verified, "runs": repro.runs,
            "signature": capture.signature}  # fmt: skip
    smaller, failure = stored.smaller(), capture.failure
    if smaller is None or failure is None:
        if not request.is_stored:
            raise StoreError(f"the case of the script of capture {capture_id} is not stored: minify it once more")
        return Prepared(request, repro.text, info)
    case = smaller.case
    paths = tuple(search_path(case))
    if request.is_stored and SIDE_FILE not in repro.text:
        return Prepared(request, repro.text, info, search_path=paths)
    header = script_header.stored(index, capture)
    if header is None:
        header = record.make_header(capture, case, failure, queries=capture.queries, timeout=alarm(repro.text))
        header = replace(header, python=str(capture.provenance.get("python", "")), platform="")  # not of this machine
    return Prepared(request, repro.text, info, case, index.blobs.view(case.storages), header, paths)


def export(
    db: str,
    capture_id: int,
    request: ExportRequest,
    *,
    runs: int = 2,
    timeout: float = 600.0,
    trust: bool = False,
    sandbox: bool = False,
    processes: Processes | None = None,
    tell: Tell = silent,
) -> Export:
    """The requested text, after it was run as its receiver would run it, in ``processes`` if they are given, else in
    their own, confined with ``sandbox``. A text that was run before is not run again.

    Captures that were made elsewhere are run only with ``trust``. A text that was not run, or did not show the failure,
    is *tentative* and says why.
    """
    with Index.open(db, readonly=True) as index:
        stored = index.stored(capture_id)
        ready = prepared(index, capture_id, request, stored)
        run = find(request.format).run
        if run is None or request.template or request.is_stored:
            return ready.draw()
        name = f"{request.format}, renamed" if request.rename else request.format
        known = index.repros.get(capture_id, name)
        agreed = may_run(capture_id, stored.minimal(), trust=trust, sandbox=sandbox, tell=tell)
        made = ready.draw() if agreed is not None or known is not None else None
        if made is not None and known is not None and known.text == made.text and known.verified:
            return replace(made, info={**made.info, "verified": known.verified, "runs": known.runs})
        if made is None or agreed is None:
            why = "not run here, where the capture was not made: --trust runs it"
            return _doubtful(ready, Verification(0, 0, mismatch=why))
        done = _run(run, made, agreed, index.captures.get(capture_id).to_show(), runs, timeout, sandbox, processes)
        if not done.shown:
            return _doubtful(ready, done)
    with suppress(StoreError), Index.open(db) as index:  # a file that cannot be written is run anew each time
        index.repros.save(
            capture_id, name, made.text, verified=done.shown, runs=done.runs, log=done.log, ours=agreed.ours
        )
    return replace(made, info={**made.info, "verified": done.shown, "runs": done.runs}, tentative=done.mismatch)


def _run(
    run: Runner,
    made: Export,
    agreed: AgreedCase,
    failure: Failure,
    runs: int,
    timeout: float,
    sandbox: bool,
    processes: Processes | None,
) -> Verification:
    """Run a text that was rendered from an agreed case as its receiver would."""
    with Processes(wanted(sandbox)) if processes is None else nullcontext(processes) as where:
        return run(
            made.text, FailureMatcher((failure,)).shows, files=made.files, runs=runs, timeout=timeout,
            search_path=search_path(agreed.case), embedded=embedded_from(agreed.case), processes=where,
        )  # fmt: skip


def template_text(path: Path | None) -> str:
    """The text of a template that a person wrote. Raises `StoreError`."""
    if path is None:
        return ""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read as text: {error}") from error
    if not text.strip():
        raise StoreError(f"{path} is empty: write a template, docs/templates.md lists what it sees")
    return text


def _doubtful(ready: Prepared, done: Verification) -> Export:
    """The text with a note that it did not run, or did not show the failure."""
    count = f"{done.shown} of {done.runs} fresh runs showed the failure: " if done.runs else ""
    made = ready.draw(tentative=f"{count}{done.mismatch}")
    return replace(made, info={**made.info, "verified": done.shown, "runs": done.runs})


def alarm(script: str) -> float:
    """The time after which the script of a hang gives up, as it was verified; 60 s where it has none."""
    _, found, rest = script.partition("signal.alarm(")
    digits = rest.partition(")")[0]
    return float(digits) if found and digits.isdigit() else 60.0
