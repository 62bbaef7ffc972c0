"""The record of a script: the facts in its header, kept in the index so that other formats can state the same.

A format may be rendered later and on another machine. It states the failure, the versions and the number of runs of
the day on which the script was verified.
"""

from __future__ import annotations

import math
import platform
from dataclasses import replace
from importlib import metadata
from itertools import pairwise
from typing import Any

from ...backends.provenance.installed import Installed
from ...backends.provenance.spec import BackendSpec
from ...repro_templates.context import Header
from ...store import codec
from ...store.document.case import Case
from ...store.errors import StoreError
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index
from ...store.index.documents import plain
from ...store.signature import signature
from ..oracle import first_node
from ..oracle.ablation import stored as stored_ablation
from . import cause, explanation, illustrations
from .findings import measured

#: The kind of the artifact.
ARTIFACT = "record"
_TEXTS = ("torch", "python", "platform", "backend", "runs", "replays", "tentative")
#: The most rows in the table of reduction steps.
_MOST_STEPS = 20
#: Flags, with what they are in the record of an older version.
_FLAGS = {"summed": False, "public": True}
_COUNTS = ("nodes", "inputs", "queries", "timeout")


def make_header(
    capture: CaptureInfo, case: Case, failure: Failure, *, queries: int, timeout: float, **more: Any
) -> Header:
    """The header of a script: versions and figures. It has no path of this machine."""
    spec = BackendSpec.from_json(case.backend)
    return Header(
        failure=failure,
        signature=signature(failure).named,
        torch=case.torch,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        backend=_version(spec.distribution),
        nodes=capture.nodes_before or 0,
        inputs=capture.inputs_before or 0,
        queries=queries,
        timeout=math.ceil(timeout),
        **more,
    )


def keep(index: Index, capture_id: int, header: Header) -> None:
    """Store the header of the script of a capture."""
    doc = {name: getattr(header, name) for name in (*_TEXTS, *_COUNTS, *_FLAGS)}
    doc |= {"failure": plain(codec.dump(header.failure)), "installed": codec.dump(header.installed)}
    doc["signature"] = header.signature
    index.artifacts.save(capture_id, ARTIFACT, doc)


def stored(index: Index, capture: CaptureInfo) -> Header | None:
    """The header that `keep` stored, with what is known since, such as the ablation. None where it cannot be read."""
    header = _read(index.artifacts.get(capture.id, ARTIFACT))
    if header is None:
        return None
    if (ablation := stored_ablation(index, capture.id)) is not None and ablation.shows:
        layers = tuple((row.backend, row.layer, row.result) for row in ablation.rows)
        elsewhere = "" if ablation.torch in ("", header.torch) else f" with torch {ablation.torch}"
        header = replace(header, layers=layers, enters=f"{ablation.enters}{elsewhere}")
    header = replace(header, findings=measured(index, capture, header))
    best = index.best(capture)
    found = None if best is None else cause.of_case(index, capture.id, best)
    if found is not None:
        asked = [] if found.torch == header.torch else [f"Asked with torch {found.torch}."]
        header = replace(header, cause=(*found.sentences(), *asked))
    explained = explanation.stored(index, capture.id)
    if explained is not None and (texts := explained.told()):
        variant = explained.passing_variant
        told = () if variant is None else (explained.passes_with(), *variant.difference.splitlines()[:40])
        header = replace(header, matters=texts, passing_variant=told)
    shown = illustrations.stored(index, capture.id)
    header = replace(header, illustration_heading=shown.heading, illustrations=shown.items)
    return replace(header, first=first_node.stored(index, capture.id), steps=_steps(index, capture.id))


def shown(index: Index, capture: CaptureInfo) -> Failure | None:
    """The failure of a capture as its script showed it; as it was captured where no script did."""
    if not capture.verified:
        return capture.failure
    try:
        header = _read(index.artifacts.get(capture.id, ARTIFACT))
    except StoreError:
        return capture.failure  # the rest of the capture can still be shown
    return capture.failure if header is None else header.failure


def _steps(index: Index, capture_id: int) -> tuple[tuple[str, int, int], ...]:
    """The passes that made the case smaller, in order, with the nodes and inputs that were left after each."""
    reduction = index.reductions.last(capture_id)
    rows = [] if reduction is None else [(s.pass_name, s.nodes, s.inputs) for s in index.reductions.steps(reduction.id)]
    last = [row for row, after in pairwise([*rows, ("", 0, 0)]) if row[0] and row[0] != after[0]]
    return tuple(last[-_MOST_STEPS:])


def _read(doc: Any) -> Header | None:
    try:
        failure = codec.load(doc["failure"], Failure)
        named = str(doc.get("signature") or signature(failure).named)
        header = Header(failure, named, installed=Installed.load(doc["installed"]))
        fields: dict[str, Any] = {name: str(doc[name]) for name in _TEXTS}
        fields |= {name: int(doc[name]) for name in _COUNTS}
        fields |= {name: doc.get(name, default) is True for name, default in _FLAGS.items()}
        return replace(header, **fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _version(distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}" if distribution else ""
    except metadata.PackageNotFoundError:
        return ""
