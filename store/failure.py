"""The failure of a backend as plain data: its kind, its phase, the exception, the frames and what was printed.

`fxminify.store.signature` says when two failures are one bug.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .masking import first_error_line, mask
from .signature_rules import installed

#: Classes of divergences of values, and the one that is about the backend as a whole.
VALUES = ("value", "nan", "inf", "number")
PRECISION = "precision"


class FailureKind(StrEnum):
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    DIVERGENCE = "divergence"
    CRASH = "crash"
    HANG = "hang"
    OUT_OF_MEMORY = "out_of_memory"


class Phase(StrEnum):
    COMPILE = "compile"
    GUARDS = "guards"
    FORWARD = "forward"
    BACKWARD = "backward"


#: In the provenance of a capture whose values were left out and replaced by seeded ones.
METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame; ``file`` is relative to the package or base name only, never a path of this machine."""

    file: str
    function: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a backend.

    ``frames`` run from the outermost to the one that raised. ``causes`` are the ``(type, message)`` pairs of the
    chained exceptions, outermost cause first. ``diagnostics`` is what was written to file descriptor 2 meanwhile.
    ``detail`` holds the comparison of a divergence: ``{"class": "value"|"dtype"|..., "where": str, ...}``, and of an
    exception ``{"nodes": {name: operation}}``, the nodes of the graph that its text names.
    """

    kind: FailureKind
    phase: Phase
    type: str = ""
    message: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    frames: tuple[Frame, ...] = ()
    diagnostics: str = ""
    signal: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def headline(self) -> str:
        """One line for a person: the type and first line of the message, or a text instead of them."""
        if self.kind is FailureKind.DIVERGENCE:
            return f"{self.detail.get('class', 'value')}: {self.message}".splitlines()[0]
        text = self.message.strip().splitlines()
        if self.kind is FailureKind.CRASH and (printed := self.diagnosis()):
            return f"{text[0] if text else self.kind}: {printed}"
        if text and self.is_generic() and (printed := self.diagnosis()):
            printed = printed.removeprefix("error: ")
            text = [printed if text[0].endswith(".") else f"{text[0]}: {printed}"]
        return f"{self.type}: {text[0]}" if text and self.type else self.type or (text[0] if text else str(self.kind))

    def diagnosis(self) -> str:
        """The first error that the compiler printed, in one line, without paths and numbers of this machine."""
        line = self.printed_error() or first_error_line(self.diagnostics, generic=self.is_generic())
        printed = _PLACE.sub("", mask(line).removeprefix("what(): "))
        return _ALIKE.sub(r"\1, ...", printed)

    def printed_error(self) -> str:
        """The first error line in what follows the first paragraph of a generic message, such as a C++ compiler's."""
        if not self.is_generic():
            return ""
        return next(filter(None, (first_error_line(text.partition("\n\n")[2]) for text in self._texts())), "")

    def _texts(self) -> tuple[str, ...]:
        return (self.message, *(text for _, text in self.causes))

    def is_generic(self) -> bool:
        """Whether the exception has the same message for every bug of its compiler."""
        return installed().generic.search(self.message) is not None

    def root_cause(self) -> str:
        """Type and first line of the exception at the end of the chain, empty if there is no chain."""
        if not self.causes:
            return ""
        kind, text = self.causes[-1]
        return f"{kind.rpartition('.')[2]}: {text.strip().splitlines()[0] if text.strip() else ''}".rstrip(": ")


#: A masked position in a source nobody else has, and a run of masked operands.
_PLACE = re.compile(r"^(?:[\w.-]+:<n>:<n>|<path>): (?=(?:fatal )?error: )")
_ALIKE = re.compile(r"(<value>)(?:, <value>){2,}")
