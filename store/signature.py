"""The `Signature` of a failure: the identity by which two failures are one bug.

A signature must survive minification, and another run of the same program: messages change their numbers, node names,
shapes, addresses and temporary paths, and quote the graph and the stack of modules, but keep their wording, their
exception types and the frame that raised them. So a signature is built from the words of a failure that tell bugs
apart (`fxminify.store.diagnosis`), with everything volatile masked (`fxminify.store.masking`). Every part stays
readable, and `Signature.difference` names the first part in which two disagree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .diagnosis import c_frame, device_fault, head, is_definite, told_in
from .failure import PRECISION, UNTRACED, VALUES, Failure, FailureKind, Frame, Phase
from .masking import mask, with_operations

#: Version 2 compared the whole first paragraph of a message, and had no operator.
SIGNATURE_VERSION = 3
_GENERATED = re.compile(r"^<|(^|/)c[a-z0-9]{40,}\.py$|^[a-z0-9]{51,53}\.py$")
#: `GraphModule` drops the frames of its generated code from the exceptions that it raises again.
_GENERATED_CALLS = ("torch/fx/graph_module.py:__call__", "torch/fx/graph_module.py:call_wrapped")
#: Inputs of a graph that are sizes have the names of their symbols. A message that has a symbol speaks of a size, and
#: another run gives another symbol, which may be the name of no input.
_SYMBOL = re.compile(r"[su]\d+")
_CALLERS = ("torch/_dynamo/eval_frame.py:_fn",)
#: The call of an operator, the methods of modes that operators pass through, and what stands around these.
_OPERATOR, _MODES = "torch/_ops.py:__call__", ("__torch_dispatch__", "__torch_function__")
_AROUND_MODES = ("torch/_dynamo/eval_frame.py:_fn", "torch/_compile.py:inner")
#: A list, in the form that `mask` and `_listed` give it.
_LIST = re.compile(r"[\[{]([^\[\]{}]*)[\]}]")


class Match(StrEnum):
    """The parts of two signatures that must agree for them to be one bug."""

    EXACT = "exact"  #: all of them
    ORIGIN = "origin"  #: kind, phase, type, and the function that raised
    ANY = "any"  #: the kind alone


_PARTS = {
    Match.ANY: ("kind",),
    Match.ORIGIN: ("kind", "phase", "type", "origin"),
    Match.EXACT: ("kind", "phase", "type", "message", "origin", "operator", "diagnostics"),
}


@dataclass(frozen=True, slots=True)
class Signature:
    """The masked, comparable parts of a `Failure`."""

    kind: str
    phase: str
    type: str = ""
    message: str = ""
    origin: str = ""
    #: The operator that the failure names after the words that are compared, empty where it names none.
    operator: str = ""
    diagnostics: str = ""
    version: int = SIGNATURE_VERSION
    #: The message with every name of a node replaced, if one stands in ``message`` because it may be a plain word. A
    #: node may have another name in the script. It is no part of the identity.
    operations: str = field(default="", compare=False)
    #: Of an exception: it has no traceback, so ``origin`` is not known. It is no part of the identity.
    untraced: bool = field(default=False, compare=False)

    @property
    def digest(self) -> str:
        """A short stable name: ``v3:`` and 12 hexadecimal digits."""
        parts = (self.kind, self.phase, self.type, self.message, self.origin, self.diagnostics)
        text = "\x1f".join((*parts, self.operator) if self.operator else parts).encode("utf-8", "backslashreplace")
        return f"v{self.version}:{hashlib.sha256(text).hexdigest()[:12]}"

    @property
    def named(self) -> str:
        """The digest that a script names, with every name of a node replaced: its own graph has other names."""
        return replace(self, message=self.operations or self.message).digest

    def difference(self, shown: Signature, how: Match = Match.EXACT) -> str | None:
        """Return the name of the first part in which ``shown`` differs from this signature, None if they are one bug
        under ``how``.

        Where both list names, ``shown`` may list fewer: one message names all operators that a backend lacks, and a
        smaller graph has fewer of them.
        """
        return next((part for part in _PARTS[how] if not self._agrees(shown, part)), None)

    def _agrees(self, shown: Signature, part: str) -> bool:
        """Return True if ``part`` is alike. Of a crash a part may be missing: which of several threads dies first
        decides whether its stack and its last words get out, and what was not seen is no difference. Nor is where an
        exception without a traceback was raised, nor an operator that only one of the two names."""
        mine, theirs = getattr(self, part), getattr(shown, part)
        if part == "message" and lists_no_more(self.operations or mine, shown.operations or theirs):
            return True
        crash = self.kind == FailureKind.CRASH and part in ("origin", "diagnostics")
        if (crash or part == "operator") and not (mine and theirs):
            return True
        untraced = part == "origin" and (self.untraced or shown.untraced)
        return untraced or lists_no_more(mine, theirs)


def lists_no_more(text: str, other: str) -> bool:
    """Return True if ``other`` is ``text``, or lists fewer of the same names in the same places."""
    if text == other:
        return True
    if _LIST.sub("[]", text) != _LIST.sub("[]", other):
        return False
    pairs = zip(_LIST.findall(text), _LIST.findall(other), strict=True)
    return all(mine == theirs or (theirs and _items(theirs) <= _items(mine)) for mine, theirs in pairs)


def _items(listed: str) -> set[str]:
    return {item.strip() for item in re.split(r"[,;]", listed)}


def signature(failure: Failure) -> Signature:
    """Return the signature of ``failure``. Pure and deterministic: one failure has one signature on every machine.

    A divergence is known by its class. NaN, infinities and wrong numbers are one: as a graph shrinks one becomes the
    other. One of precision is known by the types and not by its phase: it is one finding about the backend. A hang and
    a lack of memory are known by their phase alone: where exactly the clock or the allocation struck is
    chance. So is the call that meets the fault of a device, and with it the exception that the call raises: such a
    failure is known by the words for the fault, and by what the kernel printed.
    """
    if failure.kind is FailureKind.DIVERGENCE:
        name = str(failure.detail.get("class", "value"))
        if name == PRECISION:
            types = f"computes {failure.detail.get('dtype', '')} as {failure.detail.get('as', '')}"
            return Signature(failure.kind, Phase.FORWARD, message=f"{name}: {types}")
        return Signature(failure.kind, failure.phase, message="value" if name in VALUES else name)
    if failure.kind in (FailureKind.HANG, FailureKind.OUT_OF_MEMORY):
        return Signature(failure.kind, failure.phase)
    if failure.kind is FailureKind.CRASH:  # there is no message, only words of our own
        name = failure.type if failure.signal is None else f"signal {failure.signal}"
        line, _ = failure.printed_error()
        died = mask(line) or (f"in {found}" if (found := c_frame(failure.diagnostics)) else "")
        return Signature(failure.kind, failure.phase, name, origin=origin(failure), diagnostics=died)
    text, operations = _message(failure, plain=False), _message(failure, plain=True)
    generic = failure.is_generic()
    line, operator = failure.printed_error()
    if not generic and not is_definite(line):
        line = operator = ""
    if fault := next(filter(None, map(device_fault, failure.texts())), ""):
        return Signature(failure.kind, failure.phase, message=fault, diagnostics=mask(line))
    named = (head(text).operator for text in failure.texts())
    return Signature(
        kind=failure.kind,
        phase=failure.phase,
        type=failure.type,
        message=text,
        origin=origin(failure),
        operator=next(filter(None, named), "") or operator,
        diagnostics=mask(line),
        operations="" if operations == text else operations,
        untraced=failure.detail.get(UNTRACED) is True,
    )


def told_after(failure: Failure) -> frozenset[str]:
    """Return the masked lines of an exception's message that are no part of its signature and say something."""
    if failure.kind not in (FailureKind.COMPILE_ERROR, FailureKind.RUNTIME_ERROR):
        return frozenset()
    nodes = _nodes(failure)
    lines = (line for text in failure.texts() for line in told_in(head(text).rest))
    return frozenset(mask(with_operations(line, nodes, plain=True)) for line in lines)


