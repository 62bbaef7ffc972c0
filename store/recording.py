"""A failure that a program met, as it is stored or sent: with its case if that can be kept, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import __version__
from .document.case import Blobs, Case, Json
from .failure import Failure
from .index.documents import digest, dumps, graph_hash, plain
from .private_values import here
from .scrubbing import MASKED, masked_case, masked_failure, masked_provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A failure as a program recorded it.

    Without a ``case``, ``reason`` says why it is missing, and ``provenance["backend"]`` names the backend. A case
    with a ``reason`` cannot be run where it was captured.
    """

    case: Case | None
    blobs: Blobs
    failure: Failure
    provenance: Json
    graph_text: str = ""
    reason: str = ""

    def masked(self) -> Recording:
        """The same without what is private here (`fxminify.store.private_values`); code stays as it is."""
        private = here()
        return replace(
            self,
            case=None if self.case is None else masked_case(self.case, private.mask, private.folder),
            failure=masked_failure(self.failure, private.mask),
            provenance={**masked_provenance(self.provenance, private.mask), MASKED: __version__},
            graph_text=private.mask(self.graph_text),
            reason=private.mask(self.reason),
        )


#: Fields of a backend that depend on the process in which it was captured.
_OF_ONE_PROCESS = ("search_path", "variables", "environment", "required")


def backend_of(case: Case | None, provenance: Json) -> Json:
    """The backend of a capture without what only one machine or process has."""
    if case is None:
        named: Json = plain({"name": provenance.get("backend", "")})
        return named
    backend: Json = plain(case.backend)
    return {key: value for key, value in backend.items() if key not in _OF_ONE_PROCESS}


def shape_of(case: Case | None, graph_text: str, reason: str) -> str:
    """The digest of the graph of a capture, or of the text that is kept instead."""
    return digest(dumps([graph_text, reason]).encode()) if case is None else graph_hash(case)


def identity_of(backend: Json, shape: str, signature: str) -> str:
    """Return the identity of a capture: a digest of its `backend_of`, its `shape_of` and its signature."""
    return digest(dumps([backend, shape, signature]).encode())
