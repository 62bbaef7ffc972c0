"""Labels of the tracker of a backend that fit a failure: a proposal for triage."""

from __future__ import annotations

from ...backends.adapters import adapter_of
from ...store.document.case import Case, tag
from ...store.failure import Failure, FailureKind

_KINDS = {FailureKind.DIVERGENCE: "module: correctness (silent)", FailureKind.CRASH: "module: crash"}
_SYMBOLIC = "module: dynamic shapes"
#: The owner of a test of PyTorch about a backend without labels of its own.
_OF_ALL = "oncall: pt2"


def owner(case: Case) -> str:
    """The owner of a test for the backend of ``case``, as PyTorch's own tests name it."""
    return next(reversed(adapter_of(case.backend.get("name")).tracker_labels), _OF_ALL)


def labels(case: Case, failure: Failure) -> list[str]:
    """The labels for ``failure``, none where the adapter of the backend lists none."""
    known = adapter_of(case.backend.get("name")).tracker_labels
    if not known or case.backend.get("module"):
        return []
    symbolic = any(tag(value) == "sym" for value in case.inputs)
    return list(filter(None, [*known, _KINDS.get(failure.kind), _SYMBOLIC if symbolic else ""]))
