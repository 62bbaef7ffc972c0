"""How a reduction went, on the terminal: its steps with what they changed, its passes, and what matters of its result.

All of it is text from a database: printed without markup and control characters, as in `minifier.commands.console`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ...store.index import StepInfo
from ..reducer.history import Effort, History
from ..reporting.explanation import Explanation
from .console import field, plain, rows

#: Lines of a difference that a listing of all steps shows; one step alone is shown whole.
SHORT = 12
_STYLES = {"-": "red", "+": "green"}


def history(found: History, *, differences: bool = True, console: Console | None = None) -> None:
    """Every step, the most important lines of what it changed, and a row for each pass."""
    console = console or Console()
    match found.config.get("from"):
        case [reduction, number]:
            begun = f", begun at step {plain(number)} of reduction {plain(reduction)}"
        case _:
            begun = ""
    head = f"Reduction {found.reduction}{begun}, from {found.start_nodes} nodes, {count(found.steps, 'step')}"
    console.print(Text(head), soft_wrap=True)
    for one in found.steps:
        step(one, limit=SHORT if differences else 0, console=console)
    if found.passes:
        console.print()
        passes(found.passes, console=console)


def step(one: StepInfo, *, limit: int | None = None, console: Console | None = None) -> None:
    """One step: a line about it, then at most ``limit`` lines of what it changed."""
    console = console or Console()
    head = f"{one.number:>4}  {plain(one.pass_name) or 'accepted'}: {one.nodes} nodes, {one.inputs} inputs"
    kept = "" if one.kept else " (not kept)"
    said = f" after {one.queries} queries, {one.seconds:.1f} s{kept}"
    console.print(Text(head, style="bold").append(Text(said, style="not bold")), soft_wrap=True)
    lines = plain(one.difference, 100_000).splitlines()
    for line in lines[:limit]:
        console.print(Text(f"      {line}", style=_STYLES.get(line[:1], "")), soft_wrap=True)
    if limit and len(lines) > limit:
        console.print(Text(f"      and {len(lines) - limit} more lines: --step {one.number}"))


def passes(efforts: Sequence[Effort], *, console: Console | None = None) -> None:
    """What each pass asked and brought, the useful ones first, then those that asked for nothing."""
    useful = sorted((e for e in efforts if e.accepted), key=lambda e: (-e.removed, -e.accepted))
    useless = sorted((e for e in efforts if not e.accepted), key=lambda e: -e.asked)
    table = [
        {"pass": e.pass_name, "asked": e.asked, "accepted": e.accepted, "removed": e.removed,
         "invalid": e.invalid, "other": e.other, "seconds": f"{e.seconds:.1f}"}
        for e in (*useful, *useless)
    ]  # fmt: skip
    console = console or Console()
    rows(table, console=console)
    for effort in efforts:
        for problem in effort.problems:
            said = plain(f"the pass {effort.pass_name} failed, and the reduction went on: {problem}")
            console.print(Text(said, style="yellow"), soft_wrap=True)


def explanation(found: Explanation, *, console: Console | None = None) -> None:
    """What matters, the evidence below it, and the nearest candidate that passes."""
    console = console or Console()
    field("matters", found.summary() or "-", console)
    for sentence in found.sentences():
        field("", sentence, console)
    cut = "" if found.complete else ", and was cut short: there is more to ask"
    field("", f"({found.asked} answers{cut})", console)
    if found.twin is not None:
        field("passes", found.twin.what, console)
        for line in plain(found.twin.difference).splitlines()[:SHORT]:
            console.print(Text(f"            {line}", style=_STYLES.get(line[:1], "")), soft_wrap=True)


def count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")
