"""The parent of `minify capture`: it runs a program, survives its crash or hang, and reports what was captured.

The program is plain ``python SCRIPT`` on the same terminal, in the same process group, with inherited streams. Its
environment makes it install the hook (`backends.capture.child`), and its journal says what it is doing. If it dies of a
signal, or one compile or call lasts longer than the timeout, the journal's record becomes the capture.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ...store import temporary
from ...store.errors import StoreError
from ...store.failure import Failure, Phase
from ...store.text import count
from ..running import deaths
from ..running.processor_wait import ProcessorWait, stretched
from . import child, ending, journal
from .selection import GraphSelection
from .settings import Settings
from .standard_error import STDERR, Relay

if TYPE_CHECKING:
    from ...store.recording import Recording

#: Signals with which a person or a scheduler ends a program. They are no crash.
_ENDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT}
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL = 0.1
#: Seconds between two looks at what is in flight, where there is no timeout.
_SELDOM = 1.0
_GRACE = 2.0


def run(
    db: str,
    argv: Sequence[str],
    settings: Settings,
    *,
    module: bool = False,
    timeout: float | None = None,
    hint: bool = True,
    stdout: int | None = None,
    selection: GraphSelection | None = None,
) -> int:
    """Run ``python argv`` (``python -m argv`` if ``module``) and capture into ``db``. Returns the program's exit code.

    It is 128 + N for a program that signal N killed, as in a shell. ``timeout`` is in seconds, for one compile or one
    call. ``hint`` adds the next command to the report. ``stdout`` is the file descriptor of the program's output. Only
    the graphs of a ``selection`` are compiled and watched. The program runs even where nothing can be written.
    """
    command = [sys.executable, *(["-m"] if module else []), *argv]
    relay = Relay.create()
    try:
        directory = _directory(db, settings, relay, selection)
    except OSError as exc:
        _warn(f"nothing can be captured ({exc}); the program runs without it")
        process, _, _ = _supervise(command, dict(os.environ), Path(), None, None, stdout)
        return _exit_code(process)
    try:
        process, stuck, unended = _supervise(command, child.environment(directory), directory, timeout, relay, stdout)
        complete = (directory / journal.COMPLETE).exists()
        died: list[tuple[str, str]] = []
        lost = ""
        try:
            died = _post_mortem(db, directory, process, stuck, timeout, relay)
        except StoreError as exc:
            lost = f"the end of the program could not be stored: {exc}"
        facts = ending.Facts.read(partial(journal.told, directory), complete=complete)
        facts = replace(facts, captured=(*facts.captured, *died))
        lines = [ending.unchecked(facts), *ending.failures(facts, db, hint=hint), lost]
        if unended and timeout is None and _exit_code(process) == 128 + signal.SIGINT:
            lines.append(ending.interrupted(*unended))
        for line in filter(None, lines):
            _warn(line)
        if any(lines[1:]) and facts.let_pass:
            _warn(f"compared: {count(facts.compared, 'call')}, {ending.let_pass(facts)}")
        if process.returncode >= 0 and not any(lines[1:]):
            ended = ended_with(directory, process.pid)
            _warn(ending.watched(facts, checks=bool(settings.check), ended=ended))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return _exit_code(process)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    code: int = process.returncode
    return 128 - code if code < 0 else code


def _directory(db: str, settings: Settings, relay: Relay | None, selection: GraphSelection | None) -> Path:
    """A new folder with the journal and what each process needs to start: beside the index if that is a file and can
    be written there, else among the temporary ones. Raises `OSError`."""
    if "://" not in db:
        with suppress(OSError):
            folder, kind = Path(db).resolve().parent, f"{Path(db).name}.inflight-"
            return _prepared(folder, kind, os.path.abspath(db), settings, relay, selection)
    return _prepared(None, "minify-", db if "://" in db else os.path.abspath(db), settings, relay, selection)


def _prepared(
    folder: Path | None,
    kind: str,
    place: str,
    settings: Settings,
    relay: Relay | None,
    selection: GraphSelection | None,
) -> Path:
    made = Path(tempfile.mkdtemp(prefix=temporary.prefix(kind, None if folder is None else str(folder)), dir=folder))
    try:
        (made / "blobs").mkdir()
        (made / journal.RESERVE).write_bytes(bytes(journal.RESERVED))
        (made / journal.COMPLETE).touch()
        described = None if relay is None else relay.described()
        asked = {"db": place, "journal": str(made), "settings": asdict(settings), "relay": described}
        child.prepare(made, asked | ({} if selection is None else {"selection": selection.to_json()}))
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def _supervise(
    command: Sequence[str],
    environment: dict[str, str],
    directory: Path,
    timeout: float | None,
    relay: Relay | None,
    stdout: int | None,
) -> tuple[subprocess.Popen[bytes], journal.InFlight | None, tuple[Phase, float] | None]:
    """Run the program, and pass on what its backends write. Returns it, the operation for which it was killed if that
    hung, and the phase and the seconds of the longest operation in flight that a signal interrupted."""
    inherited = () if relay is None else (relay.data, relay.state)
    with _signals_held() as wait, _passing_on(relay) as pass_on:
        process = subprocess.Popen(command, env=environment, pass_fds=inherited, stdout=stdout)
        stopwatch = _Stopwatch(directory, timeout)
        while process.poll() is None:
            for number, alone in wait(_POLL):
                stopwatch.interrupted = stopwatch.longest()
                if alone:
                    process.send_signal(number)
            pass_on()
            stuck = stopwatch.stuck()
            if stuck is not None:
                end(process)
                return process, stuck, None
        return process, None, stopwatch.interrupted


@contextmanager
def _passing_on(relay: Relay | None) -> Iterator[Callable[[], None]]:
    """Give a function that passes on what backends have written. What is left at the end is passed on, too."""

    def pass_on() -> None:
        if relay is not None:
            with suppress(OSError):  # the reader has gone
                relay.pass_on(STDERR)

    try:
        yield pass_on
    finally:
        pass_on()


class _Stopwatch:
    """Measures how long each operation has been in flight, without the time in which it waited for a processor."""

    def __init__(self, directory: Path, timeout: float | None) -> None:
        self._directory = directory
        self._timeout = timeout
        self._running: dict[tuple[int, int], _Operation] = {}
        self._looked = 0.0
        #: What `longest` returned when a signal came.
        self.interrupted: tuple[Phase, float] | None = None

    def stuck(self) -> journal.InFlight | None:
        """Return the operation that has taken longer than the timeout. Without a timeout look once a second."""
        if self._timeout is None and time.monotonic() - self._looked < _SELDOM:
            return None
        self._looked = time.monotonic()
        current = {(m.pid, m.sequence): m for m in journal.in_flight(self._directory).values()}
        late = [
            key for key, operation in self._running.items()
            if key in current and self._timeout is not None and operation.exceeds(self._timeout)
        ]  # fmt: skip
        self._running = {key: self._running.get(key) or _Operation(mark) for key, mark in current.items()}
        return current[late[0]] if late else None

    def longest(self) -> tuple[Phase, float] | None:
        """Return the phase and the seconds of the longest operation that was in flight at the last look."""
        lasted = [(operation.phase, operation.seconds()) for operation in self._running.values()]
        return max(lasted, key=lambda pair: pair[1], default=None)


class _Operation:
    """The work of a process in flight, since it was first seen."""

    def __init__(self, mark: journal.InFlight) -> None:
        self.phase = mark.failing_phase
        self._began = time.monotonic()
        self._waits = ProcessorWait(mark.pid)
        self._waited = 0.0

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def exceeds(self, timeout: float) -> bool:
        self._waited += self._waits.look()
        return time.monotonic() - self._began > stretched(timeout, self._waited)


@contextmanager
def _signals_held() -> Iterator[Any]:
    """Hold back signals inside the block. Gives a function that waits, and returns each signal that came, and whether
    it was sent to this process alone. What is ignored from the start, as ``nohup`` ignores SIGHUP, stays so, for the
    program as well.

    The terminal sends Ctrl-C to the whole process group, the program included. So only a signal that a process sent to
    this one alone is to be passed on.
    """
    forwarded = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: None) for number in forwarded}  # handlers do not survive exec
    watched = {*forwarded, signal.SIGCHLD}
    mask: set[Any] = set()
    held = False

    def wait(seconds: float) -> list[tuple[int, bool]]:
        nonlocal held, mask
        if not held:  # only now: a child started with these blocked would never see them
            mask, held = signal.pthread_sigmask(signal.SIG_BLOCK, watched), True
        received = signal.sigtimedwait(watched, seconds)
        if received is None or received.si_signo == signal.SIGCHLD:
            return []
        return [(received.si_signo, received.si_code <= 0)]  # > 0: from the kernel

    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end(process: subprocess.Popen[bytes]) -> None:
    """End the program and all processes that it started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue


