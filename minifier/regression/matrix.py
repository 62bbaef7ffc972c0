"""What retests look like on a terminal: the answers of one, its progress, and the matrix of all that an index holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...store.index import Index, RetestResult
from ..commands.console import plain
from .retest import RetestAnswer, RetestCase
from .standing import order, standing

_COLORS = {"fixed": "green", "still failing": "yellow", "changed": "red", "cannot run": "dim", "not minified": "dim"}
#: One character each, for a matrix.
_MARKS = {
    RetestResult.FIXED: "fixed",
    RetestResult.FAILING: "fails",
    RetestResult.CHANGED: "other",
    RetestResult.CANNOT_RUN: "-",
}


class RetestProgress:
    """A line on standard error for each case that has its answer."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self._of = self._done = 0

    def begin(self, cases: list[RetestCase]) -> None:
        self._of = len(cases)

    def done(self, answer: RetestAnswer) -> None:
        self._done += 1
        found = answer.retest
        time = "answered before the interruption" if answer.resumed else f"{found.seconds if found else 0:.1f} s"
        text = f"[{self._done}/{self._of}] {answer.case.name} {answer.case.backend}: {answer.result} ({time})"
        self._console.print(Text(plain(text)), soft_wrap=True)


def answers(rows: Sequence[RetestAnswer], *, console: Console | None = None) -> None:
    """Two lines for each case, what it is and what is said of it; and how many of each result."""
    console = console or Console()
    if not rows:
        console.print(Text("No captures, so nothing to retest."))
        return
    cells = [("id", "failure", "backend", "result"), *map(_cells, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    lines = [f"{id:>{widths[0]}}  {kind:{widths[1]}}  {name:{widths[2]}}  " for id, kind, name, _ in cells]
    console.print(Text(f"{lines[0]}result", style="bold"), soft_wrap=True)
    for row, line, (*_, result) in zip(rows, lines[1:], cells[1:], strict=True):
        said = "; ".join(part for part in (row.said, row.standing.text() if row.standing is not None else "") if part)
        style = "bold red" if result.endswith("!") else _COLORS[row.result]
        console.print(Text(line).append(result, style), soft_wrap=True)
        if said:
            console.print(Text(f"{'':{widths[0]}}  {' '.join(plain(said, 400).split())}"), soft_wrap=True)
    counts = Counter(row.result for row in rows)
    console.print(Text(", ".join(f"{count} {result}" for result, count in counts.items()) + _verdict(rows)))


def _cells(row: RetestAnswer) -> tuple[str, str, str, str]:
    mark = "" if row.expected or row.result == RetestResult.CANNOT_RUN.value else "!"
    kind, backend = plain(row.case.capture.kind), plain(row.case.backend, 28)
    return str(row.case.capture.id), kind, backend, row.result + mark


def _verdict(rows: Sequence[RetestAnswer]) -> str:
    wrong = [row for row in rows if not row.expected and row.result != RetestResult.CANNOT_RUN.value]
    return f"; not as expected (!): {', '.join(plain(row.case.name, 60) for row in wrong)}" if wrong else ""


def matrix(index: Index, ids: Sequence[int] = ()) -> dict[str, Any]:
    """The last result of each case for each backend and version of torch, as data: columns, and a row for each case."""
    captures = index.captures(ids)
    retests = index.retests([c.id for c in captures] if ids else [])
    cells = {(r.capture, r.backend, r.versions.get("torch", "")): r for r in retests}
    columns = sorted({(b, v) for _, b, v in cells}, key=lambda c: (c[0], order(c[1]), c[1]))
    rows = []
    for capture in captures:
        found = standing(capture, capture.backend, retests) if any(r.capture == capture.id for r in retests) else None
        results = [cells.get((capture.id, *column)) for column in columns]
        if not any(results):
            continue
        rows.append({
            "id": capture.id, "signature": capture.signature, "kind": capture.kind,
            "standing": found.text() if found is not None else "",
            "results": [None if r is None else {"result": r.result.value, "at": r.at} for r in results],
        })  # fmt: skip
    return {"columns": [{"backend": b, "torch": v} for b, v in columns], "rows": rows}


def show(found: dict[str, Any], *, console: Console | None = None) -> None:
    """The matrix for a person."""
    console = console or Console()
    if not found["rows"]:
        console.print(Text("Nothing was retested yet: minify retest DB"))
        return
    out = Table(box=None, pad_edge=False)
    out.add_column("id", justify="right")
    out.add_column("failure")
    for column in found["columns"]:
        out.add_column(Text(f"{plain(column['backend'], 24)}\n{plain(column['torch'], 30) or '?'}"))
    for row in found["rows"]:
        marks = [None if r is None else RetestResult(r["result"]) for r in row["results"]]
        cells = [Text("") if m is None else Text(_MARKS[m], style=_COLORS[m.value]) for m in marks]
        out.add_row(str(row["id"]), Text(plain(row["kind"])), *cells)
    console.print(out)
    for row in found["rows"]:
        if row["standing"]:
            console.print(Text(plain(f"{row['id']}: {row['standing']}")), soft_wrap=True)
