"""The progress of `minify bisect` on standard error, and its result."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ....store.text import count
from ...bisection.bisect import Answered, BisectedGraph, Bisection, Question
from ...bisection.program import RunAnswer
from ...printable import shown

_STYLES = {RunAnswer.FAILS: "red", RunAnswer.PASSES: "green", RunAnswer.UNKNOWN: "yellow"}
#: The most nodes of a graph that are listed.
_LISTED = 12


class BisectProgress:
    """A line on standard error for each run."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)

    def asked(self, number: int, question: Question, answered: Answered) -> None:
        how = "from the file" if answered.known else f"{answered.seconds:.1f} s"
        line = f"run {number}: {question.what}: "
        more = f" ({answered.ended}, {how})"
        self.console.print(
            Text.assemble(shown(line), (str(answered.answer), _STYLES[answered.answer]), shown(more)), soft_wrap=True
        )


def result(found: Bisection, *, console: Console | None = None) -> None:
    """Print what must be compiled for the program to fail, or why nothing was found."""
    console = console or Console()
    if not found.found:
        console.print(Text(shown(f"Nothing to bisect: {found.reason}.")), soft_wrap=True)
        return
    needed = count(len(found.found), "graph")
    console.print(
        f"The program fails if {needed} of {found.graphs} {'is' if len(found.found) == 1 else 'are'} compiled and "
        f"eager runs the rest, and passes if none is compiled ({count(found.runs, 'run')}, {found.seconds:.0f} s).",
        soft_wrap=True,
    )
    for graph in found.found:
        _graph(graph, console)


def _graph(found: BisectedGraph, console: Console) -> None:
    graph = found.graph
    by = f", compiled by {graph.backend}" if graph.backend else ""
    at = f", from {graph.at}" if graph.at else ""
    nodes = count(graph.nodes, "node")
    part = f"; to compile {len(found.compiled)} of them suffices:" if found.compiled else ""
    console.print(Text(shown(f"Graph {found.number}: {nodes}{by}{at}{part}")), soft_wrap=True)
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 2))
    for node in found.compiled[:_LISTED]:
        table.add_row(*(Text(shown(text)) for text in (node.name, node.operator, node.at)))
    if len(found.compiled) > _LISTED:
        table.add_row(f"and {count(len(found.compiled) - _LISTED, 'more node')}")
    if found.compiled:
        console.print(table)
