"""The programs of a hunt and their results, as plain data: `Program`, `Suite`, and the `CallResult` of each call.

A suite is an object that an entry point of the group ``fxminify.suites`` names. It lists programs, and prepares one in
a worker: a function and the arguments of its calls, the same for the same program in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Protocol

from ...store import codec, extensions
from ...store.document.case import Json
from ...store.errors import StoreError
from ...store.failure import Failure
from ...store.signature import signature

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a suite.

    ``dtype`` is the dtype of its inputs, empty if the suite has none. ``gradient``: its inputs require gradients.
    ``dynamic``: it is compiled with symbolic sizes. ``layout`` is ``contiguous`` or ``noncontiguous``. ``calls`` is the
    largest number of calls, drawn with ``seed``. ``device`` has its inputs, such as ``cuda``.
    """

    suite: str
    name: str
    dtype: str = ""
    gradient: bool = False
    dynamic: bool = False
    layout: str = "contiguous"
    seed: int = 0
    calls: int = 5
    device: str = CPU

    def text(self) -> str:
        """The program in one line: ``ops add float32 gradient dynamic``."""
        words = [self.suite, self.name, self.dtype, "" if self.device == CPU else self.device]
        words += ["gradient" if self.gradient else "forward"]
        words += ["dynamic" if self.dynamic else "static", "" if self.layout == "contiguous" else self.layout]
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of programs: the product of these. ``names`` are patterns such as ``nn.functional.*``."""

    names: tuple[str, ...] = ("*",)
    dtypes: tuple[str, ...] = ("float32",)
    gradient: tuple[bool, ...] = (False, True)
    dynamic: tuple[bool, ...] = (False, True)
    layouts: tuple[str, ...] = ("contiguous",)
    seed: int = 0
    calls: int = 5
    device: str = CPU

    def has(self, name: str) -> bool:
        """Return whether ``name`` matches a pattern."""
        return any(fnmatchcase(name, pattern) for pattern in self.names)


@dataclass(frozen=True, slots=True)
class PreparedProgram:
    """A function, and the positional and keyword arguments of its calls. ``backward``: compute gradients."""

    function: Callable[..., Any]
    calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]
    backward: bool = False


class Suite(Protocol):
    """A source of programs. Both methods run in a worker and may import torch."""

    def programs(self, wanted: Selection) -> Iterable[Program]:
        """List the programs of ``wanted``, in an order that is always the same."""

    def prepare(self, program: Program) -> PreparedProgram:
        """Make ``program``. May raise what the library raises that it comes from."""


#: The first words of the phases of a call: eager, then the backend.
CALLING = EAGER, CALL = "eager", "call"


class CallOutcome(StrEnum):
    """The outcome of one call."""

    OK = "ok"  # compared with eager, and the same
    FAILS = "fails"  # the backend raised, diverged, crashed or hung
    UNCHECKED = "unchecked"  # it ran, and could not be compared: see detail
    REFUSED = "refused"  # eager raises as well
    UNTRACED = "untraced"  # no graph reached the backend
    ABSENT = "absent"  # the backend cannot run in this installation
    INFRA = "infra"  # the hunt itself failed


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure of a call: the fields of a `Failure` that a row shows, and the digest of its signature.

    ``capture`` is the id of its capture in the index of the hunt, 0 if it is not stored.
    """

    kind: str
    phase: str
    headline: str
    signature: str
    capture: int = 0

    @classmethod
    def of(cls, failure: Failure) -> Finding:
        """Return ``failure`` as a finding that is not stored."""
        return cls(str(failure.kind), str(failure.phase), failure.headline(), signature(failure).digest)


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of call ``number`` of a program. ``left``: what the backend left to eager, with the reasons.

    The number after the last one stands for a function that makes all calls. It is in a result only if it fails and
    each call by itself does not.
    """

    number: int
    outcome: CallOutcome
    detail: str = ""
    findings: tuple[Finding, ...] = ()
    left: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The results of the calls of a program, in their order. ``problem``: why it was not prepared."""

    program: Program
    calls: tuple[CallResult, ...] = ()
    problem: str = ""
    seconds: float = 0.0

    def to_json(self) -> Json:
        return codec.dump(self)

    @classmethod
    def from_json(cls, doc: Any) -> ProgramResult:
        """Return the inverse of `to_json`. Raises `ValueError`."""
        return codec.load(doc, cls)


def suite(name: str) -> Suite:
    """Return the installed suite ``name``. Raises `StoreError` with the names that there are."""
    found = extensions.load(extensions.SUITES)
    if name not in found:
        raise StoreError(f"there is no suite {name!r}; installed are {', '.join(found) or 'none'}")
    chosen: Suite = found[name]
    return chosen
