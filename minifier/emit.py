"""Scripts in and out of the index: render and verify what a reduction found, hand it out, check it again.

A script is stored with the record of its verification, k of n fresh runs showed the signature, and is shown only if
one did. The other formats are rendered from the same case when they are asked for.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from types import MappingProxyType
from typing import Any

from ..backends.spec import BackendSpec
from ..repro_templates.inputs import SIDE_FILE
from ..repro_templates.render import Header, render
from ..repro_templates.verify import Verification, verify
from ..store.case import Blobs, Case
from ..store.errors import StoreError
from ..store.failure import Failure, Kind, Phase, signature
from ..store.index import CaptureInfo, Index, State
from . import console, explanation, onnx_models
from .ablation import stored
from .replay import Likeness

#: The names under which the formats are handed out.
FILES = MappingProxyType({"script": "repro.py", "pytest": "test_repro.py", "issue": "issue.md",
                          "bisect": "bisect_repro.py"})  # fmt: skip
#: Is a failure, seen in a fresh process, the captured one?
Shows = Callable[[Failure], bool]
#: Seconds that a fresh process may take to import torch and a backend, besides what the failure itself takes.
START = 120.0


class Emitter:
    """Renders, verifies and stores the script of one capture. ``timeout`` is that of one oracle call, in seconds."""

    def __init__(self, index: Index, capture: CaptureInfo, shows: Shows, timeout: float) -> None:
        self.index = index
        self.capture = capture
        self.shows = shows
        self.timeout = timeout

    def emit(
        self, case: Case, blobs: Blobs, *, failure: Failure, queries: int, runs: int, embed: bool
    ) -> tuple[State, str]:
        """The state that the script deserves, and why it is not better. Raises `Unprintable` and `CannotLoad`."""
        header = make_header(self.capture, case, failure, queries=queries, timeout=self.timeout)
        rendered = render(case, blobs, header=header, embed=embed)
        done = verify(
            rendered.text,
            self.shows,
            runs=runs,
            timeout=self.timeout + START,
            search_path=search_path(case),
            files={} if rendered.data is None else {SIDE_FILE: rendered.data},
            carried=carried_from(case),
        )
        self.index.save_repro(
            self.capture.id, "script", rendered.text, verified=done.shown, runs=done.runs, log=done.log
        )
        if done.shown:
            return State.VERIFIED, "" if done.shown == done.runs else f"shown in {done.shown} of {done.runs} runs"
        return State.UNVERIFIED, f"the script does not show the failure: {done.instead}"


def make_header(capture: CaptureInfo, case: Case, failure: Failure, *, queries: int, timeout: float) -> Header:
    """What the script says about itself: versions and figures, nothing of this machine."""
    spec = BackendSpec.from_json(case.backend)
    return Header(
        failure=failure,
        signature=signature(failure).digest,
        torch=case.torch,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        backend=_version(spec.distribution),
        nodes=capture.nodes_before or 0,
        queries=queries,
        timeout=math.ceil(timeout),
    )


def _version(distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}" if distribution else ""
    except metadata.PackageNotFoundError:
        return ""


def search_path(case: Case) -> list[str]:
    """Directories of this machine in which the backend's and the operators' modules lie."""
    paths = [*case.backend.get("search_path", ())]
    for item in case.imports:
        paths += item.get("search_path", ())
    return list(dict.fromkeys(paths))


def carried_from(case: Case) -> str:
    """The file that the script's copy of the backend is from, nothing where the script imports its backend."""
    source = BackendSpec.from_json(case.backend).source
    return source.file if source is not None else ""


