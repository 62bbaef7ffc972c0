"""The `Signature` of a failure: the identity by which two failures are one bug.

A signature must survive minification: as a graph shrinks, messages change their numbers, node names, shapes,
addresses and temporary paths, but not their wording, their exception types or the frame that raised them. So a
signature is built from the failure with everything volatile masked (`fxminify.store.masking`). Every part stays
readable, and `Signature.difference` names the first part in which two disagree.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .failure import NOT_FINITE, PRECISION, ROUNDING, UNDEFINED, UNTRACED, VALUES, Failure, FailureKind, Phase
from .masking import first_error_line, first_paragraph, mask, with_operations

#: Version 1 had nothing of what a compiler printed where the message of its exception is the same for every bug.
SIGNATURE_VERSION = 2
_GENERATED = re.compile(r"^<|(^|/)c[a-z0-9]{40,}\.py$|^[a-z0-9]{51,53}\.py$")
#: `GraphModule` drops the frames of its generated code from the exceptions that it raises again.
_GENERATED_CALLS = ("torch/fx/graph_module.py:__call__", "torch/fx/graph_module.py:call_wrapped")
#: Inputs of a graph that are sizes have the names of their symbols. A message that has a symbol speaks of a size, and
#: another run gives another symbol, which may be the name of no input.
_SYMBOL = re.compile(r"[su]\d+")
_CALLERS = ("torch/_dynamo/eval_frame.py:_fn",)


class Match(StrEnum):
    """The parts of two signatures that must agree for them to be one bug."""

    EXACT = "exact"  #: all of them
    ORIGIN = "origin"  #: kind, phase, type, and the function that raised
    ANY = "any"  #: the kind alone


@dataclass(frozen=True, slots=True)
class Signature:
    """The masked, comparable parts of a `Failure`."""

    kind: str
    phase: str
    type: str = ""
    message: str = ""
    origin: str = ""
    diagnostics: str = ""
    version: int = SIGNATURE_VERSION
    #: The message with every name of a node replaced, if one stands in ``message`` because it may be a plain word. A
    #: node may have another name in the script. It is no part of the identity.
    operations: str = field(default="", compare=False)
    #: Of wrong values: the shorter dtype whose rounding would explain them as well. It is no part of the identity.
    rounding: str = field(default="", compare=False)
    #: Of wrong values: eager has no finite number where they differ. It is no part of the identity.
    undefined: bool = field(default=False, compare=False)
    #: Of an exception: it has no traceback, so ``origin`` is not known. It is no part of the identity.
    untraced: bool = field(default=False, compare=False)

    @property
    def digest(self) -> str:
        """A short stable name: ``v2:`` and 12 hexadecimal digits."""
        parts = "\x1f".join((self.kind, self.phase, self.type, self.message, self.origin, self.diagnostics))
        text = parts.encode("utf-8", "backslashreplace")
        return f"v{self.version}:{hashlib.sha256(text).hexdigest()[:12]}"

    @property
    def named(self) -> str:
        """The digest that a script names, with every name of a node replaced: its own graph has other names."""
        return replace(self, message=self.operations or self.message).digest

    def matches(self, other: Signature, how: Match = Match.EXACT) -> bool:
        """Whether the two are one bug under ``how``."""
        return self.difference(other, how) is None

    def difference(self, other: Signature, how: Match = Match.EXACT) -> str | None:
        """The name of the first part in which the two differ, None if they are one bug under ``how``."""
        parts = {
            Match.ANY: ("kind",),
            Match.ORIGIN: ("kind", "phase", "type", "origin"),
            Match.EXACT: ("kind", "phase", "type", "message", "origin", "diagnostics"),
        }[how]
        return next((p for p in parts if not self._agrees(other, p)), None)

    def _agrees(self, other: Signature, part: str) -> bool:
        """Whether ``part`` is alike. Of a crash a part may be missing: which of several threads dies first decides
        whether its stack and its last words get out, and what was not seen is no difference. Nor is where an exception
        without a traceback was raised."""
        mine, theirs = getattr(self, part), getattr(other, part)
        if part == "message" and (self.operations or mine) == (other.operations or theirs):
            return True
        unknown = self.kind == FailureKind.CRASH and part in ("origin", "diagnostics") and not (mine and theirs)
        untraced = part == "origin" and (self.untraced or other.untraced)
        return mine == theirs or unknown or untraced


def signature(failure: Failure, version: int = SIGNATURE_VERSION) -> Signature:
    """The signature of ``failure``. Pure and deterministic: the same failure has one signature on every machine.

    ``version`` is 1 to compare with a signature that an older fxminify made.

    A divergence is known by its class. NaN, infinities and wrong numbers are one: as a graph shrinks one becomes the
    other. One of precision is known by the types and not by its phase: it is one finding about the backend. A hang and
    a failure for want of memory are known by their phase alone: where exactly the clock or the allocation struck is
    chance.
    """
    if failure.kind is FailureKind.DIVERGENCE:
        name = str(failure.detail.get("class", "value"))
        if name == PRECISION:
            types = f"computes {failure.detail.get('dtype', '')} as {failure.detail.get('as', '')}"
            return Signature(failure.kind, Phase.FORWARD, message=f"{name}: {types}", version=version)
        return Signature(
            failure.kind,
            failure.phase,
            message="value" if name in VALUES else name,
            version=version,
            rounding=str(failure.detail.get(ROUNDING, "")),
            undefined=failure.detail.get(UNDEFINED, name in NOT_FINITE) is True,  # an older fxminify did not say it
        )
    if failure.kind in (FailureKind.HANG, FailureKind.OUT_OF_MEMORY):
        return Signature(failure.kind, failure.phase, version=version)
    if failure.kind is FailureKind.CRASH:  # there is no message, only words of our own
        name = failure.type if failure.signal is None else f"signal {failure.signal}"
        diagnostics = mask(first_error_line(failure.diagnostics))
        return Signature(
            failure.kind, failure.phase, name, origin=origin(failure), diagnostics=diagnostics, version=version
        )
    named = failure.detail.get("nodes", {})
    nodes = {name: what for name, what in named.items() if what != "<input>" or not _SYMBOL.fullmatch(name)}

    def message(*, plain: bool) -> str:
        def words(text: str) -> str:
            return mask(with_operations(first_paragraph(text), nodes, plain=plain))

        texts = [words(failure.message), *(f"{kind}: {words(text)}" for kind, text in failure.causes)]
        return " <- ".join(filter(None, texts))

    text, operations = message(plain=False), message(plain=True)
    printed = failure.printed_error()
    written = first_error_line(failure.diagnostics, generic=failure.is_generic() and not printed)
    return Signature(
        kind=failure.kind,
        phase=failure.phase,
        type=failure.type,
        message=text,
        origin=origin(failure),
        diagnostics=mask((printed if version > 1 else "") or written),
        version=version,
        operations="" if operations == text else operations,
        untraced=failure.detail.get(UNTRACED) is True,
    )


def origin(failure: Failure) -> str:
    """``file:function`` of the frame that raised; generated code is one place, whatever its temporary name.

    Nothing where Dynamo itself called what the backend returned: an extension raised, and it has no frames.
    """
    if not failure.frames:
        return ""
    last = failure.frames[-1]
    place = f"{last.file}:{last.function}"
    if place in _CALLERS:
        return ""
    return "<generated>" if _GENERATED.search(last.file) or place in _GENERATED_CALLS else place
