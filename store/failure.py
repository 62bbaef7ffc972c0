"""A `Failure` as plain data, and its `Signature`: the identity by which two failures are one bug.

A signature must survive minification: as a graph shrinks, messages change their numbers, node names, shapes,
addresses and temporary paths, but not their wording, their exception types or the frame that raised them. So a
signature is built from the failure with everything volatile masked, and it is *explainable*: every part is kept
readable, and `Signature.difference` names the first part in which two disagree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from .signature_rules import installed

SIGNATURE_VERSION = 1
#: Classes of divergences that are about what a result is worth, and the one that is about the backend as a whole.
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


#: In the provenance of a capture whose tensors' values were left out: seeded ones stand in.
METADATA = "metadata"


class Match(StrEnum):
    """How much of two signatures must agree for them to count as one bug."""

    EXACT = "exact"
    ORIGIN = "origin"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame; ``file`` is relative to the package or base name only, never a path of this machine."""

    file: str
    function: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """How a backend failed.

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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Failure:
        """Inverse of `to_json`. Raises `ValueError`, `KeyError` or `TypeError` on anything else."""
        return cls(
            kind=FailureKind(doc["kind"]),
            phase=Phase(doc["phase"]),
            type=str(doc.get("type", "")),
            message=str(doc.get("message", "")),
            causes=tuple((str(t), str(m)) for t, m in doc.get("causes", ())),
            frames=tuple(Frame(str(f["file"]), str(f["function"]), int(f["line"])) for f in doc.get("frames", ())),
            diagnostics=str(doc.get("diagnostics", "")),
            signal=None if doc.get("signal") is None else int(doc["signal"]),
            detail=dict(doc.get("detail", {})),
        )

    def headline(self) -> str:
        """One line for a person: type and first line of the message, or what stands in for them."""
        if self.kind is FailureKind.DIVERGENCE:
            return f"{self.detail.get('class', 'value')}: {self.message}".splitlines()[0]
        text = self.message.strip().splitlines()
        if self.kind is FailureKind.CRASH and (said := self.diagnosis()):
            return f"{text[0] if text else self.kind}: {said}"
        return f"{self.type}: {text[0]}" if text and self.type else self.type or (text[0] if text else str(self.kind))

    def diagnosis(self) -> str:
        """What standard error said of it, in one line, without paths and numbers of this machine."""
        line = first_error_line(self.diagnostics, generic=_is_generic(self))
        said = _PLACE.sub("", mask(line).removeprefix("what(): "))
        return _ALIKE.sub(r"\1, ...", said)

    def root_cause(self) -> str:
        """Type and first line of the exception at the end of the chain; empty where there is no chain."""
        if not self.causes:
            return ""
        kind, text = self.causes[-1]
        return f"{kind.rpartition('.')[2]}: {text.strip().splitlines()[0] if text.strip() else ''}".rstrip(": ")


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

    @property
    def digest(self) -> str:
        """Short stable name, ``v1:`` and 12 hexadecimal digits."""
        parts = "\x1f".join((self.kind, self.phase, self.type, self.message, self.origin, self.diagnostics))
        text = parts.encode("utf-8", "backslashreplace")
        return f"v{self.version}:{hashlib.sha256(text).hexdigest()[:12]}"

    def matches(self, other: Signature, how: Match = Match.EXACT) -> bool:
        return self.difference(other, how) is None

    def difference(self, other: Signature, how: Match = Match.EXACT) -> str | None:
        """Name of the first part in which the two disagree, None when they are one bug under ``how``."""
        parts = {
            Match.ANY: ("kind",),
            Match.ORIGIN: ("kind", "phase", "type", "origin"),
            Match.EXACT: ("kind", "phase", "type", "message", "origin", "diagnostics"),
        }[how]
        return next((p for p in parts if not self._agrees(other, p)), None)

    def _agrees(self, other: Signature, part: str) -> bool:
        """Whether ``part`` is alike. Of a crash a part may be missing: which of several threads dies first decides
        whether its stack and its last words get out, and what was not seen is no difference."""
        mine, theirs = getattr(self, part), getattr(other, part)
        unknown = self.kind == FailureKind.CRASH and part in ("origin", "diagnostics") and not (mine and theirs)
        return mine == theirs or unknown

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Signature:
        return cls(**{k: doc[k] for k in ("kind", "phase", "type", "message", "origin", "diagnostics", "version")})


def signature(failure: Failure) -> Signature:
    """The signature of ``failure``. Pure and deterministic: the same failure has one signature on every machine.

    A divergence is known by its class. NaN, infinities and wrong numbers are one: as a graph shrinks one becomes the
    other. One of precision is known by the types and not by its phase: it is one finding about the backend. A hang and
    a failure for want of memory are known by their phase alone: where exactly the clock or the allocation struck is
    chance.
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
        diagnostics = mask(first_error_line(failure.diagnostics))
        return Signature(failure.kind, failure.phase, name, origin=origin(failure), diagnostics=diagnostics)
    nodes = failure.detail.get("nodes", {})
    messages = [mask(with_operations(first_paragraph(failure.message), nodes))]
    messages += [f"{kind}: {mask(with_operations(first_paragraph(text), nodes))}" for kind, text in failure.causes]
    return Signature(
        kind=failure.kind,
        phase=failure.phase,
        type=failure.type,
        message=" <- ".join(m for m in messages if m),
        origin=origin(failure),
        diagnostics=mask(first_error_line(failure.diagnostics, generic=_is_generic(failure))),
    )


