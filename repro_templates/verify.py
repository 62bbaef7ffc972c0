"""Verification: run a script several times, as its receiver would, and say whether it shows the expected failure.

Each run is a fresh process in an empty directory. It can import only what is installed and what is on ``search_path``.
The runs are parallel, three on two processors. All but the last go through `runner`, which reports the exception as
data. The last one is plainly ``python repro.py``, and its exit status must agree. At the end of a run its whole process
group is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..backends.adapters import adapters
from ..backends.provenance.variables import ORDINARY, named
from ..backends.running import deaths
from ..store import codec
from ..store.failure import Failure, FailureKind, Phase
from ..store.signature import Signature, signature
from .tracebacks import phase_of_crash

SCRIPT, REPORT = "repro.py", "report.json"
_RUNNER = "fxminify.repro_templates.runner"
_TAIL = 4000


@dataclass(frozen=True, slots=True)
class Verification:
    """``shown`` of ``runs`` runs showed the failure. ``failures`` is what each run showed, None where it passed.

    ``mismatch`` says what happened in the runs that did not show it. ``log`` is the end of what each run wrote.
    ``passed`` runs ended without an error. ``blocked_reason`` says why a run never reached the compiler. ``versions``
    are those of the packages that a run imported.
    """

    shown: int
    runs: int
    failures: tuple[Failure | None, ...] = ()
    mismatch: str = ""
    log: str = ""
    passed: int = 0
    blocked_reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How one process ended. ``code`` is None if it was killed after the timeout."""

    code: int | None
    seconds: float
    output: str
    report: dict[str, object] | None = None


class Stopped(Exception):
    """The runs were ended before they had an answer."""


