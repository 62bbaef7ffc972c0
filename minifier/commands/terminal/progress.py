"""The progress of `minify run` and `minify retest`, on standard error, and what a run ends with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from ....store.errors import without_password
from ....store.failure import kind_in_words
from ....store.index import CaptureInfo
from ....store.text import count
from ...printable import printable, shown
from ...reporting import groups
from ...session import events
from ...session.results import outcome
from .listings import table

if TYPE_CHECKING:
    from ...regression.retest import RetestAnswer, RetestCase
    from ...session.results import MinifyResult

#: If the verified script of a capture took more seconds, it is reported at once, before the explanation.
LONG = 30.0

#: Seconds after which somebody who reads a log wonders whether the work goes on.
SILENCE = 30.0

#: What is done before there is anything to count.
_BEGINNING = _STARTING, _LOOKING = "starting workers", "looking for a small part of the graph that fails"


class RunProgress:
    """Progress of `minify run`, as a listener: one line for the running capture, one for each finished one.

    On a terminal it is a live line. Otherwise it is a plain line at the start and end of each stage, at most one
    line in five seconds during the queries, and one after each `SILENCE`. With the id of a capture the command
    ``resume`` continues it after Ctrl-C, and ``script`` prints its script.
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
        self._replayed = ""
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
                self._state = _STARTING
                self._name = shown(f"{capture.id} {capture.backend} {kind_in_words(capture.kind)}", 60)
                self._started = time.monotonic()
                self._task = self._progress.add_task(self._name, total=None, state=_STARTING)
            case events.HeadStartBegan():
                self._show(_LOOKING)
            case events.ReplayStarted(part=part):
                self._replayed = f"a part of {count(part, 'node')}" if part else "the captured graph"
                self._show(f"running {self._replayed}")
                self._say(f"running {self._replayed}")
            case events.ReplayRan(_, number):
                self._show(f"{self._replayed} ran {count(number, 'time')}")
            case events.ReplayFinished(reproduced=True, entry=entry, shown=failed, runs=runs):
                self._show(f"{self._replayed} fails in {failed} of {count(runs, 'run')} ({entry})")
            case events.QueryAnswered():
                self._answered(event)
            case events.StepAccepted(number=number, pass_name=name, nodes=nodes, inputs=inputs) if self._verbose:
                left = f"{count(nodes, 'node')} and {count(inputs, 'input')} are left"
                self._note(f"step {number}, {name or 'begun anew'}: {left}")
            case events.FirstScript(id, nodes):
                self._note(f"a first script of {count(nodes, 'node')}; the work goes on: {self._script} {id}")
                self._takes_long, self._best = True, f"a verified script of {count(nodes, 'node')}"
            case events.ScriptVerified(id, failed) if failed and (
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
        from ...passes import in_words

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
                at_once = self._state in _BEGINNING or self._state.startswith("running ")
                still = self._state if at_once else f"at work: {self._state}"
                self._note(f"{elapsed:.0f} s, still {still}")

    def _note(self, text: str) -> None:
        """A line that stays."""
        self._spoke = time.monotonic()
        self.console.print(Text(shown(f"{self._name}: {text}")), soft_wrap=True)


def summary(results: Sequence[MinifyResult], db: str, *, console: Console | None = None) -> None:
    """The end of `minify run`: a table of states and the next command."""
    console, db = console or Console(), without_password(db)
    done = [result.capture for result in results if not result.skipped]
    skipped = [result.capture for result in results if result.skipped]
    for row in skipped:
        command = f"minify run {printable(db)} {row.id} --again"
        again = "" if row.state == "unsupported" else f"; to minify it once more: {command}"
        console.print(Text(f"Capture {row.id} was left as it is, {shown(outcome(row))}{again}"), soft_wrap=True)
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
        self._console.print(Text(shown(text)), soft_wrap=True)
