"""Collects the content of the HTML report of an index: the list of failures, and the details of some.

Failures are grouped by bug; the group with the most captures comes first. The best failure of each group is shown
in full: a verified one with the smallest graph if there is one. The other failures follow, until there are `MOST` or
their pictures and scripts have `MOST_CHARACTERS`. The page says how many were left out. Nothing is run, no graph is
built, and the page contains no path of this machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from ...backends.adapters import Illustration
from ...repro_templates.report.curve import curve
from ...repro_templates.report.figures import Figures, number
from ...repro_templates.report.html import Detail, FailureReport, FailureRow, Group
from ...repro_templates.report.phrases import one_line, without_paths
from ...repro_templates.report.picture import MOST_NODES, picture
from ...store.errors import StoreError
from ...store.failure import identity_in_words, kind_in_words
from ...store.index import CaptureInfo, Index, StepInfo
from ...store.privacy import private_json
from ...store.text import count
from . import illustrations
from .gathering import of_info, source
from .report import CaptureReport, Float64Error, ReportedFailure, values

#: The most failures that are shown in full, and the most characters of their texts and pictures.
MOST, MOST_CHARACTERS = 40, 24_000_000
#: The most nodes of captured graphs that are drawn on the page, and the least share of one picture.
_NODES, _LEAST = 24_000, 300
#: Longest error and standard error that are shown, in characters.
_LONGEST = 8000
#: Lines of the difference of one step.
_LINES = 60
#: What is shown in brief: nodes of a picture, rows of anything, and characters of source.
_PAGE_NODES, _PAGE_ROWS, _PAGE_CHARACTERS = 120, 60, 20_000


def overview(index: Index, ids: Sequence[int] = (), *, most: int = MOST) -> FailureReport:
    """The report of the captures ``ids`` of ``index``, or of all if none are named.

    Raises `StoreError` for an unknown id.
    """
    captures = {capture.id: capture for capture in index.captures.find(ids)}
    bugs: dict[int, list[CaptureInfo]] = {}
    for capture in captures.values():
        bugs.setdefault(capture.bug, []).append(capture)
    groups = sorted(map(_group, bugs.values()), key=lambda g: (-len(g.rows), g.rows[0].id))
    order = _order(groups)
    nodes = min(max(_NODES // max(min(len(order), most), 1), _LEAST), MOST_NODES)
    details: list[Detail] = []
    left = MOST_CHARACTERS
    for row in order[:most]:
        made = in_full(index, captures[row.id], nodes=nodes, row=row)
        left -= _length(made)
        if left < 0 and details:
            break
        details.append(made)
    scripts = {detail.row.id: bool(detail.script) for detail in details}
    groups = [
        replace(group, rows=tuple(
            replace(row, embedded=row.id in scripts, has_script=scripts.get(row.id, False)) for row in group.rows
        )) for group in groups
    ]  # fmt: skip
    name = short_name(index)
    notes = []
    if len(details) < len(order):
        notes.append(
            f"{len(details)} of {len(order):,} failures are here in full, one of each bug first; "
            f"minify report {name} ID makes a report of the others."
        )
    return FailureReport(name, tuple(groups), tuple(details), tuple(notes))


def short_name(index: Index) -> str:
    """The index without its directory, its server and its password."""
    return PurePath(index.name.rpartition("/")[2].partition("?")[0]).name or "failures"


def _group(rows: Sequence[CaptureInfo]) -> Group:
    first = rows[0]
    headline = without_paths(first.headline or first.reason, 300)
    operators = next((row.operators for row in rows if row.operators), "")
    identity = identity_in_words(first.signature, first.kind, operators) or "none"
    return Group(identity, headline, first.kind or "nothing", first.phase or "capture", tuple(map(_row, rows)))


def _row(capture: CaptureInfo) -> FailureRow:
    return FailureRow(
        capture.id, str(capture.state), capture.backend, capture.nodes_before, capture.nodes_after,
        capture.occurrences, without_paths(capture.reason or capture.headline, 200), capture.operators,
    )  # fmt: skip


def _order(groups: Sequence[Group]) -> list[FailureRow]:
    """All rows, the best one of each group first."""
    ranked = [
        sorted(group.rows, key=lambda row: (row.state != "verified", row.after is None, row.after or 0, row.id))
        for group in groups
    ]
    first = [rows[0] for rows in ranked]
    return first + [row for rows in ranked for row in rows[1:]]


def in_full(index: Index, capture: CaptureInfo, *, nodes: int = MOST_NODES, row: FailureRow | None = None) -> Detail:
    """All about one failure, with at most ``nodes`` of its captured graph. ``row`` is its row in a list."""
    row = row or _row(capture)
    try:
        report = of_info(index, capture, lenient=True)
    except StoreError as error:
        return _unreadable(row, capture, error)
    detail = replace(_told(report, row), facts=(*_known(report), *_found(report)))
    try:
        detail = _graphs(index, capture, report, detail, nodes)
        detail = _script(index, capture, detail)
        last = index.reductions.last(capture.id)
        if last is not None:
            detail = _steps(detail, _begun(report), index.reductions.steps(last.id))
        drawn = illustrations.stored(index, capture.id)
        return replace(detail, illustration_heading=drawn.heading, illustrations=_without_paths(drawn.items))
    except StoreError as error:
        return _with_note(detail, error)


def in_brief(index: Index, capture: CaptureInfo) -> Detail:
    """Describe a failure for the page of its bug: no script, no large picture, no difference of a step."""
    row = _row(capture)
    try:
        report = of_info(index, capture, lenient=True)
    except StoreError as error:
        return _unreadable(row, capture, error)
    detail = replace(_told(report, row), facts=tuple(_found(report)))
    detail = replace(detail, frames=detail.frames[:_PAGE_ROWS], matters=detail.matters[:_PAGE_ROWS])
    try:
        detail = _smallest_graph(index, capture, report, detail)
        last = index.reductions.last(capture.id)
        if last is not None:
            steps = [replace(step, difference="") for step in index.reductions.steps(last.id)]
            detail = _steps(detail, _begun(report), steps)
            detail = detail if len(steps) <= _PAGE_ROWS else replace(detail, steps=())
        return detail
    except StoreError as error:
        return _with_note(detail, error)


def _with_note(detail: Detail, error: StoreError) -> Detail:
    note = without_paths(str(error), 500)
    return detail if note in detail.notes else replace(detail, notes=(*detail.notes, note))


def _begun(report: CaptureReport) -> int:
    """The compute nodes at the start of the last reduction."""
    return (report.story.nodes if report.story is not None else 0) or 0


def _unreadable(row: FailureRow, capture: CaptureInfo, error: StoreError) -> Detail:
    """The view of a failure of which the index says no more than its row."""
    notes = [without_paths(text, 500) for text in (capture.reason, str(error)) if text]
    return Detail(row, _title(capture.backend, capture.operators, capture.headline or capture.reason), (),
                  message=without_paths(capture.headline, _LONGEST), notes=tuple(notes))  # fmt: skip


def _title(backend: str, operators: str, headline: str) -> str:
    return ": ".join(filter(None, (backend, operators, without_paths(headline, 300))))


def _told(report: CaptureReport, row: FailureRow) -> Detail:
    """Show the failure of a report, and the answers about it."""
    failure, wrong = report.failure, report.divergence
    headline = (failure.headline if failure is not None else "") or report.reason
    detail = Detail(
        row, _title(report.backend, row.operators, headline), (), message=_message(failure),
        notes=tuple(without_paths(text, 500) for text in (report.reason, *report.problems) if text),
    )  # fmt: skip
    if failure is not None:
        frames = tuple(f"{frame.file}:{frame.line} {frame.function}" for frame in failure.frames)
        detail = replace(detail, frames=frames, stderr=without_paths(failure.printed[-_LONGEST:], _LONGEST))
    if wrong is not None:
        detail = replace(detail, figures=tuple(map(_figures, wrong.float64)), said=one_line(
            wrong.assertion or "", 3000, lines=20
        ), values=values(report))  # fmt: skip
    if (needs := report.matters) is not None:
        cut = (
            () if needs.complete else (f"Incomplete: the explanation stopped after {count(needs.tested, 'variant')}.",)
        )
        texts = filter(None, (needs.summary, *needs.sentences, *cut))
        detail = replace(detail, matters=tuple(without_paths(text, 1000) for text in texts))
        if (variant := needs.variant) is not None:
            passing = _cut(variant.difference)
            detail = replace(detail, passes=without_paths(variant.passes_with, 1000), passing=passing)
    return _ablated(report, detail)


def _figures(found: Float64Error) -> Figures:
    elements = f"{'?' if found.differing is None else found.differing} of {found.elements or '?'}"
    where, kind, dtype = (one_line(text, 40) for text in (found.where, found.kind, found.dtype or ""))
    return Figures(where, kind, number(found.error), number(found.eager_error), elements, dtype)


def _ablated(report: CaptureReport, detail: Detail) -> Detail:
    found = report.ablation
    if found is None:
        return detail
    if not found.shows:
        where = f" with torch {found.torch}" if found.torch else ""
        note = f"`minify ablate` says nothing{where}: the failure does not show where it was run"
        return replace(detail, notes=(*detail.notes, note))
    layers = tuple((one.backend, one.layer, one.result) for one in found.rows[:_PAGE_ROWS])
    return replace(detail, layers=layers, enters=found.enters)


def _known(report: CaptureReport) -> list[tuple[str, str]]:
    """List the facts of a failure that its row has."""
    failure, before, after = report.failure, report.captured, report.minimal
    sizes = "not stored" if before.nodes is None else count(before.nodes, "node")
    if before.nodes is not None and after is not None:
        queries = 0 if report.story is None else report.story.queries
        sizes = f"{before.nodes} → {after.nodes} nodes, {before.inputs} → {after.inputs} inputs, "
        sizes += count(queries, "query")
    facts = [
        ("State", report.state),
        ("Failure", f"{kind_in_words(failure.kind)} in {failure.phase}" if failure is not None else "none seen"),
        ("Backend", report.backend),
        ("Bug", str(report.bug or "")),
        ("Signature", "" if failure is None else identity_in_words(
            failure.signature, failure.kind, after.operators if after is not None else ""
        )),
        ("Size", sizes),
        ("Seen", f"{count(report.occurrences, 'time')}, first {report.created}, last {report.last_seen}"),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value]


def _found(report: CaptureReport) -> list[tuple[str, str]]:
    """List the facts that were found out about a failure."""
    facts = []
    if report.layer is not None:
        facts.append(("Fails in", without_paths(report.layer.fails_in, 500)))
    ways = ["; ".join(way.lines) for way in report.ways_around or () if way.helps]
    facts.append(("Works around", without_paths(" or ".join(ways), 500)))
    if report.divergence is not None and (first := report.divergence.first_node) is not None:
        facts.append(("Begins at", without_paths(f"{first.node}, node {first.position} of {first.of}", 500)))
    if report.minimal is not None:
        facts.append(("Comes from", without_paths(report.minimal.comes_from, 500)))
    if report.parent is not None:
        facts.append(("Found while", f"minifying #{report.parent}"))
    if report.versions is not None:
        facts += [("Retested", without_paths(line, 500)) for line in report.versions.standing]
        facts.append(("First bad version", without_paths(report.versions.first_bad or "", 500)))
    return [(name, value) for name, value in facts if value]


def _message(failure: ReportedFailure | None) -> str:
    if failure is None:
        return ""
    message = f"{failure.type}: {failure.message}" if failure.type else failure.message
    causes = [f"caused by {cause.type}: {cause.message}" for cause in failure.causes]
    return without_paths("\n".join([message, *causes]), _LONGEST)


def _graphs(index: Index, capture: CaptureInfo, report: CaptureReport, detail: Detail, nodes: int) -> Detail:
    if capture.nodes_before is None:
        return replace(detail, source=without_paths(report.captured.source or "", 100_000))
    case = index.captures.case(capture.id)
    best = index.best(capture)
    begins = _begins(report)
    left = {node.name for node in best.graph.compute} if best is not None else set()
    about = f"{capture.backend}, failure {capture.id}"
    after = None
    if best is not None:
        after = picture(best.graph, label=f"The minimized graph of {about}", culprits=begins & left or left)
    before = picture(
        case.graph, label=f"The captured graph of {about}", culprits=begins or left, limit=nodes,
        kept={node.name for node in best.graph.nodes} - {"output"} if best is not None else (),
    )  # fmt: skip
    return replace(
        detail, before=before, after=after, source=report.captured.source or source(case),
        minimal="" if report.minimal is None else report.minimal.source, environment=tuple(_environment(report)),
    )  # fmt: skip


def _smallest_graph(index: Index, capture: CaptureInfo, report: CaptureReport, detail: Detail) -> Detail:
    """Add the minimized graph, or else a part of the captured one."""
    best = index.best(capture)
    if best is None and capture.nodes_before is None:
        return replace(detail, source=without_paths(report.captured.source or "", _PAGE_CHARACTERS))
    case = best or index.captures.case(capture.id)
    begins, names = _begins(report), {node.name for node in case.graph.compute}
    what = "captured" if best is None else "minimized"
    culprits = begins & names or (names if best is not None else set())
    label = f"The {what} graph of {capture.backend}, failure {capture.id}"
    drawn = picture(case.graph, label=label, culprits=culprits, limit=_PAGE_NODES)
    environment = tuple(_environment(report)[:_PAGE_ROWS])
    if report.minimal is None:
        return replace(detail, before=drawn, environment=environment)
    printed = report.minimal.source
    return replace(
        detail, after=drawn, minimal=printed if len(printed) <= _PAGE_CHARACTERS else "", environment=environment
    )


def _begins(report: CaptureReport) -> set[str]:
    """The node whose value is the first that differs, where that is known."""
    first = None if report.divergence is None else report.divergence.first_node
    return set() if first is None else {first.node}


def _environment(report: CaptureReport) -> list[tuple[str, str]]:
    """Versions, the provenance of the capture, and the settings of the backend and of the ambient context."""
    known = {name: value for name, value in report.provenance.items() if name != "backend"}
    found = [(name, _text(value)) for name, value in sorted(known.items())]
    if (own := report.environment) is not None:
        spec = {name: value for name, value in own.backend.items() if name not in ("source", "name")}
        found += [(f"backend {name}", _text(value)) for name, value in spec.items()]
        found += [(name, _text(value)) for name, value in own.context.items()]
    return [(name, value) for name, value in found if value]


def _text(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(private_json(value), default=str)
    return without_paths(text, 500)


def _script(index: Index, capture: CaptureInfo, detail: Detail) -> Detail:
    stored = index.repros.get(capture.id, "script")
    if stored is None:
        return detail
    note = f"Shown in {stored.verified} of {stored.runs} fresh runs, {stored.created}."
    if not stored.verified:
        note = f"Not verified: none of {stored.runs} fresh runs showed the failure."
    return replace(detail, script=stored.text, script_note=note)


def _steps(detail: Detail, start: int, found: Sequence[StepInfo]) -> Detail:
    """The history of a reduction from ``start`` nodes on, and its curve. Only the first lines of a difference are
    shown."""
    steps = tuple(replace(s, pass_name=s.pass_name or "accepted", difference=_cut(s.difference)) for s in found)
    points = [(0.0, start), *((float(s.queries), s.nodes) for s in found)]
    label = f"From {start} to {count(points[-1][1], 'compute node')} in {count(len(steps), 'step')}"
    return replace(detail, steps=steps, curve=curve(points, across="queries", label=label))


def _without_paths(items: Sequence[Illustration]) -> tuple[Illustration, ...]:
    return tuple(
        replace(item, text=without_paths(item.text, illustrations.MOST_TEXT), error=without_paths(item.error, 500))
        for item in items
    )


def _cut(difference: str) -> str:
    lines = without_paths(difference, _LONGEST * 4).splitlines()
    more = len(lines) - _LINES
    return "\n".join([*lines[:_LINES], *([f"and {count(more, 'more line')}"] if more > 0 else [])])


def _length(detail: Detail) -> int:
    texts = [detail.message, detail.stderr, detail.source, detail.minimal, detail.script]
    texts += [step.difference for step in detail.steps] + [item.text + item.picture for item in detail.illustrations]
    return sum(map(len, texts)) + sum(len(p.svg) for p in (detail.before, detail.after) if p is not None)
