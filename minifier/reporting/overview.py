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
from ...repro_templates.report.figures import figures, values
from ...repro_templates.report.html import Detail, FailureReport, FailureRow, Group
from ...repro_templates.report.phrases import log, without_paths
from ...repro_templates.report.picture import MOST_NODES, picture
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.function import print_graph
from ...store.document.case import Case, Json
from ...store.errors import StoreError
from ...store.failure import Failure, FailureKind, identity_in_words, kind_in_words
from ...store.index import CaptureInfo, Index, StepInfo
from ...store.privacy import private_json
from ...store.text import count
from ..oracle import ablation, first_node
from ..reducer import history
from . import explanation, illustrations, record
from .standing import retested

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
    detail = _told(index, capture, row or _row(capture))
    try:
        detail = replace(detail, facts=(*_known(capture), *_found(index, capture)))
        detail = _graphs(index, capture, detail, nodes)
        detail = _script(index, capture, detail)
        found = history.stored(index, capture.id)
        detail = detail if found is None else _steps(detail, found.start_nodes, found.steps)
        detail = _explained(index, capture, detail)
        shown = illustrations.stored(index, capture.id)
        detail = replace(detail, illustration_heading=shown.heading, illustrations=_without_paths(shown.items))
        detail = _ablated(index, capture, detail)
    except StoreError as error:
        detail = _with_note(replace(detail, facts=detail.facts or tuple(_known(capture))), error)
    return detail


def in_brief(index: Index, capture: CaptureInfo) -> Detail:
    """Describe a failure for the page of its bug: no script, no large picture, no difference of a step."""
    detail = _told(index, capture, _row(capture))
    detail = replace(detail, frames=detail.frames[:_PAGE_ROWS])
    try:
        detail = replace(detail, facts=tuple(_found(index, capture)))
        detail = _smallest_graph(index, capture, detail)
        last = index.reductions.last(capture.id)
        if last is not None:
            steps = [replace(step, difference="") for step in index.reductions.steps(last.id)]
            detail = _steps(detail, last.nodes_before or capture.nodes_before or 0, steps)
            detail = detail if len(steps) <= _PAGE_ROWS else replace(detail, steps=())
        detail = _explained(index, capture, detail)
        detail = replace(detail, matters=detail.matters[:_PAGE_ROWS])
        detail = _ablated(index, capture, detail)
    except StoreError as error:
        detail = _with_note(detail, error)
    return detail


def _told(index: Index, capture: CaptureInfo, row: FailureRow) -> Detail:
    """The failure of a capture as its script showed it, or as it was captured."""
    failure = record.shown(index, capture)
    return Detail(
        row,
        ": ".join(
            filter(None, (capture.backend, capture.operators, without_paths(capture.headline or capture.reason, 300)))
        ),
        (),
        message=_message(failure),
        frames=tuple(f"{frame.file}:{frame.line} {frame.function}" for frame in failure.frames) if failure else (),
        stderr=without_paths(failure.diagnostics[-_LONGEST:], _LONGEST) if failure else "",
        figures=tuple(figures(failure)) if failure else (),
        values=tuple(values(failure)) if failure else (),
        said=log(failure) if failure and failure.kind is FailureKind.DIVERGENCE else "",
        notes=(without_paths(capture.reason, 500),) if capture.reason else (),
    )


def _with_note(detail: Detail, error: StoreError) -> Detail:
    return replace(detail, notes=(*detail.notes, without_paths(str(error), 500)))


def _ablated(index: Index, capture: CaptureInfo, detail: Detail) -> Detail:
    found = ablation.stored(index, capture.id)
    if found is None:
        return detail
    if not found.shows:
        where = f" with torch {found.torch}" if found.torch else ""
        note = f"`minify ablate` says nothing{where}: the failure does not show where it was run"
        return replace(detail, notes=(*detail.notes, note))
    layers = tuple((one.backend, one.layer, one.result) for one in found.rows[:_PAGE_ROWS])
    return replace(detail, layers=layers, enters=found.enters)


def _known(capture: CaptureInfo) -> list[tuple[str, str]]:
    """List the facts in the row of a capture."""
    sizes = "not stored" if capture.nodes_before is None else count(capture.nodes_before, "node")
    if capture.nodes_before is not None and capture.nodes_after is not None:
        sizes = f"{capture.nodes_before} → {capture.nodes_after} nodes, {capture.inputs_before} → "
        sizes += f"{capture.inputs_after} inputs, {count(capture.queries or 0, 'query')}"
    facts = [
        ("State", str(capture.state)),
        ("Failure", f"{kind_in_words(capture.kind)} in {capture.phase}" if capture.kind else "none seen"),
        ("Backend", capture.backend),
        ("Bug", str(capture.bug) if capture.bug > 0 else ""),
        ("Signature", identity_in_words(capture.signature, capture.kind, capture.operators)),
        ("Size", sizes),
        ("Seen", f"{count(capture.occurrences, 'time')}, first {capture.created}, last {capture.last_seen}"),
    ]
    return [(name, value) for name, value in facts if value]


