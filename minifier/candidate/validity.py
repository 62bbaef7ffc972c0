"""How the validity of a candidate is found out; `fxminify.minifier.tracing.validity` does it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from ...store.document.case import Case


class Way(StrEnum):
    """``EAGER``: a run on zeros. ``FAKE``: torch propagates shapes. ``NONE``: torch refuses a case that runs, so
    nothing can be told."""

    EAGER = "eager"
    FAKE = "fake"
    NONE = "none"


class Validity(Protocol):
    """Tells which candidates eager accepts, as it does ``base``. True if that is not known."""

    def __call__(self, base: Case, candidates: Sequence[Case], /) -> Sequence[bool]: ...


class Validator(Protocol):
    """Finds it out, in a worker or in this process. None if it cannot."""

    def way(self, base: Case, /) -> Way | None: ...

    def valid(self, way: Way, candidates: Sequence[Case], /) -> Sequence[bool] | None: ...
