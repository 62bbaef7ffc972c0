"""The record of a script: the facts in its header, kept in the index so that other formats can state the same.

A format may be rendered later and on another machine. It states the failure, the versions and the number of runs of
the day on which the script was verified.
"""

from __future__ import annotations

import math
import platform
from dataclasses import replace
from importlib import metadata
from typing import Any

from ...backends.provenance.installed import Installed
from ...backends.provenance.spec import BackendSpec
from ...repro_templates.context import Header
from ...store import codec
from ...store.document.case import Case
from ...store.failure import Failure
from ...store.index import CaptureInfo, Index
from ...store.index.documents import plain
from ...store.signature import signature

#: The kind of the artifact.
ARTIFACT = "record"
_TEXTS = ("torch", "python", "platform", "backend", "runs", "replays", "tentative")
#: Flags, with what they are in the record of an older version.
_FLAGS = {"summed": False, "public": True, "complete": True}
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


def kept(index: Index, capture: CaptureInfo) -> Header | None:
    """The header that `keep` stored. None if it is missing or cannot be read."""
    return _read(index.artifacts.get(capture.id, ARTIFACT))


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
