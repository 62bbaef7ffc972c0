"""The page of a hunt, from its result and the scripts that an index has of its bugs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ...repro_templates.report.hunt_page import HuntBug, HuntCell, HuntPage, HuntRow
from ...repro_templates.report.hunt_page import render as render_page
from ...store.errors import without_password
from ...store.index import Index
from ...store.text import count
from .cells import Cell, CellState, HuntedBug, HuntResult
from .programs import Program

#: The states in the order of the totals, as the style sheet names them.
_STATES = {
    CellState.OK: "ok", CellState.FAILS: "fails", CellState.REFUSED: "refused", CellState.UNJUDGED: "unjudged",
    CellState.UNTRIED: "untried",
}  # fmt: skip
#: The most reasons for which a backend left something to eager, in the text of a cell.
_REASONS = 3


def render(found: HuntResult, db: str) -> str:
    """Return the page as HTML. The scripts of bugs come from the index ``db``, if it exists."""
    columns = {mode: _dtypes(found, mode) for mode in found.totals_by_mode}
    numbers = {program: number for number, bug in reversed(list(enumerate(found.bugs, 1))) for program in bug.programs}
    rows: dict[str, dict[tuple[str, str], Cell]] = {}
    for cell in found.cells:
        rows.setdefault(cell.program.name, {})[cell.mode, cell.program.dtype] = cell
    places = [(mode, dtype) for mode, dtypes in columns.items() for dtype in dtypes]
    scripts = _scripts(found, db)
    return render_page(
        HuntPage(
            backend=found.backend,
            versions=tuple(found.versions.items()),
            columns=tuple((mode, dtypes) for mode, dtypes in columns.items()),
            rows=tuple(
                HuntRow(name, tuple(_cell(cells.get(place), numbers) for place in places))
                for name, cells in rows.items()
            ),
            bugs=tuple(_bug(n, bug, db, scripts.get(bug.finding.capture, "")) for n, bug in enumerate(found.bugs, 1)),
            totals=tuple((_STATES[state], str(state), number) for state, number in found.totals.items()),
            notes=tuple(_notes(found)),
        )
    )


def _dtypes(found: HuntResult, mode: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.program.dtype for cell in found.cells if cell.mode == mode))


def _cell(cell: Cell | None, numbers: dict[Program, int]) -> HuntCell | None:
    if cell is None:
        return None
    more = f", {len(cell.left) - _REASONS} more" if len(cell.left) > _REASONS else ""
    left = f"left to eager: {'; '.join(cell.left[:_REASONS])}{more}" if cell.left else ""
    title = ": ".join(filter(None, (f"{cell.program.text()}: {cell.state}", cell.detail, left)))
    return HuntCell(_STATES[cell.state], title, numbers.get(cell.program, 0))


def _bug(number: int, bug: HuntedBug, db: str, script: str) -> HuntBug:
    found = bug.finding
    command = shlex.join(["minify", "run", without_password(db), str(found.capture)]) if found.capture else ""
    programs = tuple(program.text() for program in bug.programs)
    return HuntBug(
        number, found.headline, found.kind, found.phase, found.signature, found.capture, programs, bug.names, command,
        script,
    )  # fmt: skip


def _notes(found: HuntResult) -> list[str]:
    notes = [f"The hunt ended early: {found.stopped}."] if found.stopped else []
    if found.new:
        notes.append(f"{count(len(found.new), 'program')} with a failure that is not expected.")
    if (compared := found.comparison) is not None:
        earlier = ", ".join(f"{name} {value}" for name, value in compared.earlier.items())
        groups = {"broken": compared.broken, "mended": compared.mended, "failing otherwise": compared.otherwise}
        parts = [f"{what}: {', '.join(programs)}" for what, programs in groups.items() if programs] or ["no difference"]
        notes.append(f"Compared with {earlier}, {count(compared.tried, 'program')} of both. {'. '.join(parts)}.")
    return notes


def _scripts(found: HuntResult, db: str) -> dict[int, str]:
    """Return the verified scripts of the bugs by the ids of their captures."""
    wanted = [bug.finding.capture for bug in found.bugs if bug.finding.capture]
    if not wanted or ("://" not in db and not os.path.exists(Path(db))):
        return {}
    with Index.open(db, readonly=True) as index:
        stored = {id: index.repros.get(id) for id in wanted}
    return {id: repro.text for id, repro in stored.items() if repro is not None and repro.verified}
