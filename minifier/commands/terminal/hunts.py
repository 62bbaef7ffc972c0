"""The progress of `minify hunt` on standard error, and its result as tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ....store.errors import without_password
from ....store.failure import kind_in_words
from ....store.text import count
from ...hunting.cells import Cell, CellState, HuntComparison, HuntResult
from ...hunting.findings import bug_of
from ...hunting.programs import ProgramResult
from ...printable import printable, shown

if TYPE_CHECKING:
    from ...hunting.campaign import HuntOptions

_STYLES = {CellState.OK: "green", CellState.FAILS: "red", CellState.UNJUDGED: "yellow"}
#: Seconds between two lines of progress where there is no terminal.
_PAUSE = 10.0
#: The most operators that a bug lists, and rows that are printed of what cannot be judged.
_NAMED, _ROWS = 6, 20


class HuntProgress:
    """A line on standard error: programs done, their rate, the time left, and the bugs so far.

    On a terminal it is written again and again, else at most once in `_PAUSE` seconds. Each new bug has a line.
    """

    def __init__(self, options: HuntOptions, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._options = options
        self._status = self.console.status(Text("starting workers"))
        self._of = self._known = self._done = 0
        self._bugs: set[tuple[str, str]] = set()
        self._began = self._spoke = time.monotonic()

    def __enter__(self) -> HuntProgress:
        if self.console.is_terminal and not self.console.quiet:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._status.stop()
        if isinstance(error, KeyboardInterrupt) and self._of:
            self._say(f"interrupted after {self._known + self._done} of {count(self._of, 'program')}; "
                      "the same command goes on there")  # fmt: skip

    def begin(self, programs: int, known: int) -> None:
        self._of, self._known = programs, known
        self._began = self._spoke = time.monotonic()
        before = f", {known} of them were run before" if known else ""
        self._say(f"{count(programs, 'program')}{before}; results go to {self._options.log}")

    def done(self, result: ProgramResult) -> None:
        self._done += 1
        for call in result.calls:
            for finding in call.findings:
                if (bug := bug_of(result.program, finding)) not in self._bugs:
                    self._bugs.add(bug)
                    stored = f"capture {finding.capture}, " if finding.capture else ""
                    self._say(f"{result.program.text()}: {stored}{kind_in_words(finding.kind)}: {finding.headline}")
        line = self._line()
        self._status.update(Text(shown(line)))
        if not self.console.is_terminal and time.monotonic() - self._spoke > _PAUSE:
            self._say(line)

    def _line(self) -> str:
        seconds = time.monotonic() - self._began
        rate = self._done / seconds if seconds else 0.0
        left = self._of - self._known - self._done
        more = f", about {_duration(left / rate)} left" if rate and left else ""
        done = self._known + self._done
        return f"{done}/{self._of} programs, {_rate(rate)}{more}; {count(len(self._bugs), 'bug')}"

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        self.console.print(Text(shown(text)), soft_wrap=True)


def _rate(rate: float) -> str:
    return f"{rate:.1f} a second" if rate >= 1 else f"{rate * 60:.1f} a minute"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def result(found: HuntResult, db: str, *, console: Console | None = None) -> None:
    """Print the operators that are not ok, the bugs, the totals, and the next command."""
    console = console or Console()
    _operators(found, console)
    _unjudged(found, console)
    _bugs(found, console)
    _totals(found, console)
    for line in _ending(found, printable(without_password(db))):
        console.print(Text(shown(line)), soft_wrap=True)


def _operators(found: HuntResult, console: Console) -> None:
    """Print a row for each operator that fails, with its dtypes by mode and state."""
    failing = {cell.program.name for cell in found.cells if cell.state is CellState.FAILS}
    if not failing:
        return
    modes = list(found.totals_by_mode)
    out = Table(box=None, pad_edge=False)
    for column in ("fails", *modes):
        out.add_column(column)
    rows: dict[str, dict[str, list[Cell]]] = {}
    for cell in found.cells:
        if cell.program.name in failing:
            rows.setdefault(cell.program.name, {}).setdefault(cell.mode, []).append(cell)
    for name, cells in rows.items():
        out.add_row(Text(shown(name)), *(_dtypes(cells.get(mode, [])) for mode in modes))
    console.print(out)


def _dtypes(cells: Sequence[Cell]) -> Text:
    """Return the states of cells of one operator and mode: ``fails float16, ok``."""
    parts = []
    for state in CellState:
        dtypes = [cell.program.dtype for cell in cells if cell.state is state]
        if dtypes:
            named = "" if len(cells) == 1 or state is CellState.OK else f" {', '.join(dtypes)}"
            parts.append(Text(f"{state}{named}", style=_STYLES.get(state, "dim")))
    return Text(", ").join(parts)


def _unjudged(found: HuntResult, console: Console) -> None:
    cells = [cell for cell in found.cells if cell.state is CellState.UNJUDGED]
    if not cells:
        return
    console.print()
    out = Table(box=None, pad_edge=False)
    out.add_column("cannot be judged")
    out.add_column("reason", overflow="fold")
    by_reason: dict[str, list[Cell]] = {}
    for cell in cells:
        by_reason.setdefault(shown(cell.detail, 200), []).append(cell)
    for reason, same in list(by_reason.items())[:_ROWS]:
        out.add_row(Text(shown(_few(dict.fromkeys(cell.program.name for cell in same)))), Text(reason))
    console.print(out)
    if len(by_reason) > _ROWS:
        console.print(Text(f"{len(by_reason) - _ROWS} more reasons: --json"))


def _bugs(found: HuntResult, console: Console) -> None:
    if not found.bugs:
        return
    console.print()
    out = Table(box=None, pad_edge=False)
    for column, how in (("capture", "right"), ("bug", "left"), ("operators", "left"), ("dtypes", "left")):
        out.add_column(column, justify="right" if how == "right" else "left", overflow="fold")
    for bug in found.bugs:
        headline = f"{kind_in_words(bug.finding.kind)}: {shown(bug.finding.headline, 160)}"
        capture = str(bug.finding.capture or "-")
        out.add_row(capture, Text(headline), Text(shown(_few(bug.names))), Text(shown(", ".join(bug.dtypes))))
    console.print(out)


def _totals(found: HuntResult, console: Console) -> None:
    console.print()
    out = Table(box=None, pad_edge=False)
    out.add_column("")
    for state in CellState:
        out.add_column(str(state), justify="right")
    rows = found.totals_by_mode
    if len(rows) > 1:
        rows = {**rows, "all": found.totals}
    for mode, totals in rows.items():
        out.add_row(mode, *(Text(str(totals[s]), style=_STYLES.get(s, "") if totals[s] else "dim") for s in CellState))
    console.print(out)


def _ending(found: HuntResult, db: str) -> Iterator[str]:
    if found.stopped:
        untried = count(found.totals[CellState.UNTRIED], "program")
        yield f"{found.stopped}: {untried} not tried; the same command goes on."
    for entry in found.unseen:
        yield f"expected, and did not fail: {entry}"
    if found.comparison is not None:
        yield from _compared(found.comparison)
    if found.new:
        yield f"{count(len(found.new), 'program')} with a failure that is not expected."
    if any(bug.finding.capture for bug in found.bugs):
        yield f"Minify the failures: minify run {db}"


def _compared(found: HuntComparison) -> Iterator[str]:
    """Yield what differs from the earlier hunt, and from which."""
    named = ", ".join(f"{name} {value}" for name, value in found.earlier.items())
    yield f"compared with {named}: {count(found.tried, 'program')} of both"
    groups = (("broken since", found.broken), ("mended since", found.mended), ("fail otherwise", found.otherwise))
    for what, programs in groups:
        yield from (f"  {what}: {program}" for program in programs[:_ROWS])
        if len(programs) > _ROWS:
            yield f"  {what}: {len(programs) - _ROWS} more: --json"
    if not any(programs for _, programs in groups):
        yield "  no difference"


def _few(names: Sequence[str] | dict[str, None]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
