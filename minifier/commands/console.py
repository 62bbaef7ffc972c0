"""What the terminal shows: tables, one failure in detail, histories, retests, and the progress of a run.

Everything from a database is untrusted text: it is printed without markup and without control characters, so a message
can neither colour the terminal nor move its cursor. Only the verbs import this module.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ...repro_templates.report.figures import number
from ...repro_templates.report.phrases import points_to
from ...repro_templates.report.text_graph import text_graph
from ...store.errors import without_password
from ...store.index import (
    BugInfo,
    CaptureInfo,
    DeliveryInfo,
    Index,
    RetestResult,
    StepInfo,
    TaskInfo,
    TaskState,
    TokenInfo,
    WorkerInfo,
)
from ...store.text import count, without_addresses
from ..printable import printable
from ..reporting import groups
from ..reporting.differences import shorter
from ..session import events
from ..session.results import outcome

if TYPE_CHECKING:  # a listing is to be quick: it needs none of these
    from ..oracle.ablation import Ablation
    from ..reducer.history import Effort, History
    from ..regression.retest import RetestAnswer, RetestCase
    from ..reporting.explanation import Explanation
    from ..session.results import MinifyResult

STATES = {
    "verified": "green",
    "unverified": "yellow",
    "not_reproduced": "yellow",
    "unsupported": "red",
    "blocked": "red",
    "reducing": "cyan",
}


def table(bugs: Sequence[BugInfo], db: str, *, more: str = "", console: Console | None = None) -> None:
    """Bugs of a database, two lines for each. ``more`` has the options that list others, empty where these are all."""
    console = console or Console()
    name = printable(without_password(db))
    if not bugs:
        console.print(Text(f"No failures in {name}. Capture some: minify capture --db {name} SCRIPT"))
        return
    found = sorted(bugs, key=lambda bug: bug.ids)
    states = [groups.state(bug.states) for bug in found]
    cells = [("id", "state", "failure", "backend", "nodes", "seen")]
    cells += [
        (groups.ids(bug.ids, more=len(bug.ids) < bug.captures), state, printable(bug.kind or "-"),
         printable(bug.backend), groups.nodes(bug.nodes_before, bug.nodes_after), str(bug.occurrences))
        for bug, (_, state) in zip(found, states, strict=True)
    ]  # fmt: skip
    widths = [min(max(cell_len(row[i]) for row in cells), most) for i, most in enumerate(_WIDTHS)]
    widths[3] = max(min(widths[3], console.width - sum(widths) + widths[3] - 2 * (len(widths) - 1)), 7)
    console.print(_cells(cells[0], widths, "bold"), no_wrap=True, overflow="ellipsis")
    for row, bug, (state, _) in zip(cells[1:], found, states, strict=True):
        console.print(_cells(row, widths, "", STATES.get(state, "")), no_wrap=True, overflow="ellipsis")
        line = Text(f"{'':{widths[0]}}  {_what(bug)}", style="dim" if console.is_terminal else "")
        console.print(line, no_wrap=True, overflow="ellipsis")
    if more:
        console.print(Text(f"These are not all. The next: minify list {name} {more}"))


def _what(bug: BugInfo) -> str:
    """Which line of the program fails, where it is known, and the error, on one line."""
    message = printable(bug.headline, 1000)
    place = re.split(r" \(|, | and ", bug.comes_from)[0]
    return " ".join(f"{printable(place, 100)}: {message}".split() if place else message.split())


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
        out.add_row(*(Text(printable(v)) for v in item.values()))
    console.print(out)


def backends(items: Sequence[Mapping[str, Any]]) -> None:
    """What `backends.provenance.catalog` found, a backend a row; what there is to say of one stands below the table."""
    table, notes = [], []
    for item in items:
        verdict, _, message = str(item.get("test", "")).partition(": ")
        table.append({"name": item["name"], "origin": item["origin"], "recreatable": item["recreatable"]})
        table[-1]["adapter"] = item["adapter"]
        if "test" in item:
            table[-1]["test"] = verdict
        notes += [f"{item['name']}: {printable(text)}" for text in (item["problem"], message, item["needs"]) if text]
    rows(table)
    console = Console()
    for note in notes:
        console.print(Text(note))


def ablation(found: Ablation) -> None:
    """A row for each backend, what failed below the table, and where the failure enters."""
    rows([{"backend": r.backend, "layer": r.layer, "result": r.result, "seconds": r.seconds} for r in found.rows])
    console = Console()
    for row in found.rows:
        if row.message:
            console.print(Text(printable(f"{row.backend}: {row.message}")))
    console.print(Text(printable(points_to(found.enters))))


#: Lines of a graph and of an error that `minify show` prints unasked.
LONGEST_GRAPH, LONGEST_ERROR = 40, 10


def show(
    found: Mapping[str, Any],
    db: str,
    explained: Explanation | None = None,
    *,
    details: bool = False,
    whole: bool = False,
    console: Console | None = None,
) -> None:
    """One failure for a person: what failed, the graph, what of it matters, and the next command.

    ``found`` is from `fxminify.minifier.reporting.details`. Of a graph that is not shown ``whole`` the first lines are.
    """
    console = console or Console()
    failure = found.get("failure") or {}
    verified = found["state"] == "verified"
    runs = f": {found['verified']} of {found.get('runs')} fresh runs of the script show it" if found.get("runs") else ""
    reason = f": {found['reason']}" if found.get("reason") else ""
    smaller = found.get("nodes_after") is not None
    field("failure", f"{found['kind']} in {found['phase']}" if found["kind"] else None, console)
    this = f"{printable(db)} {found['id']}"
    error = without_addresses(f"{failure.get('type', '')}: {failure.get('message', '')}".strip(": "))
    more = 0 if details else len(error.splitlines()) - LONGEST_ERROR
    field("error", found["headline"] if more > 0 else error, console)
    if more > 0:
        field("", f"the whole text, {len(error.splitlines())} lines: minify show {this} --details", console)
    field("begins at", _first_node(found.get("first_node") or {}), console)
    field("comes from", found.get("comes_from"), console)
    field("backend", found["backend"], console)
    field("state", f"{found['state']}{runs}{reason}", console)
    field("nodes", f"{found['nodes_before']} → {found['nodes_after']}" if smaller else found["nodes_before"], console)
    console.print(Text("     graph", style="bold"))
    text = printable(found.get("graph") or "", 100_000)
    lines = text.splitlines()
    cut = not whole and len(lines) > LONGEST_GRAPH
    code("\n".join(lines[:LONGEST_GRAPH]) if cut else text, console=console)
    if cut:
        field("", f"and {len(lines) - LONGEST_GRAPH} more lines: minify show {this} --captured", console)
    if explained is not None:
        explanation(explained, console=console)
    if details or not verified:
        _details(found, console)
    field("the rest", found.get("rest"), console)
    field("retested", "\n".join(found.get("retested") or ()), console)
    if verified:
        field("script", f"minify repro {this} -o repro.py", console)
        field("", None if details else f"minify show {this} --details", console)
    elif found["state"] == "pending":
        field("next", f"minify run {this}", console)


def _details(found: Mapping[str, Any], console: Console) -> None:
    """What a person asks for once the graph does not suffice."""
    failure = found.get("failure") or {}
    frames = [f"{frame['file']}:{frame['line']} {frame['function']}" for frame in failure.get("frames", ())[-6:]]
    failed = [f"{name}: {text}" for name, texts in found.get("failed_passes", {}).items() for text in texts]
    known = (found.get("provenance") or {}).items()
    field("signature", found["signature"], console)
    field("seen", f"{count(found['occurrences'], 'time')}, first {found['created']}", console)
    field("failed", "\n".join(failed), console)
    field("queries", found.get("queries") or None, console)
    field("from", "\n".join(f"{k}: {v}" for k, v in known if k not in ("origin", "backend")), console)
    field("frames", "\n".join(frames), console)
    field("stderr", str(failure.get("diagnostics") or "")[-1500:], console)


def field(name: str, value: object, console: Console) -> None:
    """A name and what it has, in as many lines as that takes; nothing where it has nothing."""
    if value is None or value == "":
        return
    lines = Text(printable(value)).wrap(console, max(console.width - 12, 20), overflow="fold")
    for place, line in enumerate(lines):
        line.rstrip()
        console.print(Text.assemble((f"{name if place == 0 else '':>10}  ", "bold"), line), soft_wrap=True)


def code(text: str, language: str = "python", *, console: Console | None = None) -> None:
    """Source as it is; on a terminal in colours, and without what could move its cursor."""
    console = console or Console()
    if not console.is_terminal:
        console.file.write(text if text.endswith("\n") else f"{text}\n")
        return
    drawn = Syntax("", language, theme="ansi_dark", background_color="default").highlight(printable(text, 400_000))
    drawn.rstrip()
    console.print(drawn, soft_wrap=True)


def drawing(index: Index, capture_id: int, culprit: str = "", *, console: Console | None = None) -> None:
    """The minimal graph of a capture drawn in text, the captured one where there is none smaller yet. The node
    ``culprit``, if it is known, is marked."""
    console = console or Console()
    info = index.captures.get(capture_id)
    best = index.best(info)
    case = best or index.captures.case(capture_id)
    head = count(case.graph.count, "compute node") + ("" if best is not None else f", not minified yet: {info.state}")
    console.print(Text(printable(f"Failure {capture_id}: {head}"), style="bold"), soft_wrap=True)
    for line in text_graph(case.graph, culprits={culprit}, ascii=not console.encoding.startswith("utf")):
        fit = "ellipsis" if console.is_terminal else "ignore"
        console.print(Text(printable(line)), no_wrap=True, overflow=fit, crop=console.is_terminal)  # type: ignore[arg-type]


def _first_node(found: Mapping[str, Any]) -> str | None:
    """The first node whose value differs, for a person."""
    if not found:
        return None
    error = f"off by {number(found.get('error'))}, eager: {number(found.get('eager_error'))}"
    return f"{found.get('node')}, node {found.get('position')} of {found.get('of')} ({error})"


def summary(results: Sequence[MinifyResult], db: str, *, console: Console | None = None) -> None:
    """The end of `minify run`: a table of states and the next command."""
    console, db = console or Console(), without_password(db)
    done = [result.capture for result in results if not result.skipped]
    skipped = [result.capture for result in results if result.skipped]
    for row in skipped:
        command = f"minify run {printable(db)} {row.id} --again"
        again = "" if row.state == "unsupported" else f"; to minify it once more: {command}"
        console.print(Text(f"Capture {row.id} was left as it is, {printable(outcome(row))}{again}"), soft_wrap=True)
    if not done and skipped:
        return
    if not done:
        name = printable(db)
        console.print(Text(f"Nothing to do: no capture of {name} is pending. See them: minify list {name}"))
        return
    table([groups.alone(row) for row in done], db, console=console)
    verified = [row.id for row in done if row.state == "verified"]
    if verified:
        console.print(Text(f"Print a script: minify repro {printable(db)} {verified[0]}"))
    if others := sum(len(result.others) for result in results):
        console.print(Text(f"{count(others, 'other failure')} found on the way: minify run {printable(db)}"))


#: A capture that takes more seconds until its script is verified is told of at once, before it is explained.
LONG = 30.0


#: Seconds after which somebody who reads a log wonders whether the work goes on.
SILENCE = 30.0


class RunProgress:
    """Progress of `minify run`, as a listener: one line for the capture at work, one for each that is done.

    On a terminal a live line; otherwise a plain line at the start and end of each stage, while candidates are asked at
    most one in five seconds, and one after each `SILENCE`. With the id of a capture the command ``resume`` goes on with
    it after Ctrl-C, and ``script`` prints its script.
    """

    def __init__(
        self, resume: str = "minify run", script: str = "minify repro", *, quiet: bool = False, verbose: bool = False
    ) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._resume = resume
        self._script = script
        self._verbose = verbose
        self._takes_long = False
        self._capture: CaptureInfo | None = None
        self._best = ""
        self._live = self.console.is_terminal and not quiet
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self._live,
            transient=True,
        )
        self._task: TaskID | None = None
        self._name = ""
        self._state = ""
        self._spoke = self._started = time.monotonic()
        self._over = threading.Event()

    def __enter__(self) -> RunProgress:
        self._progress.start()
        if not self._live and not self.console.quiet:
            threading.Thread(target=self._break_silence, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._progress.stop()
        if isinstance(error, KeyboardInterrupt) and self._capture is not None:
            best = f"best so far: {self._best}; " if self._best else ""
            again = " --again" if self._takes_long and " --again" not in self._resume else ""
            self._note(f"interrupted; {best}to go on: {self._resume} {self._capture.id}{again}")

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.CaptureStarted(capture):
                self._capture, self._best, self._takes_long = capture, "", False
                self._state = "starting workers"
                self._name = printable(f"{capture.id} {capture.backend} {capture.kind}", 60)
                self._started = time.monotonic()
                self._task = self._progress.add_task(self._name, total=None, state="starting workers")
            case events.ReplayStarted():
                self._show("running the captured graph")
                self._say("running the captured graph")
            case events.Replayed(_, number):
                self._show(f"the captured graph ran {count(number, 'time')}")
            case events.ReplayFinished(reproduced=True, entry=entry, shown=shown, runs=runs):
                self._show(f"the captured graph fails in {shown} of {count(runs, 'run')} ({entry})")
            case events.QueryAnswered():
                self._answered(event)
            case events.StepAccepted(number=number, pass_name=name, nodes=nodes, inputs=inputs) if self._verbose:
                left = f"{count(nodes, 'node')} and {count(inputs, 'input')} are left"
                self._note(f"step {number}, {name or 'begun anew'}: {left}")
            case events.FirstScript(id, nodes):
                self._note(f"a first script of {count(nodes, 'node')}; the work goes on: {self._script} {id}")
                self._takes_long, self._best = True, f"a verified script of {count(nodes, 'node')}"
            case events.ScriptVerified(id, shown) if shown and (
                self._takes_long or time.monotonic() - self._started > LONG
            ):
                self._note(f"the script is verified; what is left is to explain it: {self._script} {id}")
            case events.Noted(_, text):
                self._note(text)
            case events.CaptureFinished(capture, reason):
                self._capture = None
                if self._task is not None:
                    self._progress.remove_task(self._task)
                    self._task = None
                self._note(reason or outcome(capture))
            case _:
                pass

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Without the live line, so that a question can be asked."""
        self._progress.stop()
        yield
        self._progress.start()

    def _answered(self, event: events.QueryAnswered) -> None:
        nodes = f"{event.nodes}/{event.start_nodes} nodes  {count(event.queries, 'query')}"
        limit = f" of {event.budget:.0f} s" if event.budget else ""
        if not self._takes_long:
            self._best = f"{event.nodes} of {count(event.start_nodes, 'node')}"
        from ..passes import in_words

        stage = in_words(event.stage)
        self._show(f"{nodes}{limit}  {stage}", total=event.start_nodes, done=event.start_nodes - event.nodes)
        if self._verbose or time.monotonic() - self._spoke > 5:
            elapsed = time.monotonic() - self._started
            self._say(f"{nodes}  {elapsed:.0f}{limit or ' s'}  {stage}" + f" ({event.stage})" * self._verbose)

    def _show(self, state: str, total: int | None = None, done: int = 0) -> None:
        self._state = state
        if self._task is not None:
            self._progress.update(self._task, total=total, completed=done, state=state)

    def _say(self, text: str) -> None:
        if self._verbose or not self._live:
            self._note(text)

    def _break_silence(self) -> None:
        """Say now and then that the work goes on, where nothing else does."""
        while not self._over.wait(SILENCE / 10):
            if self._capture is not None and time.monotonic() - self._spoke > SILENCE:
                elapsed = time.monotonic() - self._started
                self._note(f"{elapsed:.0f} s: still at it: {self._state}")

    def _note(self, text: str) -> None:
        """A line that stays."""
        self._spoke = time.monotonic()
        self.console.print(Text(printable(f"{self._name}: {text}")), soft_wrap=True)


