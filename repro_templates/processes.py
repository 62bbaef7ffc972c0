"""Runs a script in a process of its own, as its receiver would: the one place where scripts are started.

A run sees an empty directory, the installed packages, ``search_path``, and of the environment only what
`Script.environment` lets through. There are two ways to the same process. A *fresh* one is ``python repro.py`` and
nothing else. A *forked* one is a child of a `fork_server`: a process that was as fresh, and that has done the imports
of the script. A script cannot tell the two apart; a test compares what it can see. Scripts with the same imports and
environment share a server as long as their `Processes` live.

Confined runs (``--sandbox``) are always fresh, so that each sees its own directory and no other one.
"""

from __future__ import annotations

import ast
import json
import marshal
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..backends.provenance import access
from ..backends.provenance.variables import ORDINARY, named
from ..backends.running.compiler_caches import CompilerCaches
from ..backends.running.confinement import Confinement
from ..backends.running.confinement import caches as confined_caches
from ..backends.running.foreign_files import open_ordinary
from ..store.parsing import parse
from ..store.temporary import prefix

SCRIPT = "repro.py"
#: A folder in which this package is found.
_HOME = str(Path(__file__).parents[2])
#: Runs a script through `runner`: ``-c _REPORTED HOME SCRIPT REPORT``. This package may be on a ``PYTHONPATH`` that no
#: run inherits; the script itself finds nothing in ``HOME``.
_REPORTED = """
import os, sys
_, home, *arguments = sys.argv
sys.path[0] = os.getcwd()
sys.path.append(home)
from fxminify.repro_templates.runner import main
sys.path.pop()
sys.exit(main(arguments))
"""
_SERVER = str(Path(__file__).with_name("fork_server.py"))
_ACCELERATOR = re.compile(r"\b(cuda|hpu|mps|xpu)\b")
#: Each holds some hundred megabytes.
MOST_SERVERS = 3
#: The most bytes that are read of what a run wrote.
_MOST_OUTPUT = 16 << 20
#: Seconds between two looks whether a server is alive.
_TICK = 0.2


@dataclass(frozen=True, slots=True)
class Script:
    """A script, the seconds that one run may take, where its modules are, and the files that lie beside it.

    ``variables`` are environment variables that it does not set itself.
    """

    text: str
    timeout: float
    search_path: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return what a run inherits: ordinary variables, and those that the script says its backend reads.

        Nothing else may make a script work.
        """
        inherited = {n: os.environ[n] for n in (*ORDINARY, *named(self.text)) if n in os.environ}
        path = {"PYTHONPATH": os.pathsep.join(self.search_path)} if self.search_path else {}
        own = {"PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return {**inherited, **path, **own, **self.variables}


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The end of a run. ``code`` is None if it was killed after the timeout, ``report`` is the output of `runner`."""

    code: int | None
    seconds: float
    output: str
    report: dict[str, Any] | None = None
    forked: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """A run: its private directory, the script in it, and the file that `runner` writes; None for a plain run."""

    place: Path
    script: Script
    report: Path | None

    def command(self) -> list[str]:
        return [sys.executable, *(("-c", _REPORTED, _HOME, SCRIPT, str(self.report)) if self.report else (SCRIPT,))]

    @property
    def folders(self) -> list[Path]:
        """The directories that the run may write to, the first is its current one."""
        return [self.place / name for name in ("run", "report", "cache")]

    def reported(self) -> dict[str, Any] | None:
        """Return the report of `runner`, or None if it wrote none or the script replaced it."""
        if self.report is None:
            return None
        try:
            found = json.loads(_read(self.report))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


class Stopped(Exception):
    """The runs were ended before they had an answer."""


class _CannotFork(Exception):
    """No fork server can serve this run."""


