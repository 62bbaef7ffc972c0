"""A failure on the terminal: the error, its graph, its history, and its explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ....repro_templates.report.figures import number
from ....repro_templates.report.phrases import points_to
from ....repro_templates.report.text_graph import text_graph
from ....repro_templates.source.layout import fitted
from ....store.failure import identity_in_words, kind_in_words
from ....store.index import Index, StepInfo
from ....store.text import count, without_addresses
from ...printable import printable, shown, shown_json
from ...reporting.differences import shorter
from ...reporting.report import values
from .parts import code, field, rows

if TYPE_CHECKING:
    from ...oracle.ablation import Ablation
    from ...reducer.history import Effort, History
    from ...reporting.report import CaptureReport, ReportedNeeds


def ablation(found: Ablation) -> None:
    """A row for each backend, what failed below the table, and where the failure enters."""
    rows([{"backend": r.backend, "layer": r.layer, "result": r.result, "seconds": r.seconds} for r in found.rows])
    console = Console()
    for row in found.rows:
        if row.message:
            console.print(Text(shown(f"{row.backend}: {row.message}")))
    console.print(Text(shown(points_to(found.enters))))


def cause(found: CaptureReport) -> None:
    """Print the effect of each switch, the part in which the failure arises, and the ways around it."""
    console = Console()
    searched = found.cause
    if searched is None:
        console.print(Text(shown(found.absent.get("cause", ""))))
        return
    by_result: dict[str, list[str]] = {}
    for row in searched.switches:
        text = " and ".join(row.parts) + (f" ({row.message})" if row.message else "")
        by_result.setdefault(row.result, []).append(text)
    for result, parts in by_result.items():
        console.print(Text(shown(f"{result} with these switched: {', '.join(parts)}", 4000)))
    for sentence in searched.sentences:
        console.print(Text(shown(sentence, 1000)))
    if found.layer is not None and found.layer.layer:
        console.print(Text(shown(f"Layer: {_layer(found)}.", 1000)))
    for application in searched.applications:
        for given, outcome in ((application.fails_with, "fails"), (application.passes_with, "passes")):
            if application.checked:
                console.print(Text(shown(f"{outcome}: {' '.join(given)} python repro.py", 1000)), soft_wrap=True)
    _values(found, console)
    console.print(Text(f"({count(searched.queries, 'query')})"))


#: Lines of a graph and of an error that `minify show` prints unasked.
LONGEST_GRAPH, LONGEST_ERROR = 40, 10


def show(
    found: CaptureReport,
    db: str,
    *,
    details: bool = False,
    whole: bool = False,
    console: Console | None = None,
) -> None:
    """Print a failure for a person: the error, the graph, the parts that matter, and the next command.

    Unless it is ``whole``, only the first lines of the graph are printed.
    """
    console = console or Console()
    this = f"{printable(db)} {found.id}"
    verified = found.state == "verified"
    _error(found, this, console, details=details)
    _values(found, console)
    field("begins at", _first_node(found), console)
    field("comes from", found.minimal.comes_from if found.minimal is not None else None, console)
    field("backend", found.backend, console)
    field("state", _state(found), console)
    nodes = found.captured.nodes
    field("nodes", nodes if found.minimal is None else f"{nodes} → {found.minimal.nodes}", console)
    console.print(Text("     graph", style="bold"))
    source = found.captured.source if whole or found.minimal is None else found.minimal.source
    text = fitted(shown(source or "", 100_000), console.width)
    lines = text.splitlines()
    cut = not whole and len(lines) > LONGEST_GRAPH
    code("\n".join(lines[:LONGEST_GRAPH]) if cut else text, console=console)
    if cut:
        field("", f"and {len(lines) - LONGEST_GRAPH} more lines: minify show {this} --captured", console)
    if found.matters is not None:
        explanation(found.matters, console=console)
    field("problem", "\n".join(found.problems) or None, console)
    field("known", _known(found), console)
    field("cause", "\n".join(found.cause.sentences) or None if found.cause is not None else None, console)
    if details or not verified:
        _details(found, console)
    field("layer", _layer(found), console)
    field("the rest", f"of the captured graph {found.rest}" if found.rest else None, console)
    field("retested", "\n".join(found.versions.standing) if found.versions is not None else None, console)
    if verified:
        written = [file for script in found.scripts for file in script.files]
        field("script", "\n".join(written) if written else f"minify repro {this} -o repro.py", console)
        field("more", None if details else f"minify show {this} --details", console)
    elif found.state == "pending":
        field("next", f"minify run {this}", console)


def _known(found: CaptureReport) -> str:
    known = found.known
    if known is None:
        return ""
    around = f"works around: {known.way_around}" if known.way_around else ""
    return "\n".join(filter(None, (" ".join(filter(None, (known.url, known.state))), around, known.note)))


def _state(found: CaptureReport) -> str:
    runs = found.verification
    shown_in = (
        f": {runs.shown} of {runs.runs} fresh runs of the script show it" if runs is not None and runs.runs else ""
    )
    return f"{found.state}{shown_in}{f': {found.reason}' if found.reason else ''}"


def _error(found: CaptureReport, this: str, console: Console, *, details: bool) -> None:
    """Print the kind of the failure and its message, of a long one only the headline."""
    failure = found.failure
    if failure is None:
        return
    field("failure", f"{kind_in_words(failure.kind)} in {failure.phase}", console)
    error = without_addresses(f"{failure.type}: {failure.message}".strip(": "))
    if failure.headline not in error:  # it has what the compiler printed
        error = failure.headline if error in failure.headline else f"{failure.headline}\n{error}"
    more = 0 if details else len(error.splitlines()) - LONGEST_ERROR
    field("error", failure.headline if more > 0 else error, console)
    if more > 0:
        field("", f"the whole text, {len(error.splitlines())} lines: minify show {this} --details", console)


def _values(found: CaptureReport, console: Console) -> None:
    """The text of the assertion that failed in the script of a divergence, and the values of small results."""
    if found.divergence is None:
        return
    lines = printable(found.divergence.assertion or "", 2000).splitlines()
    field("assert", "\n".join(line for line in lines if line.strip()) or None, console)
    for row in values(found):
        if row.all_actual:
            field("compiled", f"{row.all_actual} ({row.where})", console)
            field("eager", row.all_expected, console)


def _details(found: CaptureReport, console: Console) -> None:
    """Print the details that a person needs if the graph does not suffice."""
    failure, minimal, story = found.failure, found.minimal, found.story
    known = shown_json(found.provenance or {}).items()
    field("bug", found.bug, console)
    if failure is not None:
        operators = "" if minimal is None else minimal.operators
        field("signature", identity_in_words(failure.signature, failure.kind, operators), console)
    field("seen", f"{count(found.occurrences, 'time')}, first {found.created}", console)
    if story is not None:
        failed = [f"{name}: {text}" for name, texts in story.failed_passes.items() for text in texts]
        field("failed", "\n".join(failed), console)
        field("queries", story.queries or None, console)
    field("from", "\n".join(f"{k}: {v}" for k, v in known if k != "backend"), console)
    if failure is not None:
        frames = [f"{frame.file}:{frame.line} {frame.function}" for frame in failure.frames[-6:]]
        field("frames", "\n".join(frames), console)
        field("stderr", failure.printed[-1500:], console)


def drawing(index: Index, capture_id: int, culprit: str = "", *, console: Console | None = None) -> None:
    """Draw the minimal graph of a capture in text, or the captured one if it was not minified yet.

    The node ``culprit``, if it is known, is marked.
    """
    console = console or Console()
    info = index.captures.get(capture_id)
    best = index.best(info)
    case = best or index.captures.case(capture_id)
    head = count(case.graph.count, "compute node") + ("" if best is not None else f", not minified yet: {info.state}")
    console.print(Text(shown(f"Failure {capture_id}: {head}"), style="bold"), soft_wrap=True)
    for line in text_graph(case.graph, culprits={culprit}, ascii=not console.encoding.startswith("utf")):
        fit = "ellipsis" if console.is_terminal else "ignore"
        console.print(Text(shown(line)), no_wrap=True, overflow=fit, crop=console.is_terminal)  # type: ignore[arg-type]


def _layer(found: CaptureReport) -> str | None:
    """The answer of an ablation, with the backends of torch that pass; None where it says nothing."""
    layer = found.layer
    if layer is None or layer.layer is None:
        return None
    aside = f" ({', '.join(layer.passing)} {'passes' if len(layer.passing) == 1 else 'pass'})" if layer.passing else ""
    return f"{layer.layer}{aside}"


def _first_node(found: CaptureReport) -> str | None:
    """The first node whose value differs, for a person."""
    first = None if found.divergence is None else found.divergence.first_node
    if first is None:
        return None
    error, eager = number(first.error), number(first.eager_error)
    numbers = f" (off by {error}, eager by {eager})" if error and eager else ""
    return f"{first.node}, node {first.position} of {first.of} of the captured graph{numbers}"


#: Lines of a difference that a listing of all steps shows; one step alone is shown whole.
SHORT = 6

_STYLES = {"-": "red", "+": "green"}


def history(found: History, *, left: str = "", differences: bool = True, console: Console | None = None) -> None:
    """Print the remaining graph, every step with its changes, and a row for each pass."""
    console = console or Console()
    match found.config.get("from"):
        case [reduction, number]:
            begun = f", begun at step {shown(number)} of reduction {shown(reduction)}"
        case _:
            begun = ""
    nodes = f" to {found.steps[-1].nodes}" if found.steps else ""
    size = f"from {count(found.start_nodes, 'node')}{nodes} in {count(len(found.steps), 'step')}"
    calls = f"; what is left calls {shown(left)}" if left else ""
    console.print(Text(f"Reduction {found.reduction}{begun}, {size}{calls}"), soft_wrap=True)
    for one in found.steps:
        step(one, limit=SHORT if differences else 0, console=console)
    if found.passes:
        console.print()
        passes(found.passes, console=console)
    if found.unconfirmed:
        console.print()
        text = f"{count(found.unconfirmed, 'step')} undone: a used worker showed the failure, an unused one did not."
        console.print(Text(text), soft_wrap=True)


def step(one: StepInfo, *, limit: int | None = None, console: Console | None = None) -> None:
    """Print a step: a line about it, then its changes, in at most ``limit`` lines. Further lines are counted."""
    console = console or Console()
    size = f"{count(one.nodes, 'node')}, {count(one.inputs, 'input')}"
    head = f"{one.number:>4}  {shown(one.pass_name) or 'accepted'}: {size}"
    kept = "" if one.kept else " (not kept)"
    figures = f" after {count(one.queries, 'query')}, {one.seconds:.1f} s{kept}"
    console.print(Text(head, style="bold").append(Text(figures, style="not bold")), soft_wrap=True)
    lines = shown(one.difference, 100_000).splitlines()
    for line in lines if limit is None else shorter(lines, limit):
        _changed(line, "      ", console, whole=limit is None)
    if limit and len(lines) > limit:
        console.print(Text(f"      All {len(lines)} lines: --step {one.number}"))


def _changed(line: str, indent: str, console: Console, *, whole: bool = False) -> None:
    """A line of a difference, cut at the end of the terminal unless it is wanted ``whole``."""
    text = Text(f"{indent}{line}", style=_STYLES.get(line[:1], ""))
    console.print(text, soft_wrap=whole, no_wrap=not whole, overflow="ellipsis")


def passes(efforts: Sequence[Effort], *, console: Console | None = None) -> None:
    """Print the queries and results of each pass: the useful ones first, then the ones without a success."""
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
            message = shown(f"the pass {effort.pass_name} failed, and the reduction went on: {problem}")
            console.print(Text(message, style="yellow"), soft_wrap=True)


def explanation(found: ReportedNeeds, *, console: Console | None = None) -> None:
    """Print the parts that matter, the evidence below it, and the nearest candidate that passes."""
    console = console or Console()
    told = [text for text in (found.summary, *found.sentences) if text]
    for place, sentence in enumerate(told or ("-",)):
        field("" if place else "matters", sentence, console)
    cut = "" if found.complete else ", and was cut short: there is more to ask"
    field("", f"({count(found.tested, 'variant')} tested{cut})", console)
    if found.variant is not None:
        field("passes", f"with {found.variant.passes_with}", console)
        for line in shown(found.variant.difference).splitlines()[:SHORT]:
            _changed(line, "            ", console)
