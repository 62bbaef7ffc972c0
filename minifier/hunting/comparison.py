"""A hunt beside an earlier one, of another version or of another backend: what broke since, and what was mended."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping

from .cells import CellState, HuntComparison, cells, findings
from .expected import ExpectedFailure
from .log import EarlierHunt
from .programs import Program, ProgramResult


def compared(earlier: EarlierHunt, results: Mapping[Program, ProgramResult]) -> HuntComparison:
    """Compare ``results`` with the ``earlier`` hunt."""
    both = [program for program in results if program in earlier.results]
    before, now = cells(both, earlier.results), cells(both, results)

    def became(was: CellState, is_: CellState) -> Iterator[Program]:
        for one, other in zip(before, now, strict=True):
            if (one.state, other.state) == (was, is_):
                yield one.program

    otherwise = (
        program for program in became(CellState.FAILS, CellState.FAILS)
        if not _signatures(earlier.results[program]) & _signatures(results[program])
    )  # fmt: skip
    return HuntComparison(
        earlier.about, len(both),
        tuple(program.text() for program in became(CellState.OK, CellState.FAILS)),
        tuple(program.text() for program in became(CellState.FAILS, CellState.OK)),
        tuple(program.text() for program in otherwise),
    )  # fmt: skip


def expected(earlier: EarlierHunt) -> tuple[ExpectedFailure, ...]:
    """Return the failures of ``earlier`` as expected ones: the same signature in the same program is not new."""
    found = ((program.text(), finding.signature) for program, finding in findings(earlier.results.values()))
    return tuple(ExpectedFailure(glob.escape(program), signature) for program, signature in dict.fromkeys(found))


def _signatures(result: ProgramResult) -> set[str]:
    return {finding.signature for call in result.calls for finding in call.findings}