class Processes:
    """A runner of scripts, confined if a ``confinement`` is given.

    ``caches`` are the caches of compilers; by default these processes have their own. A confined run has empty
    ones. `stop` kills all runs, from any thread, and starts no others; `close` ends servers, too.
    """

    def __init__(self, confinement: Confinement | None = None, caches: CompilerCaches | None = None) -> None:
        self._confinement = confinement
        self._caches = caches or CompilerCaches()
        self._own_caches = caches is None
        self._running: set[int] = set()
        self._servers: dict[tuple[Any, ...], _Server | None] = {}
        self._stopped = False
        self._lock = threading.Lock()
        self._starting = threading.Lock()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for leader in self._running:
                _kill(leader)

    def close(self) -> None:
        self.stop()
        with self._starting:
            for server in filter(None, self._servers.values()):
                server.close()
            self._servers.clear()
        if self._own_caches:
            self._caches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def run(self, script: Script, *, plain: bool, forked: bool = False) -> EndedRun:
        """Run ``script`` plainly, or through `runner`, which reports the exception that ends it. Raises `Stopped`.

        ``forked`` allows a fork server. At the end the process group of the run is killed.
        """
        with tempfile.TemporaryDirectory(prefix=prefix("fxminify-verify-"), ignore_cleanup_errors=True) as name:
            place = Path(name).resolve()
            run = _Run(place, script, None if plain else place / "report" / "report.json")
            for folder in run.folders:
                folder.mkdir()
            (place / "run" / SCRIPT).write_text(script.text, encoding="ascii")
            for file, data in script.files.items():
                (place / "run" / file).write_bytes(data)
            with suppress(_CannotFork):
                code, seconds = self._fork(run) if forked else self._start(run)
                if self._stopped:
                    raise Stopped
                return EndedRun(code, seconds, _read(place / "output"), run.reported(), forked)
        return self.run(script, plain=plain)

    def prepare(self, script: Script) -> None:
        """Start the fork server for scripts with the imports and the environment of ``script``, and do not wait for it.

        Does nothing where no server can serve them.
        """
        with suppress(_CannotFork), self._server(script):
            return

    def _environment(self, script: Script) -> dict[str, str]:
        """The variables of a run that is not confined, or of a server."""
        return script.environment() | ({} if self._confinement is not None else self._caches.environment())

    def _mend_caches(self, code: int | None, started: float) -> None:
        """Remove what a run left half written that was killed, or that its own alarm ended."""
        if code in (None, -signal.SIGALRM, -signal.SIGKILL):
            self._caches.mend(started)

    def _start(self, run: _Run) -> tuple[int | None, float]:
        """The exit code and the seconds of a fresh process."""
        started, began, code = time.monotonic(), time.time(), None
        with (run.place / "output").open("wb") as sink:
            with self._lock:
                if self._stopped:
                    raise Stopped
                command, environment = run.command(), self._environment(run.script)
                if self._confinement is not None:
                    search_path = access.of_script(run.script.text, run.script.search_path)
                    command = self._confinement.command(command, writable=run.folders, search_path=search_path)
                    environment |= confined_caches(run.place / "cache")
                process = subprocess.Popen(
                    command, cwd=run.place / "run", env=environment, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=sink, start_new_session=True,
                )  # fmt: skip
                self._running.add(process.pid)
            try:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(run.script.timeout)
                    if self._confinement is not None:
                        code = self._confinement.exit_code(code)
            finally:
                self._end(process.pid)
                process.wait()
                self._mend_caches(code, began)
        return code, time.monotonic() - started

    def _fork(self, run: _Run) -> tuple[int | None, float]:
        """The exit code and the seconds of a child of a fork server. Raises `_CannotFork`."""
        code = None
        with self._server(run.script) as server, _Answers(run.place / "fifo") as answers:
            server.ask(run)
            leader = answers.number(run.script.timeout, lambda: server.alive() and not self._stopped)
            if leader is None:
                raise _CannotFork
            started, began = time.monotonic(), time.time()
            with self._lock:
                self._running.add(leader)
                if self._stopped:
                    _kill(leader)
            try:
                code = answers.number(run.script.timeout)
            finally:
                self._end(leader)
                if code is None:
                    answers.number(10.0)
                self._mend_caches(code, began)
        return code, time.monotonic() - started

    def _end(self, leader: int) -> None:
        with self._lock:
            self._running.discard(leader)
            _kill(leader)

    @contextmanager
    def _server(self, script: Script) -> Iterator[_Server]:
        """Return the fork server for ``script``, and start it if necessary. Raises `_CannotFork`.

        At most `MOST_SERVERS` idle servers are kept; the one that was used last stays longest.
        """
        imports, _ = split(script.text)
        if not imports or self._confinement is not None:
            raise _CannotFork
        environment = self._environment(script)
        key = (imports, *sorted(environment.items()))
        with self._starting:
            if self._stopped:
                raise Stopped
            found = self._servers.pop(key) if key in self._servers else _Server(imports, environment)
            if found is not None and not found.alive():
                found.close()
                found = None
            self._servers[key] = found
            if found is None:
                raise _CannotFork
            found.users += 1
        try:
            yield found
        finally:
            with self._starting:
                found.users -= 1
                idle = [key for key, server in self._servers.items() if server is not None and not server.users]
                for key in idle[:-MOST_SERVERS]:
                    if (server := self._servers.pop(key)) is not None:
                        server.close()


