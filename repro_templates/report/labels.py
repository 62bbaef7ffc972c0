"""Labels of PyTorch's issue tracker that fit a failure of one of torch's own backends: a proposal for triage."""

from __future__ import annotations

from ...store.document.case import Case, tag
from ...store.failure import Failure, FailureKind

#: The owner of the tests of a backend, as PyTorch's tests name it.
_OWNERS = {
    "inductor": "module: inductor",
    "aot_eager": "module: aotdispatch",
    "aot_eager_decomp_partition": "module: aotdispatch",
    "cudagraphs": "module: cuda graphs",
}
_KINDS = {FailureKind.DIVERGENCE: "module: correctness (silent)", FailureKind.CRASH: "module: crash"}
_OF_ALL = "oncall: pt2"


def owner(case: Case) -> str:
    """The owner of a test for the backend of ``case``."""
    return _OWNERS.get(str(case.backend.get("name", "")), _OF_ALL)


def labels(case: Case, failure: Failure) -> list[str]:
    """The labels, none for a backend that is not torch's own."""
    if str(case.backend.get("name", "")) not in _OWNERS or case.backend.get("module"):
        return []
    symbolic = any(tag(value) == "sym" for value in case.inputs)
    found = [_OF_ALL, owner(case), _KINDS.get(failure.kind, ""), "module: dynamic shapes" if symbolic else ""]
    return list(filter(None, found))