def _post_mortem(
    db: str,
    directory: Path,
    process: subprocess.Popen[bytes],
    stuck: journal.InFlight | None,
    timeout: float | None,
    relay: Relay | None,
) -> list[tuple[str, str]]:
    """Capture what was in flight when processes died. Returns the id and the kind of each capture."""

    def written(found: journal.InFlight) -> str:
        """Return the output of the backend while it compiled."""
        compiles = relay is not None and found.failing_phase is Phase.COMPILE
        return relay.text(relay.began(), relay.size()) if compiles and relay is not None else ""

    if stuck is not None:
        return _capture(
            db, directory, stuck, deaths.hang(stuck.failing_phase, timeout or 0.0, diagnostics=written(stuck))
        )
    if process.returncode < 0 and -process.returncode in _ENDED:
        return []
    captured = []
    in_flight = journal.in_flight(directory)
    if process.returncode < 0 and process.pid not in in_flight:
        captured += _capture_outside(db, directory, process.pid, -process.returncode)
    for pid, found in sorted(in_flight.items()):
        if pid == process.pid and process.returncode < 0:
            said = f"{written(found)}\n{journal.stack(directory, pid)}"
            died = deaths.crash(found.failing_phase, signal=-process.returncode, diagnostics=said)
        elif pid == process.pid:  # it left in the middle of a call: os._exit, or exit() in a backend
            died = deaths.crash(found.failing_phase, exit_code=process.returncode, diagnostics=written(found))
        elif psutil.pid_exists(pid) or process.returncode == 0:
            continue
        else:  # a process of the program; how it ended is known to its parent only
            died = replace(
                deaths.crash(found.failing_phase, exit_code=-1), type="", message="a process of the program died"
            )
        captured += _capture(db, directory, found, died)
    return captured


