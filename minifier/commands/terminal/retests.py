"""Results of retests on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ....store.failure import kind_in_words
from ....store.index import RetestResult
from ...printable import shown
from ...reporting.known import KnownBug, find

if TYPE_CHECKING:
    from ...regression.retest import RetestAnswer

_RETEST_STYLES = {
    "fixed": "green",
    "still failing": "yellow",
    "changed": "red",
    "cannot run": "dim",
    "not minified": "dim",
}

#: One character each, for a matrix.
_MARKS = {
    RetestResult.FIXED: "fixed",
    RetestResult.FAILING: "fails",
    RetestResult.CHANGED: "other",
    RetestResult.CANNOT_RUN: "-",
}


def answers(rows: Sequence[RetestAnswer], *, known: Sequence[KnownBug] = (), console: Console | None = None) -> None:
    """Two lines for each case, the case and its result; and the number of cases with each result.

    ``known`` are bugs that a team knows.
    """
    console = console or Console()
    if not rows:
        console.print(Text("No captures, so nothing to retest."))
        return
    cells = [("id", "failure", "backend", "result"), *map(_retest_cells, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    lines = [f"{id:>{widths[0]}}  {kind:{widths[1]}}  {name:{widths[2]}}  " for id, kind, name, _ in cells]
    console.print(Text(f"{lines[0]}result", style="bold"), soft_wrap=True)
    for row, line, (*_, result) in zip(rows, lines[1:], cells[1:], strict=True):
        standing = row.standing.text() if row.standing is not None else ""
        entry = find(known, row.case.capture.signature, row.case.capture.operators)
        place = "" if entry is None else f"known: {entry.text()}"
        message = "; ".join(part for part in (row.message, standing, place) if part)
        style = "bold red" if result.endswith("!") else _RETEST_STYLES[row.result]
        console.print(Text(line).append(result, style), soft_wrap=True)
        if message:
            console.print(Text(f"{'':{widths[0]}}  {' '.join(shown(message, 400).split())}"), soft_wrap=True)
    counts = Counter(row.result for row in rows)
    console.print(Text(", ".join(f"{count} {result}" for result, count in counts.items()) + _unexpected(rows)))


def _retest_cells(row: RetestAnswer) -> tuple[str, str, str, str]:
    mark = "" if row.expected or row.result == RetestResult.CANNOT_RUN.value else "!"
    kind, backend = shown(kind_in_words(row.case.capture.kind)), shown(row.case.backend, 28)
    return str(row.case.capture.id), kind, backend, row.result + mark


def _unexpected(rows: Sequence[RetestAnswer]) -> str:
    wrong = [row for row in rows if not row.expected and row.result != RetestResult.CANNOT_RUN.value]
    return f"; not as expected (!): {', '.join(shown(row.case.name, 60) for row in wrong)}" if wrong else ""


def matrix(found: Mapping[str, Any], *, console: Console | None = None) -> None:
    """The matrix for a person."""
    console = console or Console()
    if not found["rows"]:
        console.print(Text("Nothing was retested yet: minify retest DB"))
        return
    out = Table(box=None, pad_edge=False)
    out.add_column("id", justify="right")
    out.add_column("failure")
    for column in found["columns"]:
        out.add_column(Text(f"{shown(column['backend'], 24)}\n{shown(column['torch'], 30) or '?'}"))
    for row in found["rows"]:
        marks = [None if r is None else RetestResult(r["result"]) for r in row["results"]]
        cells = [Text("") if m is None else Text(_MARKS[m], style=_RETEST_STYLES[m.value]) for m in marks]
        out.add_row(str(row["id"]), Text(shown(kind_in_words(row["kind"]))), *cells)
    console.print(out)
    for row in found["rows"]:
        if row["standing"]:
            console.print(Text(shown(f"{row['id']}: {row['standing']}")), soft_wrap=True)