class _Server:
    """A fork server as its driver sees it. ``users`` count the runs at it."""

    def __init__(self, imports: str, environment: Mapping[str, str]) -> None:
        self.users = 0
        self._home = tempfile.TemporaryDirectory(prefix=prefix("fxminify-verify-"))
        home = Path(self._home.name)
        (home / "run").mkdir()
        theirs, self._requests = os.pipe()
        with (home / "output").open("wb") as sink:
            self._process = subprocess.Popen(
                [sys.executable, _SERVER, str(theirs)], cwd=home / "run", env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=sink, start_new_session=True, pass_fds=(theirs,),
            )  # fmt: skip
        os.close(theirs)
        self._ready = home / "ready"
        self._send(home / "imports", imports=imports, directory=home / "run", output=home / "output", ready=self._ready)

    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, run: _Run) -> None:
        """Ask for a run. Its directory must have the FIFO for the answers. Raises `_CannotFork`."""
        _, rest = split(run.script.text)
        self._send(
            run.place / "request", fifo=run.place / "fifo", directory=run.place / "run", output=run.place / "output",
            report=run.report, command=run.command(), doc=_docstring(run.script.text), rest=rest, home=_HOME,
        )  # fmt: skip

    def close(self) -> None:
        """End it. Where it has served already, it first sees to the end of its runs."""
        os.close(self._requests)
        try:
            self._process.wait(5.0 if self._ready.exists() else 0.0)
        except subprocess.TimeoutExpired:
            _kill(self._process.pid)
            self._process.wait()
        self._home.cleanup()

    def _send(self, file: Path, **request: Any) -> None:
        file.write_bytes(marshal.dumps({k: str(v) if isinstance(v, Path) else v for k, v in request.items()}))
        try:
            os.write(self._requests, os.fsencode(file) + b"\n")
        except BrokenPipeError as error:
            raise _CannotFork from error


class _Answers:
    """The reading end of a FIFO of numbers, one a line."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path, 0o600)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._text = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._descriptor)

    def number(self, seconds: float, expected: Callable[[], bool] = lambda: True) -> int | None:
        """The next number; None if none comes in time, or none is ``expected`` any more. Raises `_CannotFork` where the
        writer is gone."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        end = time.monotonic() + seconds
        while b"\n" not in self._text:
            if (left := end - time.monotonic()) <= 0 or not expected():
                return None
            if poll.poll(1000 * min(left, _TICK)):
                if not (data := os.read(self._descriptor, 64)):
                    raise _CannotFork
                self._text += data
        line, _, self._text = self._text.partition(b"\n")
        return int(line)


def split(text: str) -> tuple[str, str]:
    """Return the import statements at the head of a script, one a line, and the script with empty lines in their
    place.

    The head includes statements that set environment variables, which an import may read. The first part is empty
    in three cases: torch is not the first import besides modules of Python; the imports cannot be cut off; the
    script names an accelerator, because an import may begin to use it and that does not survive a fork.
    """
    if _ACCELERATOR.search(text):
        return "", text
    try:
        body = parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", text
    start = int(bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))
    head = []
    for statement in body[start:]:
        if not isinstance(statement, ast.Import | ast.ImportFrom) and not _sets_variable(statement):
            break
        head.append(statement)
    lines = text.split("\n")
    last = head[-1].end_lineno or 0 if head else 0
    following = body[start + len(head) :][:1]
    names = [name for one in head if isinstance(one, ast.Import | ast.ImportFrom) for name in _imported(one)]
    foreign = [name for name in names if name not in sys.stdlib_module_names]
    if foreign[:1] != ["torch"] or "__future__" in names or (following and following[0].lineno <= last):
        return "", text
    return "\n".join(map(ast.unparse, head)), "\n".join(["\n" * (last - 1), *lines[last:]])


def _sets_variable(statement: ast.stmt) -> bool:
    """Whether the statement is ``os.environ[NAME] = VALUE`` with two constants."""
    match statement:
        case ast.Assign(
            targets=[ast.Subscript(ast.Attribute(ast.Name("os"), "environ"), ast.Constant())], value=ast.Constant()
        ):
            return True
    return False


def _imported(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """The top-level modules that a statement imports."""
    names = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else [n.name for n in statement.names]
    return [name.partition(".")[0] for name in names]


def _docstring(text: str) -> str | None:
    return ast.get_docstring(parse(text), clean=False)


def _read(path: Path) -> str:
    """Return the output of a run, without the middle of a very long file. A missing file counts as empty."""
    try:
        with open_ordinary(path) as file:
            data = file.read(_MOST_OUTPUT // 2)
            if (size := os.fstat(file.fileno()).st_size) > _MOST_OUTPUT:
                file.seek(size - _MOST_OUTPUT // 2)
            return (data + file.read(_MOST_OUTPUT // 2)).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _kill(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