def stored_repro(
    index: Index, capture_id: int, format: str, *, unverified: bool = False
) -> tuple[str, dict[str, bytes], dict[str, Any]]:
    """The text of a stored script or of another format, the files it needs beside it, and its record.

    Raises `StoreError` where there is no script yet, or none that was verified and ``unverified`` is False.
    """
    capture = index.capture(capture_id)
    repro = index.repro(capture_id, "script")
    if repro is None and capture.state == "unsupported":
        raise StoreError(f"capture {capture_id} has no script, and cannot have one: {capture.reason}")
    if repro is None:
        hint = f"minify run {index.name} {capture_id}"
        raise StoreError(f"capture {capture_id} has no script yet ({capture.state}); make one: {hint}")
    if not repro.verified and not unverified:
        raise StoreError(
            f"the script of capture {capture_id} did not show the failure in {repro.runs} fresh runs; --force shows it"
        )
    info = {"id": capture_id, "format": format, "verified": repro.verified, "runs": repro.runs,
            "signature": capture.signature}  # fmt: skip
    case, failure = index.best(capture), capture.failure
    if case is None or failure is None:
        return repro.text, {}, info
    embed = SIDE_FILE in repro.text
    if format == "script" and not embed:
        return repro.text, {}, info
    header = make_header(capture, case, failure, queries=capture.queries, timeout=alarm(repro.text))
    found = stored(index, capture_id)
    if found is not None:
        layers = tuple((row.backend, row.layer, row.result) for row in found.rows)
        header = replace(header, layers=layers, enters=found.enters)
    explained = explanation.stored(index, capture_id)
    if explained is not None and (summary := explained.summary()):
        twin = explained.twin
        told = () if twin is None else (twin.what, *twin.difference.splitlines()[:40])
        header = replace(header, matters=(summary, *explained.sentences()), twin=told)
    models = [(model.name, model.error, model.text) for model in onnx_models.stored(index, capture_id)]
    header = replace(header, models=tuple(models))
    rendered = render(case, index.blobs(case.storages), format=format, header=header, embed=embed)
    files = {} if rendered.data is None else {SIDE_FILE: rendered.data}
    return repro.text if format == "script" else rendered.text, files, info


def file_name(format: str) -> str:
    """The name under which a file of that format is handed out."""
    return FILES[format]


def alarm(script: str) -> float:
    """The time after which the script of a hang gives up, as it was verified; 60 s where it has none."""
    _, found, rest = script.partition("signal.alarm(")
    digits = rest.partition(")")[0]
    return float(digits) if found and digits.isdigit() else 60.0


def verify_stored(
    db: str,
    ids: Sequence[int],
    *,
    runs: int,
    timeout: float,
    trust: bool = False,
    confirm: Callable[[str], bool] = lambda question: False,
) -> list[dict[str, Any]]:
    """Run the stored scripts again, those of ``ids`` or all; one row each, in order.

    What was verified stays so: that a bug is gone here does not make its script a wrong one. A script that shows its
    failure now and did not before is verified from now on.
    Raises `StoreError` where a script is missing, or is from elsewhere and not trusted.
    """
    answers = []
    with Index.open(db, readonly=True) as index:
        for capture in index.captures(ids):
            repro = index.repro(capture.id, "script")
            if repro is None:
                if ids:
                    raise StoreError(f"capture {capture.id} has no script yet: minify run {db} {capture.id}")
                continue
            case = index.case(capture.id)
            trusted = trust or index.is_ours(capture.id)
            if not trusted and not confirm(console.question(capture, case, script=repro.text)):
                raise StoreError(f"the script of capture {capture.id} is not trusted: add --trust to run it")
            done = _again(index, capture, case, repro.text, runs, timeout)
            if done.shown and capture.state is State.UNVERIFIED:
                with Index.open(db) as writable:
                    writable.save_repro(
                        capture.id, "script", repro.text, verified=done.shown, runs=done.runs, log=done.log
                    )
                    writable.set_state(capture.id, State.VERIFIED)
            answers.append(
                {"id": capture.id, "shown": done.shown, "runs": done.runs, "signature": capture.signature,
                 "instead": done.instead}
            )  # fmt: skip
    return answers


def _again(index: Index, capture: CaptureInfo, case: Case, text: str, runs: int, timeout: float) -> Verification:
    _, files, _ = stored_repro(index, capture.id, "script", unverified=True)
    likeness = Likeness(capture.failure or Failure(Kind(capture.kind), Phase(capture.phase)))
    return verify(
        text, likeness.holds, runs=runs, timeout=timeout, search_path=search_path(case), files=files,
        carried=carried_from(case),
    )  # fmt: skip
