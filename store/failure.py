"""The failure of a backend as plain data: its kind, its phase, the exception, the frames and what was printed.

`fxminify.store.signature` says when two failures are one bug.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from .diagnosis import (
    c_frame,
    error_lines,
    first_error,
    head,
    in_one_line,
    is_definite,
    is_telling,
    is_trailer,
    operator_in,
)
from .masking import readable, without_places
from .signature_rules import installed
from .text import without_addresses

#: Classes of divergences of values. `ILL_CONDITIONED`: tiny changes of the inputs change the results as much, and eager
#: has the float64 result. `PRECISION` is about the backend as a whole.
NOT_FINITE = ("nan", "inf")
VALUES = ("value", *NOT_FINITE, "number")
ILL_CONDITIONED = "ill-conditioned"
PRECISION = "precision"
NUMERIC = (*VALUES, ILL_CONDITIONED, PRECISION)
#: So many times the allowed error is a divergence, where the comparison is not strict.
FACTOR = 10.0
#: In the details of a divergence of values: a shorter dtype whose rounding would explain so few errors as well.
ROUNDING = "rounding"
#: In the details of a divergence of class `NOT_FINITE`: whether eager has no finite number wherever the results differ.
UNDEFINED = "undefined"
#: The entry of the detail of a divergence that is True if a result of eager has NaN in it.
EAGER_NAN = "eager_nan"
#: In the details of a divergence of class ``gradient``: no output of the compiled graph has a gradient. A backend for
#: inference does this with every graph, so it counts as the failure under reduction only if that is about gradients.
DETACHED = "detached"
#: In the details of an exception: it has no traceback, as one that was read from a log.
UNTRACED = "untraced"
#: In the details of an exception: what eager raised for the same call, type and first line, empty if it raised nothing.
#: Absent if eager was not asked.
EAGER = "eager"
#: In the details of an exception: why the backend cannot run in the installation where it raised.
ABSENT = "absent"
#: Classes of divergences that a script can show alone, whatever else of its call diverges.
ALONE = ("alias", "mutation")
#: The most other places that the message of a divergence names.
_MOST_PLACES = 20


class FailureKind(StrEnum):
    """The kind of a failure of a backend."""

    COMPILE_ERROR = "compile_error"  #: it raised while it compiled
    RUNTIME_ERROR = "runtime_error"  #: what it compiled raised
    DIVERGENCE = "divergence"  #: what it compiled computes something else than eager
    CRASH = "crash"  #: the process died
    HANG = "hang"  #: it took longer than was allowed
    OUT_OF_MEMORY = "out_of_memory"  #: it asked for more memory than there is, or than was allowed


#: Kinds of failures with few signatures: reduced ones are one bug if their smallest graphs call the same operators.
ALIKE = (FailureKind.DIVERGENCE, FailureKind.HANG, FailureKind.OUT_OF_MEMORY)


def identity_in_words(signature: str, kind: str, operators: str) -> str:
    """The digest ``signature``, with the ``operators`` of the smallest graph where they tell such failures apart:
    ``v2:0123456789ab of acosh``."""
    return f"{signature} of {operators}" if signature and operators and kind in ALIKE else signature


def kind_in_words(kind: str) -> str:
    """A `FailureKind` as a person reads it: ``compile error``. An index may hold any text."""
    return kind.replace("_", " ")


class Phase(StrEnum):
    """When a backend failed."""

    COMPILE = "compile"  #: in the call of the backend
    GUARDS = "guards"  #: while Dynamo built guards for what the backend returned
    FORWARD = "forward"  #: in a call of what the backend returned
    BACKWARD = "backward"  #: in its backward pass


#: In the provenance of a capture whose values were left out and replaced by seeded ones.
METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Frame:
    """A Python frame; ``file`` is relative to the package or base name only, never a path of this machine."""

    file: str
    function: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a backend.

    ``frames`` run from the outermost to the one that raised. ``causes`` are the ``(type, message)`` pairs of the
    chained exceptions, outermost cause first. ``diagnostics`` is what was written to file descriptor 2 meanwhile.
    ``detail`` holds the comparison of a divergence: ``{"class": "value"|"dtype"|..., "where": str, ...}``, and of an
    exception ``{"nodes": {name: operation}}``, the nodes of the graph that its text names, `UNTRACED`, `EAGER` and
    `ABSENT`.
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

    @property
    def refused(self) -> str:
        """The error that eager raised for the same call: type and first line.

        It is empty if eager raised nothing or was not run.
        """
        return str(self.detail.get(EAGER, ""))

    @property
    def absent(self) -> str:
        """The reason why the backend could not run, such as a missing package. Empty if it could."""
        return str(self.detail.get(ABSENT, ""))

    def each(self) -> tuple[Failure, ...]:
        """This failure, then each other divergence of the call that a script can show alone, as a failure of its own:
        an alias, what became of the inputs, and beside a divergence of the forward pass one of the gradients. Wrong
        values that a shorter dtype would explain as well are also of the class `PRECISION`."""
        given = self.detail.get("others")
        own = {k: v for k, v in self.detail.items() if k != "others"}
        own |= {"phase": str(self.phase), "message": self.message.partition("\n")[0]}
        if self.kind is not FailureKind.DIVERGENCE or not _is_divergence(own):
            return (self,)
        others = [o for o in given if _is_divergence(o)] if isinstance(given, list | tuple) else []
        alone: dict[tuple[str, str], Failure] = {}
        if own.get(ROUNDING):
            said = precision_message(own["where"], own["message"], str(own.get("dtype")), str(own[ROUNDING]))
            rounded = {**own, "class": PRECISION, "as": own[ROUNDING], "message": said}
            alone[PRECISION, ""] = divergence({k: v for k, v in rounded.items() if k != ROUNDING}, others)
        for other in others:
            kind = other["class"], other["phase"]
            if kind not in alone and (kind[0] in ALONE or (kind[1] == Phase.BACKWARD != self.phase)):
                alone[kind] = divergence(other, [own, *(o for o in others if o is not other)])
        return (self, *alone.values())

    def headline(self) -> str:
        """Return one line for a person: the type and first line of the message, or a text instead of them."""
        return without_addresses(self._first_line())

    def _first_line(self) -> str:
        if self.kind is FailureKind.DIVERGENCE:
            said, what = self.message.partition("\n")[0], str(self.detail.get("class", "value"))
            return said if what == "value" or what in said else f"{what}: {said}"
        if self.causes and installed().wrappers.search(self.message):
            return self.root_cause()
        text = in_one_line(_INTERPRETED.sub(r"while executing \1", _STAMP.sub("", self.message.strip())))
        if self.kind is FailureKind.CRASH:
            died = self.diagnosis() or (f"in {found}" if (found := c_frame(self.diagnostics)) else "")
            said = text or str(self.kind)
            return f"{said}: {died}" if died else f"{self.type}: {said}" if self.type else said
        name = self.type.rpartition(".")[2]
        text = without_places(text).removeprefix("error: ").removeprefix(f"{name}: ")
        if self.kind in _RAISED and (self.is_generic() or not is_telling(text)):
            text = self._diagnosed(text)
        elif (operator := head(self.message).operator) and operator not in text:
            text = f"{text} ({operator})"
        if name and not text and self.frames:
            return f"{name} in {self.frames[-1].function}"
        return f"{name}: {text}" if text and name else name or text or str(self.kind)

    def _diagnosed(self, text: str) -> str:
        """Return what tells this failure from others with the message ``text``, after ``text`` if that is short."""
        told = next((line for _, cause in self.causes if is_telling(line := in_one_line(cause))), "")
        if not told and (told := self.diagnosis().removeprefix("error: ")):
            _, operator = self.printed_error()
            told += f" ({operator})" if operator and operator not in told else ""
        if not told:
            return text
        text = _CLASSES.sub("", text).rstrip(":.")
        return f"{text}: {told}" if 0 < len(text) <= _SHORTEST_MESSAGE else told

    def diagnosis(self) -> str:
        """The first error that the compiler printed, in one line, without paths of this machine."""
        line, _ = self.printed_error()
        printed = _PLACE.sub("", readable(line).removeprefix("what(): "))
        return _ALIKE.sub(r"\1, ...", printed)

    def printed_error(self) -> tuple[str, str]:
        """Return the first error that the compiler printed, and the operator that the lines after it name.

        With a generic message, the printed error stands below its head, as for a C++ compiler, or on file
        descriptor 2.
        """
        line, notes = first_error(self.diagnostics)
        if self.is_generic():
            rests = [head(text).rest for text in self.texts()]
            told = [found for rest in rests for found in error_lines(rest) if not is_trailer(found[0])]
            if (definite := next((found for found in told if is_definite(found[0])), None)) is not None:
                line, notes = definite
            elif not line:
                prose = ((line.strip(), "") for rest in rests for line in _prose(rest) if is_telling(line))
                line, notes = next(iter([*told, *prose]), None) or first_error(self.diagnostics, generic=True)
        return line, operator_in(notes)

    def texts(self) -> tuple[str, ...]:
        """Return the message and the messages of the causes."""
        return (self.message, *(text for _, text in self.causes))

    def text(self) -> str:
        """Return type, message, causes and diagnostics: the text that a regular expression is matched against."""
        lines = [f"{self.type}: {self.message}", *(f"{t}: {m}" for t, m in self.causes), self.diagnostics]
        return "\n".join(line for line in lines if line)

    def is_generic(self) -> bool:
        """Return True for an exception whose message says nothing of its own: it is the same for every bug."""
        given = installed().generic.search(self.message) is not None
        return given or (self.kind in _RAISED and all(head(text).generic for text in self.texts()))

    def root_cause(self) -> str:
        """Type and first line of the exception at the end of the chain, empty if there is no chain."""
        if not self.causes:
            return ""
        kind, text = self.causes[-1]
        return f"{kind.rpartition('.')[2]}: {text.strip().splitlines()[0] if text.strip() else ''}".rstrip(": ")


def lacking(failure: Failure, why: str) -> Failure:
    """``failure`` of a backend that cannot run in this installation, for the reason ``why``."""
    return replace(failure, detail={**failure.detail, ABSENT: why})


def precision_message(where: str, message: str, dtype: str, short: str) -> str:
    """Return the message about values at ``where`` that have the precision of ``short``.

    ``message`` describes how the values differ.
    """
    return f"computes {dtype} as {short}: {where}: {message[message.find('off by') :]}"


def _is_divergence(item: object) -> bool:
    """Whether ``item`` has what `divergence` needs, which one of an older fxminify has not."""
    texts = ("class", "where", "message")
    return isinstance(item, dict) and all(isinstance(item.get(k), str) for k in texts) and item.get("phase") in [*Phase]


def divergence(found: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Failure:
    """The failure of a call of which a comparison found a divergence, and ``others`` beside it.

    Each has its ``class``, ``where`` it is, its ``phase``, its ``message``, and its figures by name.
    """
    detail = {k: v for k, v in found.items() if k not in ("phase", "message")}
    message = str(found["message"])
    if others:
        kinds = [(other["class"], other["phase"]) for other in others]
        first = sorted(range(len(others)), key=lambda i: kinds.index(kinds[i]) != i)  # one of each kind, then the rest
        named = [dict(others[i]) for i in first[:_MOST_PLACES]]
        more = len(others) - len(named)
        detail["others"] = named
        message += "\nalso: " + ", ".join(f"{o['where']} ({o['class']})" for o in named)
        message += f", {more} more" * (more > 0)
    return Failure(FailureKind.DIVERGENCE, Phase(found["phase"]), message=message, detail=detail)


#: A generic message of at least this length stands before its diagnosis, without the classes of exceptions before it.
_SHORTEST_MESSAGE, _CLASSES = 24, re.compile(r"^(?:\w+(?:Error|Exception): )+")
#: Kinds of failures that an exception is.
_RAISED = (FailureKind.COMPILE_ERROR, FailureKind.RUNTIME_ERROR)


def _prose(rest: str) -> Iterator[str]:
    """The lines of the ``rest`` of a message before what is always a command, the graph or a stack."""
    for line in rest.splitlines():
        if is_trailer(line):
            return
        yield line


#: A message that only the interpreter of FX wrote, because the exception had none.
_INTERPRETED = re.compile(r"\AWhile executing %\w+ : .*= call_\w+\[target=([\w.]+)\].*")
#: A masked position in a local source file, and a run of masked operands.
#: The time at the head of a line of a log.
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\s")
_PLACE = re.compile(r"^<place>: |<path>(?:/[\w.-]+)?, ")
_ALIKE = re.compile(r"(<value>)(?:, <value>){2,}")