def _capture(db: str, directory: Path, found: journal.InFlight, failure: Failure) -> list[tuple[str, str]]:
    """Capture what the journal has in flight. Returns the id and the kind of each capture."""
    if found.phase == "eager":
        _warn("the program died while a graph ran in eager: nothing to capture")
        return []
    from . import post_mortem

    return _store(db, post_mortem.recording_in_flight(directory, found, failure))


def _capture_outside(db: str, directory: Path, pid: int, number: int) -> list[tuple[str, str]]:
    """Report that the program died of a signal while no backend was in flight, and where.

    A backend that worked before may have damaged the process. So the last graph becomes a capture, which is blocked,
    because nothing shows that its backend is at fault.
    """
    last = journal.last_graph(directory, pid)
    died = deaths.crash(Phase.FORWARD, signal=number, diagnostics=journal.stack(directory, pid))
    place = died.frames[-1] if died.frames else None
    where = f" in {place.function} ({os.path.basename(place.file)}:{place.line})" if place else ""
    outside = f"the program died of {deaths.signal_name(number)}{where}, outside every compilation and compiled call"
    document = last.document() if last is not None else None
    if document is None:
        _warn(f"{outside}; nothing captured")
        return []
    _warn(f"{outside}; its last compiled graph is stored, but nothing shows that this graph is the cause")
    from . import post_mortem

    blocked = {**document, "blocked": f"{outside}; this is its last compiled graph"}
    return _store(db, post_mortem.recording(directory, blocked, died))


def _store(db: str, found: Recording) -> list[tuple[str, str]]:
    """Add a capture. Returns its id and kind."""
    from .places import place_of

    return [(str(place_of(db).record(found)), str(found.failure.kind))]


def ended_with(directory: Path, pid: int) -> str:
    """Return the type of the exception with which a process ended, empty if it ended with none.

    A line of the list has the id of a process and the type of the exception.
    """
    lines = (line.partition(" ") for line in journal.told(directory, "uncaught"))
    kinds = [kind for who, _, kind in lines if who == str(pid)]
    return kinds[-1] if kinds else ""


def _warn(text: str) -> None:
    print(f"minify: {text}", file=sys.stderr, flush=True)