class Processes:
    """The processes that run now. `stop` kills them, from any thread, and no other is started."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    @contextmanager
    def start(self, command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Run a process in a session of its own; at the end the whole session is killed. Raises `Stopped`."""
        with self._lock:
            if self._stopped:
                raise Stopped
            process = subprocess.Popen(command, start_new_session=True, **options)
            self._running.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._running.discard(process)
                _kill(process)
            process.wait()
        if self._stopped:
            raise Stopped


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def verify(
    script: str,
    expected: Signature | Callable[[Failure], bool],
    *,
    runs: int = 3,
    timeout: float = 300.0,
    search_path: Sequence[str] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
    embedded: str = "",
    processes: Processes | None = None,
) -> Verification:
    """Run the text ``script``. ``expected`` is the signature it must show, or a function that accepts its failure.

    ``files`` lie beside the script. A run that takes longer than ``timeout`` seconds counts as a hang. ``embedded`` is
    the name of the file from which source in the script was taken, for frames. Another thread can end the runs through
    ``processes``; then `Stopped` is raised. Ctrl-C ends them, too.
    """
    shows = expected if callable(expected) else lambda failure: signature(failure) == expected
    runs = max(runs, 1)
    started = processes or Processes()

    def once(plain: bool) -> _Ended:
        return _run(script, files, timeout, search_path, started, plain=plain)

    with ThreadPoolExecutor(min(runs, (3 * len(os.sched_getaffinity(0)) + 1) // 2)) as together:
        try:
            *reported, plainly = together.map(once, [False] * max(runs - 1, 1) + [True])
        except BaseException:
            started.stop()
            raise
    failures: list[Failure | None] = []
    seen: list[Failure] = []
    mismatch = ""
    for ended in reported:
        readings = [_at_home(failure, embedded) for failure in _readings(ended, timeout)]
        shown = next(filter(shows, readings), None)
        failures.append(shown or next(iter(readings), None))
        if shown is not None:
            seen.append(shown)
        else:
            mismatch = mismatch or _mismatch(ended, failures[-1])
    log = "\n".join([*(_log("reported", ended) for ended in reported), _log("plain", plainly)])
    passed = failures.count(None) + (plainly.code == 0) if runs > 1 else int(plainly.code == 0)
    blocked = next((text for ended in reported if (text := str((ended.report or {}).get("blocked_reason", "")))), "")
    versions = next((found for ended in reported if (found := _versions(ended.report))), {})
    if not seen:
        return Verification(0, runs, tuple(failures), mismatch, log, passed, blocked, versions)
    agrees = _agrees(plainly, seen[-1])
    if not agrees:
        mismatch = mismatch or f"run plainly, it ends with {_status(plainly)}"
    count = int(agrees) if runs == 1 else len(seen) + agrees
    return Verification(count, runs, tuple(failures), mismatch, log, passed, blocked, versions)


def failure_of_run(ended: _Ended, timeout: float) -> Failure | None:
    """What a run through `runner` showed; None if the script ended without an error."""
    if ended.code is None or ended.code == -signal.SIGALRM:
        seconds = timeout if ended.code is None else round(ended.seconds)
        return deaths.hang(phase_of_crash(ended.output), seconds, diagnostics=ended.output)
    if ended.report is not None:
        reported = ended.report.get("failure")
        if isinstance(reported, dict):
            return replace(codec.load(reported, Failure), diagnostics=ended.output)
        code = ended.report.get("exit")
        return None if code == 0 else deaths.crash(Phase.FORWARD, exit_code=ended.code, diagnostics=ended.output)
    phase = phase_of_crash(ended.output)
    if ended.code < 0:
        return deaths.crash(phase, signal=-ended.code, diagnostics=ended.output)
    return deaths.crash(phase, exit_code=ended.code, diagnostics=ended.output)


def _readings(ended: _Ended, timeout: float) -> list[Failure]:
    """The failures that the run may have shown. A process that ended without a stack does not say in which phase."""
    failure = failure_of_run(ended, timeout)
    if failure is None:
        return []
    if failure.kind is not FailureKind.CRASH or failure.frames:
        return [failure]
    return [failure, *(replace(failure, phase=phase) for phase in Phase if phase is not failure.phase)]


def _at_home(failure: Failure, embedded: str) -> Failure:
    """``failure`` with the frames of embedded source put into the file from which that source was taken."""
    if not embedded:
        return failure
    frames = tuple(replace(f, file=embedded) if f.file == SCRIPT else f for f in failure.frames)
    return replace(failure, frames=frames)


def _agrees(ended: _Ended, failure: Failure) -> bool:
    """Whether the plain run ended in the way in which this failure ends a process."""
    if failure.kind == "hang":
        return ended.code in (None, -signal.SIGALRM)
    if failure.signal is not None:
        return ended.code == -failure.signal
    if failure.kind == "crash":
        return f"exit {ended.code}" == failure.type
    return ended.code == 1 and failure.type.rpartition(".")[2] in ended.output


def _run(
    script: str,
    files: Mapping[str, bytes],
    timeout: float,
    search_path: Sequence[str],
    processes: Processes,
    *,
    plain: bool,
) -> _Ended:
    with tempfile.TemporaryDirectory(prefix="fxminify-verify-") as name:
        place, output = Path(name) / "run", Path(name) / "output"
        place.mkdir()
        (place / SCRIPT).write_text(script, encoding="ascii")
        for file, data in files.items():
            (place / file).write_bytes(data)
        command = [sys.executable, SCRIPT]
        if not plain:
            command = [sys.executable, "-m", _RUNNER, SCRIPT, str(Path(name) / REPORT)]
        started = time.monotonic()
        with output.open("wb") as sink:
            quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": sink}
            code: int | None = None
            with (
                processes.start(command, cwd=place, env=_environment(script, search_path), **quiet) as process,
                suppress(subprocess.TimeoutExpired),
            ):
                code = process.wait(timeout)
        seconds = time.monotonic() - started
        report = Path(name) / REPORT
        content = json.loads(report.read_text("utf-8")) if report.exists() else None
        return _Ended(code, seconds, output.read_text("utf-8", errors="replace"), content)


def _versions(report: Mapping[str, object] | None) -> dict[str, str]:
    found = (report or {}).get("versions")
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def _environment(script: str, search_path: Sequence[str]) -> dict[str, str]:
    """What a fresh process inherits, besides the places of compilers' caches and the variables that the script says its
    backend reads: nothing else may make a script work."""
    caches = [name for adapter in adapters().values() for name in adapter.cache_variables]
    inherited = {name: os.environ[name] for name in (*ORDINARY, *caches, *named(script)) if name in os.environ}
    path = {"PYTHONPATH": os.pathsep.join(search_path)} if search_path else {}
    return inherited | path | {"PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _mismatch(ended: _Ended, failure: Failure | None) -> str:
    return f"it ends with {_status(ended)}" if failure is None else f"it shows another failure: {failure.headline()}"


def _status(ended: _Ended) -> str:
    if ended.code is None:
        return "no answer in time"
    return deaths.signal_name(-ended.code) if ended.code < 0 else f"exit code {ended.code}"


def _log(kind: str, ended: _Ended) -> str:
    return f"[{kind}: {_status(ended)}, {ended.seconds:.1f} s]\n{ended.output[-_TAIL:]}"
