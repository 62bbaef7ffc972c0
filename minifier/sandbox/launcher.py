"""The driver's side of the zygote: start it, let it fork workers, notice when they end.

This module handles processes and channels; `pool` handles requests. Thread-safe.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from ...backends.provenance.access import ALL, Access
from ...backends.running.compiler_caches import CompilerCaches
from ...backends.running.confinement import Confinement
from ...backends.running.confinement import caches as confined_caches
from ...backends.running.processor_wait import ProcessorWait, stretched
from .messages import Broken, Channel, Exited, Fork, Forked, Imported, Message, Ready, Setup, pair
from .prepare import UNWANTED, worker_environment
from .processes import kill_group, kill_tree, resident
from .scratch import Scratch, read_output

Mode = Literal["fork", "spawn"]
T = TypeVar("T")
#: Modules that workers make the zygote import, at most: compilers make up names without end.
MOST_IMPORTED = 5000
#: Seconds between two looks at how long a process that starts has waited for a processor.
TICK = 0.5
#: How often a process is started that a signal ends before it is ready: it may have come from outside.
STARTS = 3


class SandboxError(Exception):
    """The sandbox cannot work. The message is for the user."""


class _KilledAtStart(SandboxError):
    """A signal ended a process before it was ready."""


class BackendImportError(SandboxError):
    """``module``, which the backend or the case needs, cannot be imported here."""

    def __init__(self, module: str, error: str) -> None:
        super().__init__(
            f"cannot import {module!r}: {error}\n"
            "Install it, or make it importable (PYTHONPATH), and run the same command again."
        )
        self.module = module
        self.error = error


@dataclass(eq=False)
class Worker:
    """A worker process as the driver sees it."""

    number: int
    channel: Channel
    pid: int = 0
    fresh: bool = False
    status: int | None = None
    known: threading.Event = field(default_factory=threading.Event)
    exited: threading.Event = field(default_factory=threading.Event)

    def kill(self) -> None:
        """End the process, its group and its descendants, and wait until it is gone."""
        if self.pid and not self.exited.is_set():
            kill_tree(self.pid)
            self.exited.wait(5.0)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, negative for a signal, or None if the process is alive or its end was not observed."""
        self.exited.wait(seconds)
        return self.status

    def resident(self) -> int:
        return resident(self.pid)