#: Lines of a difference that a listing of all steps shows; one step alone is shown whole.
SHORT = 6
_STYLES = {"-": "red", "+": "green"}


def history(found: History, *, left: str = "", differences: bool = True, console: Console | None = None) -> None:
    """What is left, every step with what it changed, and a row for each pass."""
    console = console or Console()
    match found.config.get("from"):
        case [reduction, number]:
            begun = f", begun at step {printable(number)} of reduction {printable(reduction)}"
        case _:
            begun = ""
    nodes = f" to {found.steps[-1].nodes}" if found.steps else ""
    size = f"from {count(found.start_nodes, 'node')}{nodes} in {count(len(found.steps), 'step')}"
    calls = f"; what is left calls {printable(left)}" if left else ""
    console.print(Text(f"Reduction {found.reduction}{begun}, {size}{calls}"), soft_wrap=True)
    for one in found.steps:
        step(one, limit=SHORT if differences else 0, console=console)
    if found.passes:
        console.print()
        passes(found.passes, console=console)


def step(one: StepInfo, *, limit: int | None = None, console: Console | None = None) -> None:
    """One step: a line about it, then what it changed, in at most ``limit`` lines: counted where there are more."""
    console = console or Console()
    size = f"{count(one.nodes, 'node')}, {count(one.inputs, 'input')}"
    head = f"{one.number:>4}  {printable(one.pass_name) or 'accepted'}: {size}"
    kept = "" if one.kept else " (not kept)"
    figures = f" after {count(one.queries, 'query')}, {one.seconds:.1f} s{kept}"
    console.print(Text(head, style="bold").append(Text(figures, style="not bold")), soft_wrap=True)
    lines = printable(one.difference, 100_000).splitlines()
    for line in lines if limit is None else shorter(lines, limit):
        console.print(Text(f"      {line}", style=_STYLES.get(line[:1], "")), soft_wrap=True)
    if limit and len(lines) > limit:
        console.print(Text(f"      All {len(lines)} lines: --step {one.number}"))


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
    names = {worker.id: printable(worker.name, 40) for worker in workers}
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
        console.print(Text(printable(f"Worker {worker.id}{f' ({worker.name})' * bool(worker.name)}: {worker.process}")))
    name = printable(without_password(db), 200)
    if counts and not workers:
        console.print(Text(f"Nobody is at work on them: minify work {name}"))
    if more:
        console.print(Text(f"These are not all. The next: minify tasks {name} {more}"))


