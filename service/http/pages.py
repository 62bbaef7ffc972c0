"""The pages of `minify serve`: bugs, one bug, one failure in full, tasks, workers. They change nothing.

They work without scripts. A list is read by key, as the routes of the interface read it, so that its last page costs
what its first does. What a page says of a bug is little and quick to make; the page of a single failure has the
captured graph, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import RedirectResponse

from ...minifier.reporting import groups
from ...minifier.reporting import known as known_bugs
from ...minifier.reporting.known import KnownBug
from ...minifier.reporting.overview import in_brief, in_full
from ...repro_templates.formats import formats
from ...repro_templates.report.days import days
from ...repro_templates.report.html import Detail
from ...repro_templates.report.page import minute
from ...repro_templates.report.phrases import without_paths
from ...store.errors import StoreError, UnreadableRow
from ...store.failure import FailureKind, identity_in_words, kind_in_words
from ...store.index import BugInfo, BugStatus, CaptureInfo, Index, State, TaskState
from ...store.index.bugs import BugFilter, BugOrder, Sighting
from ...store.index.tasks import OPEN as OPEN_TASKS
from ...store.text import count
from .caller import Refused
from .html import page
from .routes import READ, TRIAGE, Asking, Served
from .script import ScriptFile, of_bug

_log = logging.getLogger("fxminify")
#: Bugs on a page, and captures and tasks on the page of a bug.
BUGS, CAPTURES, TASKS = 50, 20, 10
#: Tasks on a page of their own, and the most that workers are said to be at.
LISTED_TASKS, LEASED = 50, 500
#: The most nodes of a captured graph that are drawn, the most characters of a script that are shown, and versions.
NODES, SHOWN, VERSIONS = 600, 24_000, 30
#: Of which bugs a list is, by name: first those that somebody should look at.
_STATUSES: dict[str, tuple[BugStatus, ...]] = {
    "open": (BugStatus.OPEN, BugStatus.REGRESSED),
    **{each.value: (each,) for each in BugStatus if each is not BugStatus.OPEN},
    "all": (),
}
_Choice = TypeVar("_Choice", bound=StrEnum)

pages = APIRouter(include_in_schema=False)
Id = Annotated[int, Path(ge=1, lt=1 << 31)]
Text = Annotated[str, Query(max_length=1000)]


@dataclass(frozen=True, slots=True)
class BugLine:
    """A bug in a list. ``about`` is its backend and the operators of its smallest graph, ``known`` its entry in
    ``known.toml``."""

    id: int
    about: str
    headline: str
    kind: str
    phase: str
    captures: int
    occurrences: int
    nodes: str
    state: State
    states: str
    status: BugStatus
    comes_from: str
    last_seen: str
    labels: tuple[str, ...]
    known: str = ""


@dataclass(frozen=True, slots=True)
class SeenWith:
    """When, and how often, a bug was seen with the same versions."""

    versions: str
    first: str
    last: str
    count: int


@dataclass(frozen=True, slots=True)
class ScriptOnPage:
    """A script on a page: its text, or the beginning of a long one, and the format that was asked for."""

    file: ScriptFile
    format: str
    language: str
    summary: str
    text: str

    @property
    def is_whole(self) -> bool:
        return len(self.text) == len(self.file.text)


@pages.get("/", tags=[READ])
def front_page() -> Response:
    """The list of bugs is the first thing to see."""
    return RedirectResponse("/bugs", 303)


@pages.get("/bugs", tags=[READ])
def bugs_page(
    served: Served,
    asking: Asking,
    q: Text = "",
    kind: Text = "",
    backend: Text = "",
    state: Text = "",
    status: Text = "open",
    label: Text = "",
    order: Text = BugOrder.SEEN.value,
    after: Text = "",
    before: Text = "",
) -> Response:
    """A part of the list of bugs."""
    if status not in _STATUSES:
        raise Refused(422, f"{status!r:.40} is no status of a bug: take one of {', '.join(_STATUSES)}")
    last = served.index.events.last()
    chosen = BugFilter(
        q.strip(), _one(FailureKind, kind) or "", backend, _one(State, state),
        _STATUSES[status], (label,) if label else (),
    )  # fmt: skip
    by = _one(BugOrder, order) or BugOrder.SEEN
    try:
        found = served.index.bugs.ranked(chosen, by, key=before or after, back=bool(before), limit=BUGS)
    except ValueError as error:
        raise Refused(422, str(error)) from error
    asked = {
        "q": q, "kind": kind, "backend": backend, "state": state, "status": status, "label": label, "order": order,
    }  # fmt: skip
    asked = {name: value for name, value in asked.items() if value and (name, value) not in _USUAL}

    unlabelled = {name: value for name, value in asked.items() if name != "label"}

    def address(**place: str) -> str:
        return f"/bugs?{urlencode(asked | place)}" if asked | place else "/bugs"

    filters = [
        ("Kind", "kind", kind, [(value, kind_in_words(text)) for value, text in _choices(FailureKind)]),
        ("Backend", "backend", backend, _choices(served.index.bugs.backends(), backend)),
        ("State", "state", state, _choices(State)),
        ("Status", "status", status, [(each, each) for each in _STATUSES]),
        ("Label", "label", label, _choices(served.index.bugs.labels(), label)),
        ("First", "order", by.value, _ORDERS),
    ]
    known = _known(served.index)
    return page(
        served, asking, "page_bugs.html.j2", here="Bugs", last=last, lines=[bug_line(bug, known) for bug in found.bugs],
        totals=served.index.bugs.totals(), text=q, filters=filters, is_filtered=bool(asked),
        labelled=f"/bugs?{urlencode([*unlabelled.items(), ('label', '')])}",
        first=address() if after or before else "",
        before=address(before=found.before) if found.before else "",
        after=address(after=found.after) if found.after else "",
    )  # fmt: skip


@pages.get("/bugs/{id}", tags=[READ])
def bug_page(served: Served, asking: Asking, id: Id, format: Text = "script", done: Text = "") -> Response:
    """Show a bug: its facts, its script, its history, and the actions for it."""
    index, last = served.index, served.index.events.last()
    bug = index.bugs.get(id)
    script, problem = _script(index, id, format)
    shown = index.bugs.with_script(id) or next(iter(bug.ids), None)
    detail = None if shown is None else _brief(index, shown)
    sightings = index.bugs.sightings(id)
    return page(
        served, asking, "page_bug.html.j2", last=last, about=id, said=_SAID.get(done, ""), bug=bug, line=bug_line(bug),
        facts=_facts(bug, shown, detail, _entry(bug, _known(index))),
        detail=None if detail is None else replace(detail, facts=()),
        script=script, problem=problem, formats=list(formats()), chart=_chart(sightings),
        seen_with=_by_versions(sightings), captures=_captures(index, bug.ids[:CAPTURES]),
        tasks=index.tasks.newest(bug=id, limit=TASKS), labels=index.bugs.labels() if asking.may(TRIAGE) else (),
    )  # fmt: skip


@pages.get("/bugs/{id}/script", tags=[READ])
def script_file(served: Served, id: Id, format: Text = "script") -> Response:
    """The script of a bug, or another format of it, as a file."""
    found = of_bug(served.index, id, format)
    headers = {"content-disposition": f'attachment; filename="{found.download}"', "cache-control": "no-store"}
    return Response(found.content(found.name), media_type=found.media_type, headers=headers)


@pages.get("/captures/{id}", tags=[READ])
def capture_page(served: Served, asking: Asking, id: Id) -> Response:
    """Show a failure in full, as the HTML report shows it."""
    capture = served.index.captures.get(id)
    detail = in_full(served.index, capture, nodes=NODES)
    return page(served, asking, "page_capture.html.j2", capture=capture, detail=detail)


@pages.get("/tasks", tags=[READ])
def tasks_page(
    served: Served,
    asking: Asking,
    state: Text = "open",
    before: Annotated[int | None, Query(ge=1, lt=1 << 31)] = None,
    done: Text = "",
) -> Response:
    """Show a page of the list of tasks, the newest first: open tasks with the reasons why they wait, or finished
    ones.
    """
    last = served.index.events.last()
    chosen = OPEN_TASKS if state == "open" else () if state == "all" else (_one(TaskState, state) or TaskState.QUEUED,)
    found = served.index.tasks.newest(chosen, before=before, limit=LISTED_TASKS + 1)
    shown, counts = found[:LISTED_TASKS], served.index.tasks.counts()
    numbers = {
        "open": sum(counts.get(each, 0) for each in OPEN_TASKS), "all": sum(counts.values()),
        **{each.value: counts.get(each, 0) for each in TaskState},
    }  # fmt: skip
    address = f"/tasks?{urlencode({'state': state})}"
    return page(
        served, asking, "page_tasks.html.j2", here="Tasks", last=last, said=_SAID.get(done, ""), tasks=shown,
        states=[(f"/tasks?{urlencode({'state': each})}", each, number) for each, number in numbers.items()],
        state=state, names={worker.id: worker.name for worker in served.index.tasks.workers()}, back=address,
        first=address, is_later=before is not None,
        more=f"{address}&before={shown[-1].id}" if len(found) > LISTED_TASKS else "",
    )  # fmt: skip


@pages.get("/workers", tags=[READ])
def workers_page(served: Served, asking: Asking) -> Response:
    """The workers that are alive, and what they are at."""
    last, workers = served.index.events.last(), served.index.tasks.workers()
    leased = served.index.tasks.newest([TaskState.LEASED], limit=LEASED)
    at = {worker.id: [task for task in leased if task.worker == worker.id] for worker in workers}
    return page(served, asking, "page_workers.html.j2", here="Workers", last=last, workers=workers, leased=at)


#: What is not in the address of a list, because it is so anyway.
_USUAL = {("status", "open"), ("order", BugOrder.SEEN.value)}
_ORDERS = [(BugOrder.SEEN.value, "seen last"), (BugOrder.NEW.value, "new"), (BugOrder.OFTEN.value, "seen most")]
#: What a page says after a form was sent.
_SAID = {
    "queued": "It is queued.",
    "cancelled": "The task was cancelled.",
    "merged": "The other bug was merged into this one.",
    "split": "It is a bug of its own again.",
    "open": "It is open.",
    "ignored": "It is ignored now.",
    "obsolete": "It is obsolete until it occurs again.",
    "labelled": "Its labels were changed.",
}


def _one(kind: type[_Choice], text: str) -> _Choice | None:
    """The member that ``text`` names, None for an empty one."""
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise Refused(422, f"{text!r:.40} is not one of {', '.join(kind)}") from None


def _choices(names: Iterable[str], chosen: str = "") -> list[tuple[str, str]]:
    """Values and texts of a choice among some names, or all of them."""
    return [
        ("", "all"),
        *((str(name), _cut(str(name), 60)) for name in dict.fromkeys(filter(None, [*names, chosen]))),
    ]


def bug_line(bug: BugInfo, known: Sequence[KnownBug] = ()) -> BugLine:
    """Describe a bug for a list. ``known`` are the bugs that the team knows."""
    state, states = groups.state(bug.states) if bug.states else (State.PENDING, "")
    operators = bug.calls or bug.operators
    about = "".join(f"{text}: " for text in (bug.backend, operators) if text)
    return BugLine(
        bug.id, about=_cut(about.rstrip(), 120), headline=without_paths(bug.headline, 300),
        kind=kind_in_words(bug.kind) or "nothing", phase=bug.phase or "capture",
        captures=bug.captures, occurrences=bug.occurrences,
        nodes=groups.nodes(bug.nodes_before, bug.nodes_after).replace("→", " → "), state=state, states=states,
        status=bug.status, comes_from=without_paths(bug.comes_from, 200), last_seen=bug.last_seen, labels=bug.labels,
        known="" if (entry := _entry(bug, known)) is None else without_paths(entry.text(), 300),
    )  # fmt: skip


def _entry(bug: BugInfo, known: Sequence[KnownBug]) -> KnownBug | None:
    return known_bugs.find(known, bug.signature, bug.calls or bug.operators)


def _known(index: Index) -> Sequence[KnownBug]:
    """The entries of ``known.toml``; a file that cannot be read is named in the log and has none."""
    try:
        return known_bugs.beside(index.name)
    except StoreError as error:
        _log.warning("%s", error)
        return ()


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _facts(bug: BugInfo, shown: int | None, detail: Detail | None, known: KnownBug | None) -> Sequence[tuple[str, str]]:
    """List the facts at the top of the page of a bug."""
    sizes = groups.nodes(bug.nodes_before, bug.nodes_after).replace("→", " → ")
    facts = [
        ("Failure", f"{kind_in_words(bug.kind) or 'nothing'} in {bug.phase or 'capture'}"),
        ("Backend", bug.backend),
        ("Signature", identity_in_words(bug.signature, bug.kind, bug.operators)),
        ("Nodes", sizes),
        ("Captures", f"{count(bug.captures, 'capture')}: {groups.state(bug.states)[1]}" if bug.states else ""),
        ("Seen", f"{count(bug.occurrences, 'time')}, first {minute(bug.created)}, last {minute(bug.last_seen)}"),
        ("Shown below", f"capture {shown}" if shown is not None and bug.captures > 1 else ""),
        *(() if detail is None else detail.facts),
        *(() if known is None else (("Known", known.text()), ("Way around", known.way_around), ("Note", known.note))),
    ]
    return [(name, value) for name, value in facts if value]


def _script(index: Index, id: int, format: str) -> tuple[ScriptOnPage | None, str]:
    """Return the verified script of a bug in a format, or the reason why it is missing."""
    try:
        file = of_bug(index, id, format)
    except (Refused, StoreError) as error:
        return None, str(error).replace(index.name, "the index").partition("; make one")[0]
    asked = formats()[format]
    return ScriptOnPage(file, format, asked.language, asked.summary, file.text[:SHOWN]), ""


def _captures(index: Index, ids: Sequence[int]) -> Sequence[CaptureInfo]:
    try:
        return index.captures.find(ids) if ids else []
    except UnreadableRow:  # it is the only one, and the page says why it shows nothing of it
        return []


def _brief(index: Index, id: int) -> Detail | None:
    try:
        return in_brief(index, index.captures.get(id))
    except StoreError:  # the facts of the bug give the reason
        return None


def _chart(sightings: Sequence[Sighting]) -> str:
    counts: dict[str, int] = {}
    for seen in sightings:
        counts[seen.day] = counts.get(seen.day, 0) + seen.count
    total = sum(counts.values())
    return days(counts, label=f"Seen {count(total, 'time')} on {count(len(counts), 'day')}")


def _by_versions(sightings: Sequence[Sighting]) -> Sequence[SeenWith]:
    """Group the sightings of a bug by versions, the most recent ones first."""
    found: dict[str, SeenWith] = {}
    for seen in sightings:  # by day
        text = ", ".join(f"{name} {version}" for name, version in sorted(seen.versions.items(), reverse=True))
        known = found.get(text, SeenWith(text or "not known", seen.day, seen.day, 0))
        found[text] = replace(known, last=seen.day, count=known.count + seen.count)
    return sorted(found.values(), key=lambda one: (one.last, one.count), reverse=True)[:VERSIONS]
