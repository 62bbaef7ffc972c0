"""Ways to check whether a candidate is valid. `fxminify.minifier.tracing.validity` carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol

from ...store.document.case import Case, TensorSpec


class Way(StrEnum):
    """A way to check candidates.

    ``EAGER`` runs them on zeros. ``FAKE`` lets torch propagate shapes. ``NONE`` checks nothing, because torch refuses
    even a case that runs.
    """

    EAGER = "eager"
    FAKE = "fake"
    NONE = "none"


def zeros(spec: TensorSpec) -> TensorSpec:
    """``spec`` with zeros in place of its values, as it is where it has parts or is not strided."""
    if spec.parts or spec.layout != "strided":
        return spec
    value: Any = {"complex": [0.0, 0.0]} if "complex" in spec.dtype else 0
    return replace(spec, storage=None, offset=0, init={"fn": "full", "value": value})


class Validity(Protocol):
    """Tells which candidates eager accepts, as it does ``base``. True if that is not known."""

    def __call__(self, base: Case, candidates: Sequence[Case], /) -> Sequence[bool]: ...


class Validator(Protocol):
    """Finds it out, in a worker or in this process. None if it cannot."""

    def way(self, base: Case, /) -> Way | None: ...

    def valid(self, way: Way, candidates: Sequence[Case], /) -> Sequence[bool] | None: ...

    def obeys_rules(self, cases: Sequence[Case], /) -> Sequence[bool] | None:
        """Tell which cases with subgraphs obey torch's own rules. None if it cannot."""