def _is_generic(failure: Failure) -> bool:
    """Whether the exception says the same for every bug of its compiler."""
    return installed().generic.search(failure.message) is not None


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


def first_paragraph(text: str) -> str:
    """A message up to its first blank line, at most 20 lines: what follows is advice, code or a stack."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if lines and (not line.strip() or _TRAILER.match(line)):
            break
        lines.append(line.strip())
    return "\n".join(lines[:20])


def first_error_line(text: str, *, generic: bool = False) -> str:
    """The first line of captured standard error that reports an error, or nothing.

    Warnings, log lines below error level or of Dynamo, Python tracebacks and the dump of ``faulthandler`` are passed
    over. Where the exception's message is ``generic`` and no line reports an error, it is the first line that is left.
    """
    rules, left = installed(), ""
    if last_words := _WHAT.search(text):  # threads that die together garble the lines before it
        return last_words[0]
    inside = ""  # what the indented lines that follow belong to
    for line in text.splitlines():
        if inside and (not line.strip() or line[0].isspace()):
            continue
        if line.startswith("Traceback (most recent"):
            inside = "traceback"
        elif inside == "traceback":
            inside = ""  # its last line is the exception, which the program has caught or reports itself
        elif _WARNING.search(line) or _FAULT.match(line) or _DYNAMO.match(line) or rules.noise.search(line):
            inside = "warning"
        elif _ERROR_LINE.search(line) or rules.errors.search(line):
            return rules.prefixes.sub("", _LOG_PREFIX.sub("", line.strip()))
        else:
            inside = ""
            left = left or line.strip()
    return left if generic else ""


def with_operations(text: str, nodes: Mapping[str, str]) -> str:
    """``text`` with names of ``nodes`` replaced by what these call: names are the program's, and change with edits.

    A plain word stays where nothing says that it is the name of a node.
    """

    def operation(found: re.Match[str]) -> str:
        word, before = found[0], text[max(0, found.start() - 12) : found.start()]
        named = word in nodes and ("_" in word or word[-1].isdigit() or _NAMING.search(before))
        return str(nodes[word]) if named else word

    text = text[:_LONGEST]
    return _WORD.sub(operation, text) if nodes else text


def mask(text: str) -> str:
    """``text`` with everything masked that changes as a graph shrinks: paths, numbers, addresses, node names.

    What tells bugs apart stays: names of operators and dtypes keep their digits (``atan2``, ``log10``, ``int64``).
    """
    text = text[:_LONGEST]
    for pattern, replacement in _masks():
        text = pattern.sub(replacement, text)
    return text[:1000]


@cache
def _masks() -> tuple[tuple[re.Pattern[str], str], ...]:
    """All masks in their order: those of single compilers come before those for numbers, which they may contain."""
    rules = installed()
    numbered = "|".join([_NUMBERED, *rules.numbered])
    return (
        *((re.compile(pattern), replacement) for pattern, replacement in _FIRST_MASKS),
        *rules.masks,
        *((re.compile(pattern.replace("<numbered>", numbered)), replacement) for pattern, replacement in _LATER_MASKS),
    )


_LONGEST = 20_000
_WORD = re.compile(r"\b[A-Za-z_]\w*+")
#: What stands before the name of a node.
_NAMING = re.compile(r"(?i)\b(node|name)\b['\"]?\s?[=:]?\s?['\"`<]?$")
_GENERATED = re.compile(r"^<|(^|/)c[a-z0-9]{40,}\.py$|^[a-z0-9]{51,53}\.py$")
#: `GraphModule` drops the frames of its generated code from the exceptions that it raises again.
_GENERATED_CALLS = ("torch/fx/graph_module.py:__call__", "torch/fx/graph_module.py:call_wrapped")
_CALLERS = ("torch/_dynamo/eval_frame.py:_fn",)
_TRAILER = re.compile(
    r"\s*(Set TORCH|While executing|Original traceback|from user code|Traceback \(most recent|target:|  args\[|"
    r"GraphModule:|You can suppress|Hint:|Developer debug|Found from|Exception raised from|C\+\+ CapturedTraceback|"
    r"graph\(\):|(class \w+\(torch\.nn\.Module\)|def forward\(self)|%\w+ : .*= (placeholder|call_\w+|get_attr)\[|"
    r"opcode +name +target|frame #\d|File \"[^\"]*\", line \d)"
)
_ERROR_LINE = re.compile(
    r"(?i)\b(error|fatal|assert(ion)?|abort(ed)?|check failed|failed to|exception|terminate called after)\b|"
    r"^\[?[EF]\d{4} "
)
#: What the C++ runtime says of an uncaught exception.
_WHAT = re.compile(r"what\(\): .*")
#: A warning, or a log line below error level: Python's, glog's, a C++ compiler's.
_WARNING = re.compile(r"Warning: |(?i:\bwarning: )|^\s*\[?[IWDV]\d{4} |^(WARNING|INFO|DEBUG)\b")
#: What Dynamo logs about its own work: it raises that too.
_DYNAMO = re.compile(r"^\[?[EF]\d{4} .*\btorch/(_guards|_dynamo/(?!backends/)[\w/]+)\.py:\d+\]")
#: What `faulthandler` prints; its frames become `Failure.frames`.
_FAULT = re.compile(r"Fatal Python error: |Current thread |Thread 0x|Stack \(most recent|Extension modules: ")
#: A masked position in a source nobody else has, and a run of masked operands.
_PLACE = re.compile(r"^[\w.-]+:<n>:<n>: (?=error: )")
_ALIKE = re.compile(r"(<value>)(?:, <value>){2,}")
_LOG_PREFIX = re.compile(r"^\[?[EF]\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\] ")
#: Names that compilers number: a buffer, a temporary, an index.
_NUMBERED = (
    r"buf|tmp|op|arg|primals|tangents|getitem|val|var|node|ptr|input|output|in|out|loc|"
    r"kernel|seed|result|graph|fn|func|main_graph|eval_with_key"
)
#: A list in brackets, with lists in it.
_NESTED = r"[(\[{](?:[^()\[\]{}]|[(\[{][^()\[\]{}]*+[)\]}])*+[)\]}]"
#: No pattern may try a long word again from each of its letters: messages of megabytes exist.
_FIRST_MASKS: tuple[tuple[str, str], ...] = (
    (r"\x1b\[[\d;]*m", ""),
    # torch.fx.Node.format_node: only operator kind and target survive other edits of the node
    (
        r"%?\b[A-Za-z_]\w*+ : (?:\[[^\]]*\] )*= (\w+\[target=[^\]]*\])\(args = .*?, kwargs = \{.*?\}\)",
        r"<node> = \1",
    ),
    # what a node reads and who reads it
    (
        r"(?i)\b(users|used by|consumers|producers|args|kwargs|(?:all_)?input_nodes|operands)(['\"]?\s?[=:]?\s?)"
        + _NESTED,
        r"\1\2<nodes>",
    ),
    # the operands of a call that the dispatcher refused: how many there are, and whether they are parameters
    (r"(?<=[(\s])(?:Tensor|Parameter)(?:, (?:Tensor|Parameter))*(?=[,)])", "Tensor"),
    (r"\b0x[0-9a-fA-F]{4,}", "<addr>"),
    (r"(?:[A-Za-z]:|(?<![\w.~+/-]))(?:[\w.~+-]*+/)+[\w.+@-]+(?::\d+)*", "<path>"),
    (r"\bc[a-z0-9]{49,52}\b", "<generated>"),
)
_LATER_MASKS: tuple[tuple[str, str], ...] = (
    (r"%\w+(?:[:#]\d+)?", "<value>"),
    (r"\b[lL]_\w*_\b", "<input>"),
    (r"(?<=tensor<)(?:[\d?]+x)+", "<shape>x"),
    (r"(?<=[A-Za-z0-9])_\d+(?=_|\b)", ""),
    (r"\b(<numbered>)\d+\b", r"\1"),
    # a letter and a number: a symbolic size (s77, u0) or an index (x0), but not a dtype (f16, si64)
    (r"\b(?!(?:f|bf|i|u|si|ui)(?:8|16|32|64|128)\b)(?:[a-z]|ks|ps)\d+\b", "<n>"),
    (r"\b\d+(?:x\d+)+\b", "<shape>"),
    (r"\b0x[0-9a-fA-F]+", "<addr>"),
    (r"(?<![\w.])-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[LlUuf]*\b(?!\.\d)", "<n>"),
    (r"<n>(?: ?[*+] ?<n>)+", "<n>"),
    (r"(?:(?:torch\.)?Size)?\((?:\s*<n>\s*,)+(?:\s*<n>)?\s*\)", "<shape>"),
    (r"(?:(?:torch\.)?Size\()?\[\s*+(?:(?:<n>|\?)(?:\s*,\s*(?:<n>|\?))*+)?\s*+\]\)?", "<shape>"),
    # a list of alike items, one for each input
    (r"(?<![\w.<>])([\w.<>]++(?:\([^()]*+\))?+)(?:, \1(?![\w.<>]))+", r"\1"),
    (r"[ \t]+", " "),
)