def origin(failure: Failure) -> str:
    """``file:function`` of the frame that raised; generated code is one place, whatever its temporary name.

    Nothing where Dynamo itself called what the backend returned: an extension raised, and it has no frames.
    """
    if not failure.frames:
        return ""
    last = failure.frames[-_under_modes(failure.frames)]
    place = f"{last.file}:{last.function}"
    if place in _CALLERS:
        return ""
    return "<generated>" if _GENERATED.search(last.file) or place in _GENERATED_CALLS else place


def _under_modes(frames: Sequence[Frame]) -> int:
    """The number of the frame, counted from the end, that called an operator which raised under modes.

    It is 1 without modes. AOTAutograd has one in the first call of a compiled graph, and none later.
    """
    if f"{frames[-1].file}:{frames[-1].function}" != _OPERATOR:
        return 1
    number, modes = 1, False
    for frame in reversed(frames):
        mode = frame.function in _MODES and frame.file.startswith("torch/")
        if not mode and f"{frame.file}:{frame.function}" not in (_OPERATOR, *_AROUND_MODES):
            return number if modes else 1
        number, modes = number + 1, modes or mode
    return 1


def _nodes(failure: Failure) -> dict[str, str]:
    named = failure.detail.get("nodes", {})
    return {name: what for name, what in named.items() if what != "<input>" or not _SYMBOL.fullmatch(name)}


def _message(failure: Failure, *, plain: bool) -> str:
    """The masked heads of the message and of its causes."""
    nodes = _nodes(failure)

    def words(text: str) -> str:
        found = head(text)
        masked = mask(with_operations(found.text, nodes, plain=plain))
        return f"{masked} {_listed(mask(with_operations(item, nodes, plain=plain)) for item in found.items)}".strip()

    texts = [words(failure.message), *(f"{kind}: {words(text)}" for kind, text in failure.causes)]
    return " <- ".join(filter(None, texts))


def _listed(items: Iterable[str]) -> str:
    """Return items as a list in order, each once, and an empty text for no item."""
    known = sorted({item.translate(_NO_LIST) for item in items})
    return f"[{'; '.join(known)}]" if known else ""


_NO_LIST = str.maketrans({"[": "(", "]": ")", "{": "(", "}": ")", ";": ","})
