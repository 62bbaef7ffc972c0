"""Other failures that a minification meets. They become captures of their own."""

from __future__ import annotations

from ...store.document.case import Blobs, Case
from ...store.index import Index
from ...store.signature import Signature
from ..consent import AgreedCase
from ..oracle.verdict import Verdict
from ..tracing.content_address import content_addressed


class OtherFailures:
    """The smallest case of each other failure, by signature. ``blobs`` has the storages of the cases."""

    def __init__(self, index: Index, capture: int, agreed: AgreedCase, blobs: Blobs) -> None:
        self._index = index
        self._capture = capture
        self._agreed = agreed
        self._blobs = blobs
        self._found: dict[str, tuple[Case, Verdict]] = {}

    def add(self, case: Case, verdict: Verdict) -> None:
        """Remember that ``case`` shows another failure.

        Some backends refuse a graph without tensors to start from, such as ``torch.arange(3)`` alone. That is no
        failure of a program that has some.
        """
        if verdict.signature is None or (_has_tensors(self._agreed.case) and not _has_tensors(case)):
            return
        known = self._found.get(verdict.signature.digest)
        if known is None or case.graph.count < known[0].graph.count:
            self._found[verdict.signature.digest] = case, verdict

    def forget(self, signature: Signature) -> None:
        """The failure with this signature is the captured one."""
        self._found.pop(signature.digest, None)

    def store(self) -> list[int]:
        """Store each failure that the index lacks as a capture. Return the capture ids."""
        known = self._index.captures.known(self._found)
        ids = []
        for digest, (case, verdict) in self._found.items():
            if digest in known or verdict.signature is None:
                continue
            addressed, blobs = content_addressed(case, self._blobs)
            provenance = {"found": f"while minifying capture {self._capture}", "torch": addressed.torch}
            ids.append(
                self._index.captures.add(
                    case=addressed,
                    blobs=blobs,
                    failure=verdict.failure,
                    signature=verdict.signature,
                    provenance=provenance,
                    parent=self._capture,
                    ours=self._agreed.ours,
                )
            )
        return ids


def _has_tensors(case: Case) -> bool:
    return any(case.input_tensor(index) is not None for index in range(len(case.inputs)))