def deliveries(found: Sequence[DeliveryInfo], *, more: str = "") -> None:
    """Who was told of what, a row each."""
    console = Console()
    if not found:
        console.print(Text("Nobody was told of anything yet."))
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
            "state": f"revoked {token.revoked[:10]}" if token.revoked else "counts",
        }
        for token in found
    ]
    rows(table, console=console)


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
            message = printable(f"the pass {effort.pass_name} failed, and the reduction went on: {problem}")
            console.print(Text(message, style="yellow"), soft_wrap=True)


def explanation(found: Explanation, *, console: Console | None = None) -> None:
    """What matters, the evidence below it, and the nearest candidate that passes."""
    console = console or Console()
    field("matters", found.summary() or "-", console)
    for sentence in found.sentences():
        field("", sentence, console)
    cut = "" if found.complete else ", and was cut short: there is more to ask"
    field("", f"({count(found.asked, 'variant')} tested{cut})", console)
    if found.passing_variant is not None:
        field("passes", f"with {found.passing_variant.what}", console)
        for line in printable(found.passing_variant.difference).splitlines()[:SHORT]:
            console.print(Text(f"            {line}", style=_STYLES.get(line[:1], "")), soft_wrap=True)


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
        self._console.print(Text(printable(text)), soft_wrap=True)


