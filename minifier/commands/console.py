"""What the terminal shows: tables, one failure in detail, and the progress of a reduction.

Everything from a database is untrusted text: it is printed without markup and with control characters removed, so a
message can neither colour the terminal nor move its cursor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from ...backends.provenance import libraries
from ...backends.provenance.spec import BackendSpec
from ...store.document.case import Case
from ...store.errors import without_password
from ...store.index import CaptureInfo, Index
from ..oracle import first_node
from ..reducer import history, simplify
from ..regression.standing import standing
from ..reporting import groups

if TYPE_CHECKING:
    from ..regression.ablation import Ablation

STATES = {
    "verified": "green",
    "unverified": "yellow",
    "not_reproduced": "yellow",
    "unsupported": "red",
    "blocked": "red",
    "reducing": "cyan",
}


def plain(value: object, limit: int = 2000) -> str:
    """``value`` as printable text: control, bidirectional and other invisible characters become ``?``."""
    text = "-" if value is None else "yes" if value is True else "no" if value is False else str(value)
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:limit])


def table(captures: Sequence[CaptureInfo], db: str, *, each: bool = False, console: Console | None = None) -> None:
    """The failures of a database, two lines for each signature: figures, and what was said. ``each`` failure alone."""
    console = console or Console()
    if not captures:
        name = plain(without_password(db))
        console.print(Text(f"No failures in {name}. Capture some: minify capture --db {name} SCRIPT"))
        return
    found = [[capture] for capture in captures] if each else groups.grouped(captures)
    cells = [("id", "state", "failure", "backend", "nodes", "seen")]
    cells += [
        (groups.ids(g), groups.state(g)[1], plain(g[0].kind or "-"), plain(groups.backends(g)), groups.nodes(g),
         str(sum(capture.occurrences for capture in g)))
        for g in found
    ]  # fmt: skip
    widths = [min(max(cell_len(row[i]) for row in cells), most) for i, most in enumerate(_WIDTHS)]
    widths[3] = max(min(widths[3], console.width - sum(widths) + widths[3] - 2 * (len(widths) - 1)), 7)
    console.print(_cells(cells[0], widths, "bold"), no_wrap=True, overflow="ellipsis")
    for row, group in zip(cells[1:], found, strict=True):
        style = STATES.get(groups.state(group)[0], "")
        console.print(_cells(row, widths, "", style), no_wrap=True, overflow="ellipsis")
        said = plain(group[0].reason if group[0].kind == "" else group[0].headline or group[0].reason, 1000)
        line = Text(f"{'':{widths[0]}}  {' '.join(said.split())}", style="dim" if console.is_terminal else "")
        console.print(line, no_wrap=True, overflow="ellipsis")


#: The most columns of each cell of a listing.
_WIDTHS = (13, 17, 13, 40, 11, 6)


def _cells(row: Sequence[str], widths: Sequence[int], style: str, state: str = "") -> Text:
    """One line of a listing; ids, nodes and counts end where their column does."""
    line = Text(style=style)
    for place, (text, width) in enumerate(zip(row, widths, strict=True)):
        cut = text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"
        space = " " * (width - cell_len(cut))
        line.append(space + cut if place in (0, 4, 5) else cut + space, style=state if place == 1 else None)
        line.append("  " if place + 1 < len(row) else "")
    line.rstrip()
    return line


def rows(items: Sequence[Mapping[str, Any]], *, console: Console | None = None) -> None:
    """A list of like-shaped mappings as a table."""
    console = console or Console()
    out = Table(box=None, pad_edge=False)
    for name in items[0] if items else ():
        out.add_column(name)
    for item in items:
        out.add_row(*(Text(plain(v)) for v in item.values()))
    console.print(out)


def backends(items: Sequence[Mapping[str, Any]]) -> None:
    """What `backends.provenance.catalog` found, a backend a row; what there is to say of one stands below the table."""
    table, notes = [], []
    for item in items:
        verdict, _, said = str(item.get("test", "")).partition(": ")
        table.append({"name": item["name"], "origin": item["origin"], "recreatable": item["recreatable"]})
        if "test" in item:
            table[-1]["test"] = verdict
        notes += [f"{item['name']}: {plain(text)}" for text in (item["problem"], said, item["needs"]) if text]
    rows(table)
    console = Console()
    for note in notes:
        console.print(Text(note))


def ablation(found: Ablation) -> None:
    """A row for each backend, what failed below the table, and where the failure enters."""
    rows([{"backend": r.backend, "layer": r.layer, "result": r.result, "seconds": r.seconds} for r in found.rows])
    console = Console()
    for row in found.rows:
        if row.said:
            console.print(Text(plain(f"{row.backend}: {row.said}")))
    console.print(Text(plain(f"The failure enters at: {found.enters}")))


def details(index: Index, capture_id: int, *, minified: bool = False) -> dict[str, Any]:
    """Everything known of one capture, as data. Opens no graph and runs nothing."""
    from ...repro_templates.source.expressions import Unprintable
    from ...repro_templates.source.function import print_graph

    info = index.capture(capture_id)
    out: dict[str, Any] = info.to_json()
    failure = index.failure(capture_id)
    if failure is not None:
        out["failure"] = failure.to_json()
    case = None
    if info.state != "unsupported":
        case = index.best(info) if minified else index.case(capture_id)
    if (told := history.stored(index, capture_id)) is not None:
        if plain_steps := _made_plain(told):
            out["made_plain"] = plain_steps
        if failed := {effort.pass_name: effort.problems for effort in told.passes if effort.problems}:
            out["failed_passes"] = failed
    if said := retested(index, info):
        out["retested"] = said
    if (first := first_node.stored(index, capture_id)) is not None:
        out["first_node"] = first
    if case is not None:
        out["backend_spec"] = {k: v for k, v in case.backend.items() if k != "search_path"}
        out["context"] = {k: v for k, v in case.context.items() if k != "rng"}
        try:
            out["graph"] = print_graph(case).text
        except Unprintable as error:
            out["graph"] = f"(cannot be printed: {error})"
    else:
        out["graph"] = info.graph_text
    return out


def retested(index: Index, info: CaptureInfo) -> list[str]:
    """What retests of a capture say, a line for each backend."""
    rows = index.retests([info.id])
    places = [standing(info, name, rows) for name in dict.fromkeys(row.backend for row in rows)]
    return [f"{where.since.backend}: {where.text()}" for where in places if where is not None]


def show(details: Mapping[str, Any], *, console: Console | None = None) -> None:
    """One failure for a person."""
    from ...repro_templates.report.phrases import count

    console = console or Console()
    failure = details.get("failure") or {}
    frames = [f"{frame['file']}:{frame['line']} {frame['function']}" for frame in failure.get("frames", ())[-6:]]
    runs = f"{details['verified']} of {details.get('runs')} fresh runs of the script" if details.get("runs") else None
    field("state", details["state"] + (f": {details['reason']}" if details.get("reason") else ""), console)
    field("failure", f"{details['kind']} in {details['phase']}" if details["kind"] else None, console)
    field("error", f"{failure.get('type', '')}: {failure.get('message', '')}".strip(": "), console)
    field("backend", details["backend"], console)
    field("signature", details["signature"], console)
    field("seen", f"{count(details['occurrences'], 'time')}, first {details['created']}", console)
    smaller = details.get("nodes_after") is not None
    nodes = f"{details['nodes_before']} → {details['nodes_after']}" if smaller else details["nodes_before"]
    field("nodes", nodes, console)
    field("begins at", _first_node(details.get("first_node") or {}), console)
    field("made plain", ", ".join(details.get("made_plain", ())) or None, console)
    failed = [f"{name}: {text}" for name, texts in details.get("failed_passes", {}).items() for text in texts]
    field("failed", "\n".join(failed), console)
    field("queries", details.get("queries"), console)
    field("verified", runs, console)
    field("retested", "\n".join(details.get("retested") or ()), console)
    known = (details.get("provenance") or {}).items()
    field("from", ", ".join(f"{k} {v}" for k, v in known if k not in ("origin", "backend")), console)
    field("frames", "\n".join(frames), console)
    field("stderr", str(failure.get("diagnostics") or "")[-1500:], console)
    console.print(Text("     graph", style="bold"))
    code(plain(details.get("graph") or "", 100_000), console=console)


def field(name: str, value: object, console: Console) -> None:
    """A name and what it has, in as many lines as that takes; nothing where it has nothing."""
    if value is None or value == "":
        return
    lines = Text(plain(value)).wrap(console, max(console.width - 12, 20), overflow="fold")
    for number, line in enumerate(lines):
        line.rstrip()
        console.print(Text.assemble((f"{name if number == 0 else '':>10}  ", "bold"), line), soft_wrap=True)


def code(text: str, language: str = "python", *, console: Console | None = None) -> None:
    """Source as it is; on a terminal in colours, and without what could move its cursor."""
    console = console or Console()
    if not console.is_terminal:
        console.file.write(text if text.endswith("\n") else f"{text}\n")
        return
    from rich.syntax import Syntax

    drawn = Syntax("", language, theme="ansi_dark", background_color="default").highlight(plain(text, 400_000))
    drawn.rstrip()
    console.print(drawn, soft_wrap=True)


def drawing(index: Index, capture_id: int, *, console: Console | None = None) -> None:
    """The minimal graph of a capture drawn in text, the captured one where there is none smaller yet."""
    from ...repro_templates.report.phrases import count
    from ...repro_templates.report.text_graph import text_graph

    console = console or Console()
    info = index.capture(capture_id)
    best = index.best(info)
    case = best or index.case(capture_id)
    head = count(case.graph.count, "compute node") + ("" if best is not None else f", not minified yet: {info.state}")
    console.print(Text(plain(f"Failure {capture_id}: {head}"), style="bold"), soft_wrap=True)
    first = first_node.stored(index, capture_id) or {}
    for line in text_graph(case.graph, culprits={str(first.get("node"))}, ascii=not console.encoding.startswith("utf")):
        fit = "ellipsis" if console.is_terminal else "ignore"
        console.print(Text(plain(line)), no_wrap=True, overflow=fit, crop=console.is_terminal)  # type: ignore[arg-type]


def _made_plain(told: history.History) -> list[str]:
    """The simplifications that had an effect, in their order: `minify history` has the differences."""
    names = {row["pass"] for row in simplify.listing()}
    return list(dict.fromkeys(step.pass_name for step in told.steps if step.pass_name in names))


def _first_node(found: Mapping[str, Any]) -> str | None:
    """The first node whose value differs, for a person."""
    if not found:
        return None
    error = f"{found.get('class')}: error {found.get('error')}, eager's own {found.get('eager_error')}"
    return f"{found.get('node')}, node {found.get('position')} of {found.get('of')} ({error})"


def question(capture: CaptureInfo, case: Case, *, script: str = "") -> str:
    """What running a capture from elsewhere, or its stored ``script``, executes, for a person to agree to."""
    lines = [*BackendSpec.from_json(case.backend).executes(), *libraries.executes(case.imports)]
    lines += [f"runs the stored script, {len(script.splitlines())} lines: minify repro prints it"] if script else []
    listed = "\n".join(f"  - {plain(line, 200)}" for line in lines)
    return f"Capture {capture.id} was not made here. Running it\n{listed}\nRun it?"


def outcome(row: CaptureInfo) -> str:
    """One line about a capture that was worked on."""
    if row.state in ("verified", "unverified") and row.nodes_after is not None:
        shown = f"{row.verified} of {row.runs} fresh runs of the script show it"
        if row.nodes_before == row.nodes_after:
            kept = "its only node is needed" if row.nodes_after == 1 else f"none of its {row.nodes_after} nodes can go"
        else:
            kept = f"{row.nodes_before} → {row.nodes_after} nodes"
        text = f"{kept}, {row.queries} queries, {shown}"
        return f"{row.state}: {text}" + (f"; {row.reason}" if row.reason else "")
    return f"{row.state}: {row.reason}" if row.reason else str(row.state)


def summary(
    done: Sequence[CaptureInfo],
    children: Sequence[int],
    db: str,
    *,
    skipped: Sequence[CaptureInfo] = (),
    console: Console | None = None,
) -> None:
    """The end of `minify run`: a table of states and the next command. ``skipped`` were asked for and not run."""
    console, db = console or Console(), without_password(db)
    for row in skipped:
        command = f"minify run {plain(db)} {row.id} --again"
        again = "" if row.state == "unsupported" else f"; to minify it once more: {command}"
        console.print(Text(f"Capture {row.id} was left as it is, {plain(outcome(row))}{again}"), soft_wrap=True)
    if not done and skipped:
        return
    if not done:
        console.print(Text(f"Nothing to do: no capture of {plain(db)} is pending. See them: minify list {plain(db)}"))
        return
    table(done, db, each=True, console=console)
    verified = [row.id for row in done if row.state == "verified"]
    if verified:
        console.print(Text(f"Print a script: minify repro {plain(db)} {verified[0]}"))
    if children:
        console.print(Text(f"Other failures were found on the way, {len(children)} of them: minify run {plain(db)}"))


class RunProgress:
    """Progress of `minify run`: one line for the capture at work, one for each that is done.

    On a terminal a live line; otherwise a plain line at each accepted step, at most one in five seconds.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._live = self.console.is_terminal and not quiet
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}", markup=False),
            console=self.console,
            disable=not self._live,
            transient=True,
        )
        self._task: TaskID | None = None
        self._name = ""
        self._spoke = 0.0
        self._started = time.monotonic()

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._progress.stop()

    def begin(self, capture: CaptureInfo) -> None:
        self._name = plain(f"{capture.id} {capture.backend} {capture.kind}", 60)
        self._started = time.monotonic()
        self._task = self._progress.add_task(self._name, total=None, state="replaying")
        self._say("replaying")

    def step(self, *, nodes: int, start: int, queries: int, stage: str, budget: float | None = None) -> None:
        """Called after every verdict: compute nodes now and at the start, oracle calls so far."""
        elapsed = time.monotonic() - self._started
        limit = f"/{budget:.0f}" if budget else ""
        state = f"{nodes}/{start} nodes  {queries} queries  {elapsed:.0f}{limit} s  {stage}"
        if self._task is not None:
            self._progress.update(self._task, total=start, completed=start - nodes, state=state)
        if not self._live and time.monotonic() - self._spoke > 5:
            self._say(state)

    def note(self, text: str) -> None:
        """A line that stays."""
        self.console.print(Text(plain(f"{self._name}: {text}")), soft_wrap=True)

    def end(self, outcome: str) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        self.note(outcome)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Without the live line, so that a question can be asked."""
        self._progress.stop()
        yield
        self._progress.start()

    def _say(self, text: str) -> None:
        if not self._live:
            self._spoke = time.monotonic()
            self.note(text)
