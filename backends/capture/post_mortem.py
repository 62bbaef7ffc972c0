"""Make a `Recording` of a failure that ended a process: the journal has the graph that was in flight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...store.document.case import Json
from ...store.document.decode import InvalidDocument, validate
from ...store.document.names import UnknownName
from ...store.failure import Failure, Phase
from ...store.recording import Recording
from . import journal


def recording(directory: Path, document: Json, failure: Failure) -> Recording:
    """Return ``failure`` with the case of a ``document`` in the journal at ``directory``.

    ``document["blocked"]`` says why the case is not to be run. A case that cannot be read is left out, with the reason.
    """
    case, reason = None, str(document.get("reason", ""))
    try:
        case = validate(document["case"]) if "case" in document else None
    except (InvalidDocument, UnknownName) as exc:
        reason = str(exc)
    if case is not None:
        case = replace(case, backward=failure.phase is Phase.BACKWARD)
    return Recording(
        case=case,
        blobs=journal.JournalBlobs(directory),
        failure=failure,
        provenance=document.get("provenance", {}),
        graph_text=str(document.get("graph_text", "")),
        reason="; ".join(filter(None, (str(document.get("blocked", "")), reason))),
    )


def recording_in_flight(directory: Path, found: journal.InFlight, failure: Failure) -> Recording:
    """Return ``failure`` with the case of what was in flight, or the reason why it has none."""
    return recording(directory, found.document() or {"reason": "the journal of its graph cannot be read"}, failure)