class Launcher:
    """Starts workers through one zygote. Starts the zygote, and starts it again if it dies."""

    def __init__(
        self,
        setup: Setup,
        mode: Mode = "fork",
        *,
        start_timeout: float = 180.0,
        confinement: Confinement | None = None,
        caches: CompilerCaches | None = None,
        access: Access = ALL,
    ) -> None:
        self.confinement = confinement
        self.caches = caches
        self.access = access
        self.setup = setup
        self.mode = mode
        self.start_timeout = start_timeout
        self.ready: Ready | None = None
        self.starts = 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._waiting: dict[int, Worker] = {}
        self._workers: dict[int, Worker] = {}
        self._number = 0
        self._imported: set[str] = set()
        self._to_preload: dict[str, None] = {}
        self._preloaded = 0

    def learn(self, imported: Imported) -> None:
        """Let the zygote import the modules that a worker had to import before it forks again.

        Imports after a worker began to use an accelerator are left to each worker: what begins to use one in the zygote
        keeps its children from it.
        """
        modules = imported.modules[:MOST_IMPORTED]
        self._imported.update(modules)
        if not imported.device:
            self._to_preload.update(dict.fromkeys(modules))

    def has_imported(self, module: str) -> bool:
        """Whether a worker had to import ``module``."""
        return module in self._imported

    def start(self) -> Ready:
        """Start the zygote and wait until its imports are done.

        Raises `BackendImportError` when one of them fails, `SandboxError` when it dies or takes too long.
        """
        with self._lock:
            return self._start()

    def launch(self) -> Worker:
        """Return a new worker, ready for requests. Raises as `start` does."""
        return _again(self._launch)

    def _launch(self) -> Worker:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._channel is not None
            ours, theirs = pair()
            self._number += 1
            worker = self._waiting[self._number] = Worker(self._number, Channel(ours))
            try:
                with theirs:
                    new = list(self._to_preload)[self._preloaded : MOST_IMPORTED] if self.mode == "fork" else []
                    self._channel.send(Fork(self._number, new), (theirs.fileno(),))
                    self._preloaded += len(new)
            except OSError as exc:
                ours.close()
                raise _KilledAtStart(f"the zygote is gone: {self._log()}") from exc
            if not worker.known.wait(60) or worker.exited.is_set():
                ours.close()
                raise _KilledAtStart(f"the zygote started no worker: {self._log()}")
        if worker.fresh:
            self._greeting(worker.channel, worker)
        return worker

    def close(self) -> None:
        """End the zygote and with it every worker and their descendants; wait until they are gone."""
        with self._lock:
            for worker in list(self._workers.values()):
                worker.kill()
            if self._channel is not None:
                self._hang_up(self._channel)
                self._channel = None
            if self._process is not None:
                try:
                    self._process.wait(10)
                except subprocess.TimeoutExpired:
                    kill_tree(self._process.pid)
                    self._process.wait()
                self._process = None

    def _start(self) -> Ready:
        """Start the zygote, again if it dies. Called with the lock."""
        return _again(self._start_once)

    def _start_once(self) -> Ready:
        ours, theirs = pair()
        env = {k: v for k, v in self.access.environment(os.environ).items() if k not in UNWANTED}
        env |= {"PYTHONHASHSEED": env.get("PYTHONHASHSEED", "0"), **worker_environment()}
        if self.caches is not None:
            env |= self.caches.environment()
        direct = self.confinement is None or not self.confinement.in_between
        command = [sys.executable, "-P", "-m", f"{__package__}.zygote", str(theirs.fileno()), self.mode]
        command.append(str(os.getpid() if direct else 0))
        directory = None
        if self.confinement is not None:
            scratch = Scratch(self.setup.scratch)
            search_path = [*self.setup.path, *self.access.directories]
            command = self.confinement.command(command, writable=scratch.folders, search_path=search_path)
            env |= confined_caches(scratch.cache)
            directory = scratch.work
        log = os.path.join(self.setup.scratch, "zygote.log")
        with open(log, "ab") as output, theirs:
            self._process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, env=env, start_new_session=True, cwd=directory,
            )  # fmt: skip
        channel = Channel(ours)
        self._preloaded = 0
        self.ready = self._greeting(channel, None)
        self.starts += 1
        self._channel = channel
        threading.Thread(target=self._listen, args=(channel,), daemon=True, name="zygote").start()
        return self.ready

    def _greeting(self, channel: Channel, worker: Worker | None) -> Ready:
        """Tell a zygote, or a spawned worker, what to import, and wait for its first message."""
        problem, killed = f"importing the backend took more than {self.start_timeout:g} s", False
        try:
            channel.send(self.setup)
            message = self._first_message(channel, worker)
            if isinstance(message, Ready):
                return message
            if isinstance(message, Broken):
                raise BackendImportError(message.module, message.error)
        except (EOFError, OSError):
            problem, killed = "the process died while importing the backend", self._ended_by_signal(worker)
        if worker is not None:
            worker.kill()
        elif self._process is not None:
            kill_tree(self._process.pid)
            self._process.wait()
        channel.close()
        raise (_KilledAtStart if killed else SandboxError)(f"{problem}: {self._log()}")

    def _ended_by_signal(self, worker: Worker | None) -> bool:
        """Return whether a signal has ended ``worker``, or the zygote, which has closed its channel."""
        if worker is not None:
            code = worker.wait(2.0)
        else:
            assert self._process is not None
            try:
                code = self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                return False
            if self.confinement is not None:
                code = self.confinement.exit_code(code)
        return code is not None and code < 0

    def _first_message(self, channel: Channel, worker: Worker | None) -> Message | None:
        """Return the first message, or None if none arrives within ``start_timeout`` seconds of processor time."""
        process = worker.pid if worker is not None else self._process.pid if self._process is not None else 0
        waits, waited, began = ProcessorWait(process), 0.0, time.monotonic()
        while (left := stretched(self.start_timeout, waited) - (time.monotonic() - began)) > 0:
            if (message := channel.receive(min(TICK, left))) is not None:
                return message
            waited += waits.look()
        return None

    def _listen(self, channel: Channel) -> None:
        """Thread: read the reports of the zygote until it ends. Its workers end with it."""
        try:
            while True:
                message = channel.receive()
                if isinstance(message, Forked):
                    worker = self._waiting.pop(message.number)
                    worker.pid, worker.fresh = message.pid, message.fresh
                    self._workers[message.pid] = worker
                    worker.known.set()
                elif isinstance(message, Exited) and (gone := self._workers.pop(message.pid, None)):
                    gone.status = message.status
                    gone.exited.set()
        except (EOFError, OSError, ValueError):
            channel.close()
        for worker in [*self._workers.values(), *self._waiting.values()]:
            if worker.pid:
                kill_group(worker.pid)
            worker.exited.set()
            worker.known.set()
        self._workers.clear()
        self._waiting.clear()

    @staticmethod
    def _hang_up(channel: Channel) -> None:
        try:
            channel.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            channel.close()

    def _log(self) -> str:
        """The end of what the zygote printed."""
        time.sleep(0.05)
        text = read_output(Path(self.setup.scratch, "zygote.log")).strip()
        return "\n".join(text.splitlines()[-20:]) or "it printed nothing"


def _again(start: Callable[[], T]) -> T:
    """Return what ``start`` does, called again where a signal ended the process. Raises `SandboxError` in the end."""
    for _ in range(STARTS - 1):
        with suppress(_KilledAtStart):
            return start()
    try:
        return start()
    except _KilledAtStart as error:
        raise SandboxError(str(error)) from error