def _found(index: Index, capture: CaptureInfo) -> list[tuple[str, str]]:
    """List the facts about a capture in other rows."""
    facts = []
    if (first := first_node.stored(index, capture.id)) is not None:
        facts.append(("Begins at", f"{first.get('node')}, node {first.get('position')} of {first.get('of')}"))
    if capture.comes_from:
        facts.append(("Comes from", without_paths(capture.comes_from, 500)))
    if capture.parent is not None:
        facts.append(("Found while", f"minifying #{capture.parent}"))
    facts += [("Retested", without_paths(line, 500)) for line in retested(index, capture)]
    return [(name, value) for name, value in facts if value]


def _message(failure: Failure | None) -> str:
    if failure is None:
        return ""
    message = f"{failure.type}: {failure.message}" if failure.type else failure.message
    causes = [f"caused by {kind}: {text}" for kind, text in failure.causes]
    return without_paths("\n".join([message, *causes]), _LONGEST)


def _graphs(index: Index, capture: CaptureInfo, detail: Detail, nodes: int) -> Detail:
    if capture.nodes_before is None:
        return replace(detail, source=without_paths(capture.graph_text, 100_000))
    case = index.captures.case(capture.id)
    best = index.best(capture)
    begins = _begins(index, capture)
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
        detail, before=before, after=after, source=_source(case), minimal="" if best is None else _source(best),
        environment=tuple(_environment(capture, best or case)),
    )  # fmt: skip


def _smallest_graph(index: Index, capture: CaptureInfo, detail: Detail) -> Detail:
    """Add the minimized graph, or else a part of the captured one."""
    best = index.best(capture)
    if best is None and capture.nodes_before is None:
        return replace(detail, source=without_paths(capture.graph_text, _PAGE_CHARACTERS))
    case = best or index.captures.case(capture.id)
    begins, names = _begins(index, capture), {node.name for node in case.graph.compute}
    what = "captured" if best is None else "minimized"
    culprits = begins & names or (names if best is not None else set())
    label = f"The {what} graph of {capture.backend}, failure {capture.id}"
    drawn = picture(case.graph, label=label, culprits=culprits, limit=_PAGE_NODES)
    environment = tuple(_environment(capture, case)[:_PAGE_ROWS])
    if best is None:
        return replace(detail, before=drawn, environment=environment)
    source = _source(best)
    return replace(
        detail, after=drawn, minimal=source if len(source) <= _PAGE_CHARACTERS else "", environment=environment
    )


def _begins(index: Index, capture: CaptureInfo) -> set[str]:
    """The node whose value is the first that differs, where that is known."""
    first = first_node.stored(index, capture.id) or {}
    return {str(first["node"])} if "node" in first else set()


def _source(case: Case) -> str:
    try:
        return print_graph(case).text
    except Unprintable as error:
        return f"# cannot be printed: {error}"


def _environment(capture: CaptureInfo, case: Case) -> list[tuple[str, str]]:
    """Versions, the provenance of the capture, and the settings of the backend and of the ambient context."""
    known = {name: value for name, value in capture.provenance.items() if name not in ("origin", "backend")}
    found = [(name, _text(value)) for name, value in sorted(known.items())]
    spec: Json = {k: v for k, v in case.backend.items() if k not in ("search_path", "source", "name")}
    found += [(f"backend {name}", _text(value)) for name, value in spec.items()]
    found += [(name, _text(value)) for name, value in case.context.items() if name != "rng"]
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


def _explained(index: Index, capture: CaptureInfo, detail: Detail) -> Detail:
    """The explanation of the minimal case: which features matter, and the nearest passing variant."""
    found = explanation.stored(index, capture.id)
    if found is None:
        return detail
    cut = () if found.complete else (f"Incomplete: the explanation stopped after {count(found.asked, 'variant')}.",)
    texts = (*found.told(), *cut)
    detail = replace(detail, matters=tuple(without_paths(text, 1000) for text in texts))
    if (variant := found.passing_variant) is None:
        return detail
    return replace(detail, passes=without_paths(found.passes_with(), 1000), passing=_cut(variant.difference))


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