def retest_answers(rows: Sequence[RetestAnswer], *, console: Console | None = None) -> None:
    """Two lines for each case, the case and its result; and the number of cases with each result."""
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
        message = "; ".join(part for part in (row.message, standing) if part)
        style = "bold red" if result.endswith("!") else _RETEST_STYLES[row.result]
        console.print(Text(line).append(result, style), soft_wrap=True)
        if message:
            console.print(Text(f"{'':{widths[0]}}  {' '.join(printable(message, 400).split())}"), soft_wrap=True)
    counts = Counter(row.result for row in rows)
    console.print(Text(", ".join(f"{count} {result}" for result, count in counts.items()) + _unexpected(rows)))


def _retest_cells(row: RetestAnswer) -> tuple[str, str, str, str]:
    mark = "" if row.expected or row.result == RetestResult.CANNOT_RUN.value else "!"
    kind, backend = printable(row.case.capture.kind), printable(row.case.backend, 28)
    return str(row.case.capture.id), kind, backend, row.result + mark


def _unexpected(rows: Sequence[RetestAnswer]) -> str:
    wrong = [row for row in rows if not row.expected and row.result != RetestResult.CANNOT_RUN.value]
    return f"; not as expected (!): {', '.join(printable(row.case.name, 60) for row in wrong)}" if wrong else ""


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
        out.add_column(Text(f"{printable(column['backend'], 24)}\n{printable(column['torch'], 30) or '?'}"))
    for row in found["rows"]:
        marks = [None if r is None else RetestResult(r["result"]) for r in row["results"]]
        cells = [Text("") if m is None else Text(_MARKS[m], style=_RETEST_STYLES[m.value]) for m in marks]
        out.add_row(str(row["id"]), Text(printable(row["kind"])), *cells)
    console.print(out)
    for row in found["rows"]:
        if row["standing"]:
            console.print(Text(printable(f"{row['id']}: {row['standing']}")), soft_wrap=True)
