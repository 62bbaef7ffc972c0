"""Lists on the terminal: bugs, backends, tasks, tokens, and notifications."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from ....store.errors import without_password
from ....store.failure import kind_in_words
from ....store.index import BugInfo, DeliveryInfo, RetestResult, TaskInfo, TaskState, TokenInfo, WorkerInfo
from ...printable import printable, shown
from ...reporting import groups
from ...reporting.known import KnownBug, find
from .parts import rows

STATES = {
    "verified": "green",
    "unverified": "yellow",
    "not_reproduced": "yellow",
    "eager_refuses": "yellow",
    "unsupported": "red",
    "blocked": "red",
    "reducing": "cyan",
    "fixed": "cyan",
    "changed": "yellow",
}


def table(
    bugs: Sequence[BugInfo],
    db: str,
    *,
    results: Mapping[int, RetestResult] = MappingProxyType({}),
    known: Sequence[KnownBug] = (),
    more: str = "",
    console: Console | None = None,
) -> None:
    """Print bugs of a database, two lines for each.

    ``results`` are the last results of captures that were retested. ``known`` are bugs that a team knows. ``more`` has
    the options that list other bugs, empty where these are all.
    """
    console = console or Console()
    name = printable(without_password(db))
    if not bugs:
        console.print(Text(f"No failures in {name}. Capture some: minify capture --db {name} SCRIPT"))
        return
    found = sorted(bugs, key=lambda bug: bug.ids)
    said = [groups.standing(bug, results) for bug in found]
    states = [(one, one) if one else groups.state(bug.states) for one, bug in zip(said, found, strict=True)]
    cells = [("id", "state", "failure", "backend", "nodes", "seen")]
    cells += [
        (groups.ids(bug.ids, more=len(bug.ids) < bug.captures), state, shown(kind_in_words(bug.kind) or "-"),
         shown(bug.backend), groups.nodes(bug.nodes_before, bug.nodes_after), str(bug.occurrences))
        for bug, (_, state) in zip(found, states, strict=True)
    ]  # fmt: skip
    widths = [min(max(cell_len(row[i]) for row in cells), most) for i, most in enumerate(_WIDTHS)]
    widths[3] = max(min(widths[3], console.width - sum(widths) + widths[3] - 2 * (len(widths) - 1)), 7)
    console.print(_cells(cells[0], widths, "bold"), no_wrap=True, overflow="ellipsis")
    lines = told_apart([_what(bug) for bug in found], console.width - widths[0] - 2)
    for bug, row, line, (state, _) in zip(found, cells[1:], lines, states, strict=True):
        console.print(_cells(row, widths, "", STATES.get(state, "")), no_wrap=True, overflow="ellipsis")
        told = Text(f"{'':{widths[0]}}  {line}", style="dim" if console.is_terminal else "")
        console.print(told, no_wrap=True, overflow="ellipsis")
        if (entry := find(known, bug.signature, bug.calls or bug.operators)) is not None:
            place = Text(f"{'':{widths[0]}}  known: {shown(entry.text(), 300)}")
            console.print(place, no_wrap=True, overflow="ellipsis")
    if more:
        console.print(Text(f"These are not all. The next: minify list {name} {more}"))


def _what(bug: BugInfo) -> str:
    """The error and the line of the program that fails, where it is known, on one line."""
    message = " ".join(shown(bug.headline, 1000).split())
    place = re.split(r" \(|, | and ", bug.comes_from)[0]
    return f"{message} ({shown(place, 100)})" if place else message


def told_apart(lines: Sequence[str], width: int) -> list[str]:
    """``lines`` with the middle left out of those that would be alike once they are cut to ``width`` columns."""
    out = []
    for line in lines:
        alike = [other for other in lines if other != line and other[: width - 1] == line[: width - 1]]
        if alike and len(line) > width:
            pairs = (zip(line, other, strict=False) for other in alike)
            at = min(next((i for i, (mine, theirs) in enumerate(pair) if mine != theirs), width) for pair in pairs)
            begin = max(0, line.rfind(" ", 0, at) + 1)
            out.append(f"{line[: min(begin, width // 2)]}… {line[begin:]}")
        else:
            out.append(line)
    return out


#: The most columns of each cell of a listing.
_WIDTHS = (13, 17, 13, 40, 11, 6)


def _cells(row: Sequence[str], widths: Sequence[int], style: str, state: str = "") -> Text:
    """Return a line of a listing; ids, nodes and counts are aligned to the right."""
    line = Text(style=style)
    for place, (text, width) in enumerate(zip(row, widths, strict=True)):
        cut = text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"
        space = " " * (width - cell_len(cut))
        line.append(space + cut if place in (0, 4, 5) else cut + space, style=state if place == 1 else None)
        line.append("  " if place + 1 < len(row) else "")
    line.rstrip()
    return line


def backends(items: Sequence[Mapping[str, Any]]) -> None:
    """Print the backends of `backends.provenance.catalog`, one per row, and notes below the table."""
    table, notes = [], []
    for item in items:
        verdict, _, message = str(item.get("test", "")).partition(": ")
        table.append({"name": item["name"], "origin": item["origin"], "recreatable": item["recreatable"]})
        table[-1]["adapter"] = item["adapter"]
        if "test" in item:
            table[-1]["test"] = verdict
        command = "" if item["needs"] in message else item["needs"]
        notes += [f"{item['name']}: {shown(text)}" for text in (item["problem"], message, command) if text]
    rows(table)
    console = Console()
    for note in notes:
        console.print(Text(note))


def tasks(
    found: Sequence[TaskInfo],
    counts: Mapping[TaskState, int],
    workers: Sequence[WorkerInfo],
    db: str,
    *,
    more: str = "",
    console: Console | None = None,
) -> None:
    """A task a row, and below the table how many there are in all and who works."""
    console = console or Console()
    names = {worker.id: shown(worker.name, 40) for worker in workers}
    table = [
        {
            "id": task.id,
            "kind": task.kind,
            "state": task.state.value,
            "bug": task.bug,
            "capture": task.capture,
            "attempts": task.attempts or "",
            "worker": "" if task.worker is None else names.get(task.worker) or task.worker,
            "why": task.why,
        }
        for task in found
    ]
    if table:
        rows(table, console=console)
    said = ", ".join(f"{number} {state.value}" for state, number in sorted(counts.items()))
    console.print(Text(f"{said}." if said else "There are no tasks: one is added with each bug that is captured."))
    for worker in workers:
        console.print(Text(shown(f"Worker {worker.id}{f' ({worker.name})' * bool(worker.name)}: {worker.process}")))
    name = printable(without_password(db), 200)
    if counts and not workers:
        console.print(Text(f"No worker is running: minify work {name}"))
    if more:
        console.print(Text(f"These are not all. The next: minify tasks {name} {more}"))


def deliveries(found: Sequence[DeliveryInfo], *, more: str = "") -> None:
    """Print the notifications, one per row."""
    console = Console()
    if not found:
        console.print(Text("No notification was sent yet."))
        return
    table = [
        {
            "id": one.id,
            "target": one.target,
            "what": one.what,
            "bug": one.bug,
            "state": one.state.value,
            "sent": (one.sent or "")[:16].replace("T", " "),
            "answer": one.answer,
        }
        for one in found
    ]
    rows(table, console=console)
    if more:
        console.print(Text(f"These are not all. The next: minify notify {more}"))


def tokens(found: Sequence[TokenInfo], db: str) -> None:
    """A token a row, without its secret."""
    console = Console()
    if not found:
        name = printable(without_password(db), 200)
        console.print(Text(f"No tokens in {name}. Make one: minify tokens {name} --new NAME --scope submit"))
        return
    table = [
        {
            "id": token.id,
            "name": token.name,
            "scopes": " ".join(sorted(token.scopes)),
            "made": token.created[:10],
            "state": _state_of(token),
        }
        for token in found
    ]
    rows(table, console=console)


def _state_of(token: TokenInfo) -> str:
    if token.problem:
        return token.problem
    if token.revoked:
        return f"revoked {token.revoked[:10]}"
    return "active" if token.proved else "not made with the key of this user: it may do nothing here"
