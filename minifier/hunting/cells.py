"""The cells of a hunt, one for each operator, dtype and mode, and the bugs behind those that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ...store import codec
from ...store.document.case import Json
from .findings import bug_of
from .programs import CallOutcome, Finding, Program, ProgramResult


class CellState(StrEnum):
    """The result of a program under a backend."""

    OK = "ok"  # every call that could be made was compared with eager, and is the same
    FAILS = "fails"  # the backend raised, diverged, crashed or hung in a call
    REFUSED = "eager refuses"  # eager raises in every call
    UNJUDGED = "cannot be judged"  # a call ran, or did not, and could not be compared
    UNTRIED = "not tried"


#: The columns of a hunt: whether gradients are computed, whether sizes are symbolic, and the name.
MODES = {
    (False, False): "forward",
    (True, False): "gradient",
    (False, True): "dynamic",
    (True, True): "dynamic gradient",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A program and its result: ``detail`` says why it is not ok, ``captures`` has the ids of its failures.

    ``left`` is what the backend left to eager, with the reasons, where it says so.
    """

    program: Program
    state: CellState
    detail: str = ""
    captures: tuple[int, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        return MODES[self.program.gradient, self.program.dynamic]

    def to_json(self) -> Json:
        return {**codec.dump(self), "mode": self.mode}


@dataclass(frozen=True, slots=True)
class HuntedBug:
    """Failures that are one bug, see `fxminify.minifier.hunting.findings.bug_of`.

    ``finding`` is the first of them, ``programs`` show it, in their order.
    """

    finding: Finding
    programs: tuple[Program, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The operators, or other names of programs."""
        return tuple(dict.fromkeys(program.name for program in self.programs))

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(program.dtype for program in self.programs if program.dtype))

    def to_json(self) -> Json:
        return {**codec.dump(self.finding), "names": list(self.names), "dtypes": list(self.dtypes),
                "programs": [program.text() for program in self.programs]}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HuntComparison:
    """The programs that both hunts tried, by what became of them.

    ``earlier`` has the backend of the earlier hunt and its versions. ``broken`` were ok and fail, ``mended`` failed and
    are ok, ``otherwise`` fail with other signatures than before. ``tried`` counts the programs of both.
    """

    earlier: Mapping[str, str]
    tried: int
    broken: tuple[str, ...]
    mended: tuple[str, ...]
    otherwise: tuple[str, ...]

    def to_json(self) -> Json:
        return codec.dump(self)


@dataclass(frozen=True, slots=True)
class HuntResult:
    """The result of a hunt of ``backend``: its cells in the order of the programs, and its bugs.

    ``new`` are the texts of the failing programs that were not expected, ``unseen`` the expected failures of programs
    that were tried and did not show them. ``versions`` has the versions by package. ``stopped`` says why the hunt ended
    early. ``comparison`` is with an earlier hunt.
    """

    backend: str
    cells: tuple[Cell, ...]
    bugs: tuple[HuntedBug, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    new: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    stopped: str = ""
    comparison: HuntComparison | None = None

    @property
    def totals(self) -> dict[CellState, int]:
        """The number of cells in each state."""
        found = Counter(cell.state for cell in self.cells)
        return {state: found[state] for state in CellState}

    @property
    def totals_by_mode(self) -> dict[str, dict[CellState, int]]:
        """The totals of each column that the hunt has."""
        found = Counter((cell.mode, cell.state) for cell in self.cells)
        modes = [mode for mode in MODES.values() if any(cell.mode == mode for cell in self.cells)]
        return {mode: {state: found[mode, state] for state in CellState} for mode in modes}

    def to_json(self) -> Json:
        return {
            "backend": self.backend,
            "versions": dict(self.versions),
            "stopped": self.stopped,
            "totals": {str(state): number for state, number in self.totals.items()},
            "new": list(self.new),
            "unseen": list(self.unseen),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "bugs": [bug.to_json() for bug in self.bugs],
            "cells": [cell.to_json() for cell in self.cells],
        }


def cells(programs: Sequence[Program], results: Mapping[Program, ProgramResult]) -> tuple[Cell, ...]:
    """Return the cell of each program."""
    return tuple(_cell(program, results.get(program)) for program in programs)


def _cell(program: Program, result: ProgramResult | None) -> Cell:
    if result is None:
        return Cell(program, CellState.UNTRIED)
    outcomes = {call.outcome: call for call in reversed(result.calls)}  # the first call with each outcome
    captures = (finding.capture for call in result.calls for finding in call.findings)
    found = tuple(dict.fromkeys(filter(None, captures)))
    left = tuple(dict.fromkeys(text for call in result.calls for text in call.left))
    if (failed := outcomes.pop(CallOutcome.FAILS, None)) is not None:
        return Cell(program, CellState.FAILS, failed.detail, found, left)
    if result.problem:
        return Cell(program, CellState.UNJUDGED, result.problem, left=left)
    refused, passed = outcomes.pop(CallOutcome.REFUSED, None), outcomes.pop(CallOutcome.OK, None)
    if outcomes:
        return Cell(program, CellState.UNJUDGED, next(iter(outcomes.values())).detail, left=left)
    if passed is None:
        detail = "the suite has no call of it" if refused is None else refused.detail
        return Cell(program, CellState.UNJUDGED if refused is None else CellState.REFUSED, detail, left=left)
    return Cell(program, CellState.OK, left=left)


def bugs(results: Iterable[ProgramResult]) -> tuple[HuntedBug, ...]:
    """Return the bugs that programs show, first the one with the most names."""
    found: dict[tuple[str, str], tuple[Finding, dict[Program, None]]] = {}
    for program, finding in findings(results):
        found.setdefault(bug_of(program, finding), (finding, {}))[1][program] = None
    made = [HuntedBug(finding, tuple(programs)) for finding, programs in found.values()]
    return tuple(sorted(made, key=lambda bug: (-len(bug.names), -len(bug.programs))))


def findings(results: Iterable[ProgramResult]) -> Iterator[tuple[Program, Finding]]:
    """Yield each failure with its program."""
    for result in results:
        for call in result.calls:
            for finding in call.findings:
                yield result.program, finding
