"""The driver's side of the workers: submit a request, get a `Future` of a `Reply` that always comes.

One thread per worker ("slot") takes requests from a queue, watches the worker's channel, clock and memory while it
answers, and replaces a worker that crashed, hung, outgrew the cap, or was left dirty. Whatever happens to the worker
is an ordinary `Reply` that says how it ended, in which phase, and what it had printed by then.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from ...backends.provenance.access import ALL, Access
from ...backends.running.compiler_caches import CompilerCaches
from ...backends.running.confinement import Confinement
from ...backends.running.processor_wait import ProcessorWait, stretched
from . import stacks
from .launcher import Launcher, Mode, SandboxError, Worker
from .messages import Answer, Imported, Json, Mark, ProtocolError, Ready, Request, Setup
from .processes import oom_kills
from .scratch import Scratch, read_output
from .stacks import Stack, StackSampling, StackWatch

#: Seconds between two looks at the memory and life of a busy worker.
TICK = 0.1
_SIGKILL = 9


class Ended(StrEnum):
    """The way in which a request ended."""

    DONE = "done"  # answered: see result
    CRASH = "crash"  # the worker died of a signal, or left by os._exit: see signal, exit_code
    TIMEOUT = "timeout"  # killed at the time limit, or before it where a sampled worker has got stuck
    MEMORY = "memory"  # killed at the memory cap, or by the kernel because memory ran out
    INFRA = "infra"  # our own trouble: see error


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a request.

    ``phase`` is the last phase announced, ``marks`` the time at which each began, in seconds. ``dirty`` is the reason
    why the worker was not used again although it answered. Of the ``seconds`` it waited ``cpu_wait_s`` for a
    processor. ``stacks`` are the requested samples.
    """

    ended: Ended
    phase: str = ""
    result: Json = field(default_factory=dict)
    error: str = ""
    signal: int | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    marks: dict[str, float] = field(default_factory=dict)
    pid: int = 0
    dirty: str = ""
    cpu_wait_s: float = 0.0
    stacks: tuple[Stack, ...] = ()


@dataclass(slots=True)
class Counts:
    """The pool's counters of requests and workers."""

    requests: int = 0
    workers: int = 0
    dirty: int = 0


@dataclass(slots=True)
class _Job:
    number: int
    task: str
    argument: Json
    timeout: float
    fresh: bool
    sampling: StackSampling | None
    future: Future[Reply]


class Workers(ABC):
    """The interface that the oracle uses: a `Pool`, or a cluster of them (`fxminify.minifier.sandbox.cluster`)."""

    scratch: Scratch

    @abstractmethod
    def start(self) -> object:
        """Have a worker import the backend. Raises `BackendImportError`, or another `SandboxError`."""

    @abstractmethod
    def submit(
        self, task: str, argument: Json, *, timeout: float, fresh: bool = False, sampling: StackSampling | None = None
    ) -> Future[Reply]:
        """``task`` with ``argument`` run by a worker within ``timeout`` seconds; ``fresh``: by an unused one.

        With ``sampling`` its stack is looked at while it runs, where that can be done.
        """

    @abstractmethod
    def replace_workers(self) -> None:
        """Have new workers answer the requests that begin from now on."""

    @abstractmethod
    def has_imported(self, module: str) -> bool:
        """Whether workers import ``module`` from now on."""

    @abstractmethod
    def close(self) -> None:
        """End every process that was started."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Pool(Workers):
    """``jobs`` workers that have the backend imported. A context manager; `close` ends every process it started.

    ``backend`` is a `BackendSpec` as data (None: workers without torch), ``imports`` and ``path`` what else a case
    needs, ``memory`` the cap in bytes on the resident memory of one worker and its children (default: an equal
    share of 80 % of what is available). ``mode`` is ``spawn`` where forking cannot serve, because an import has begun
    to use the device. ``confinement`` confines all processes of the pool, ``access`` is what they get of this user.
    ``caches`` are the caches of its compilers. By default a pool has its own; confined processes have empty ones.
    """

    def __init__(
        self,
        backend: Json | None,
        imports: Sequence[Any] = (),
        *,
        jobs: int = 1,
        memory: int | None = None,
        mode: Mode = "fork",
        path: Sequence[str] = (),
        start_timeout: float = 180.0,
        confinement: Confinement | None = None,
        caches: CompilerCaches | None = None,
        access: Access = ALL,
    ) -> None:
        self.jobs = max(1, jobs)
        #: The most bytes that a worker was seen to have resident.
        self.peak = 0
        self.memory = psutil.virtual_memory().available * 4 // 5 // self.jobs if memory is None else memory
        self.scratch = Scratch.create()
        self.counts = Counts()
        setup = Setup(str(self.scratch.root), backend, list(imports), list(path), 2 * self.memory)
        self._own_caches = CompilerCaches() if caches is None and confinement is None else None
        self.caches = caches or self._own_caches
        self.launcher = Launcher(
            setup, mode, start_timeout=start_timeout, confinement=confinement, caches=self.caches, access=access
        )  # fmt: skip
        self._queue: queue.Queue[_Job | None] = queue.Queue()
        self._lock = threading.Lock()
        self._closing = False
        self._slots: list[_Slot] = []
        #: False once a backend has taken the signal of samples for itself.
        self.sampled = True

    @property
    def mode(self) -> Mode:
        return self.launcher.mode

    def start(self) -> Ready:
        """Start the zygote. Raises `BackendImportError` naming what cannot be imported, or another `SandboxError`."""
        ready = self.launcher.start()
        if ready.cuda and self.launcher.mode == "fork":  # an import initialised CUDA: a fork of it cannot be used
            self.launcher.close()
            old = self.launcher
            self.launcher = Launcher(
                old.setup, "spawn", start_timeout=old.start_timeout, confinement=old.confinement, caches=old.caches,
                access=old.access,
            )  # fmt: skip
            ready = self.launcher.start()
        self._slots = [_Slot(self, i) for i in range(self.jobs)]
        for slot in self._slots:
            slot.thread.start()
        return ready

    def has_imported(self, module: str) -> bool:
        """Whether a worker had to import ``module`` for what it was asked."""
        return self.launcher.has_imported(module)

    def submit(
        self, task: str, argument: Json, *, timeout: float, fresh: bool = False, sampling: StackSampling | None = None
    ) -> Future[Reply]:
        """Have a worker run ``task`` within ``timeout`` seconds; ``fresh`` asks for an unused worker.

        The time in which the worker waits for a processor does not count: a busy machine is no hang.
        """
        future: Future[Reply] = Future()
        with self._lock:
            if self._closing or not self._slots:
                raise SandboxError("the pool is closed")
            self.counts.requests += 1
            self._queue.put(_Job(self.counts.requests, task, argument, timeout, fresh, sampling, future))
        return future

    def replace_workers(self) -> None:
        """Have new workers answer the requests that begin from now on."""
        for slot in self._slots:
            slot.suspect = True

    def renew(self) -> None:
        """Forget all requests: cancel what waits, end the workers, empty the scratch directory. The imports stay."""
        self._drain()
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                self._kill_workers()
                self._queue.all_tasks_done.wait(TICK)
        self._kill_workers()
        self.scratch.clear()

    def close(self) -> None:
        """Cancel what waits, kill what runs, remove the scratch directory. Can be called twice, and on Ctrl-C."""
        with self._lock:
            self._closing = True
        self._drain()
        for _ in self._slots:
            self._queue.put(None)
        self.launcher.close()
        for slot in self._slots:
            slot.thread.join(10)
        self._slots = []
        self.scratch.remove()
        if self._own_caches is not None:
            self._own_caches.close()

    def _drain(self) -> None:
        with suppress(queue.Empty):
            while True:
                job = self._queue.get_nowait()
                if job is not None:
                    job.future.cancel()
                self._queue.task_done()

    def _kill_workers(self) -> None:
        for slot in self._slots:
            if (worker := slot.worker) is not None:
                worker.kill()


class _Slot:
    """A thread with one worker."""

    def __init__(self, pool: Pool, index: int) -> None:
        self.pool = pool
        self.worker: Worker | None = None
        self.waits = ProcessorWait(0)
        self.used = False
        #: Whether the worker is replaced before it answers again.
        self.suspect = False
        self.thread = threading.Thread(target=self._serve, daemon=True, name=f"worker-{index}")

    def _serve(self) -> None:
        while (job := self.pool._queue.get()) is not None:
            if job.future.set_running_or_notify_cancel():
                self._answer(job)
            self.pool._queue.task_done()
        self._discard()

    def _answer(self, job: _Job) -> None:
        try:
            reply = self._run(job)
        except (SandboxError, OSError) as exc:
            self._discard()
            reply = Reply(Ended.INFRA, error=str(exc))
        except BaseException as exc:  # noqa: BLE001  the future must end, whatever this thread met
            self._discard()
            job.future.set_exception(exc)
            return
        if self.pool._closing and reply.ended is not Ended.DONE:
            job.future.set_exception(SandboxError("the pool was closed while this request ran"))
        else:
            job.future.set_result(reply)

    def _run(self, job: _Job) -> Reply:
        if (job.fresh and self.used) or self.suspect:
            self.suspect = False
            self._discard()
        for _ in range(2):  # a worker may have died while idle
            worker = self._worker()
            scratch = self.pool.scratch
            out, err = scratch.output(job.number, "out"), scratch.output(job.number, "err")
            try:
                worker.channel.send(Request(job.number, job.task, job.argument, str(out), str(err)))
                break
            except OSError:
                self._discard()
        else:
            return Reply(Ended.INFRA, error="workers die before they take a request")
        self.used = True
        job.sampling = job.sampling if self.pool.sampled else None
        began = time.time()
        watch = _Watch(worker, job, self.waits, self.pool.memory, self.pool.launcher.learn, err)
        ended = watch.until_end()
        with self.pool._lock:
            self.pool.peak = max(self.pool.peak, watch.peak)
        if watch.stacks is not None and watch.signal == stacks.SIGNAL:
            self.pool.sampled = False
            ended, watch.error = Ended.INFRA, "the backend does not let its stack be sampled"
        if ended is not Ended.DONE or watch.dirty:
            with self.pool._lock:
                self.pool.counts.dirty += bool(watch.dirty)
            self._discard()
            if self.pool.caches is not None and ended not in (Ended.DONE, Ended.CRASH):
                self.pool.caches.mend(began)
        reply = Reply(
            ended, watch.phase, watch.result, watch.error, watch.signal, watch.exit_code,
            read_output(out), read_output(err), watch.seconds, watch.marks, worker.pid, watch.dirty,
            watch.cpu_wait_s, () if watch.stacks is None else watch.stacks.finish(),
        )  # fmt: skip
        for path in (out, err):
            path.unlink(missing_ok=True)
        return reply

    def _worker(self) -> Worker:
        if self.worker is not None and self.worker.exited.is_set():
            self._discard()
        if self.worker is None:
            if self.pool._closing:
                raise SandboxError("the pool is closed")
            self.worker = self.pool.launcher.launch()
            self.waits = ProcessorWait(self.worker.pid)
            self.used = False
            with self.pool._lock:
                self.pool.counts.workers += 1
        return self.worker

    def _discard(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker.channel.close()
            self.worker = None


class _Watch:
    """Waits for one answer: reads marks, looks at the clock and the memory, and says how it ended."""

    def __init__(
        self,
        worker: Worker,
        job: _Job,
        waits: ProcessorWait,
        cap: int,
        learn: Callable[[Imported], None],
        errors: Path,
    ) -> None:
        self.learn = learn
        self.stacks = None if job.sampling is None else StackWatch(job.sampling, worker.pid, errors, job.timeout)
        self.worker = worker
        self.job = job
        self.waits = waits
        self.cap = cap
        self.phase = ""
        self.marks: dict[str, float] = {}
        self.result: Json = {}
        self.error = ""
        self.dirty = ""
        self.signal: int | None = None
        self.exit_code: int | None = None
        self.seconds = 0.0
        self._began = time.monotonic()
        self.cpu_wait_s = 0.0
        self.peak = 0
        self._oom_kills = oom_kills()

    def until_end(self) -> Ended:
        try:
            ended = self._wait()
        except (EOFError, OSError):
            ended = self._died()
        except ProtocolError as exc:
            self.worker.kill()
            self.error = f"a worker sent something else than an answer: {exc}"
            ended = Ended.INFRA
        self.seconds = time.monotonic() - self._began
        return ended

    def _wait(self) -> Ended:
        while True:
            left = stretched(self.job.timeout, self.cpu_wait_s) - (time.monotonic() - self._began)
            message = self.worker.channel.receive(max(0.0, min(TICK, left)))
            if isinstance(message, Mark) and message.query == self.job.number:
                self.phase = message.phase
                self.marks.setdefault(message.phase, round(time.monotonic() - self._began, 6))
            elif isinstance(message, Answer) and message.query == self.job.number:
                self.result, self.error, self.dirty = message.result, message.error, message.dirty
                return Ended.INFRA if message.error else Ended.DONE
            elif isinstance(message, Imported):
                self.learn(message)
            elif message is not None:
                raise ProtocolError(f"an unexpected {type(message).__name__}")
            elif self.worker.exited.is_set():
                return self._died()
            elif left <= 0:
                self.worker.kill()
                return Ended.TIMEOUT
            else:
                self.cpu_wait_s += self.waits.look()
                could_run = time.monotonic() - self._began - self.cpu_wait_s
                if self.stacks is not None and self.stacks.is_stuck(could_run):
                    self.worker.kill()
                    return Ended.TIMEOUT
                self.peak = max(self.peak, size := self.worker.resident())
                if self.cap and size > self.cap:
                    self.worker.kill()
                    self.error = f"{size >> 20} MiB resident, the cap is {self.cap >> 20} MiB"
                    return Ended.MEMORY

    def _died(self) -> Ended:
        status = self.worker.wait(2.0)
        if status is None:
            self.worker.kill()
            status = self.worker.wait(2.0)
            self.error = "the worker closed its channel, or its zygote died"
            return Ended.INFRA
        if status >= 0:
            self.exit_code = status
            return Ended.CRASH
        self.signal = -status
        if self.signal == _SIGKILL:
            if oom_kills() > self._oom_kills:
                self.error = "killed by the kernel: the machine is out of memory"
                return Ended.MEMORY
            self.error = "killed from outside"
            return Ended.INFRA
        return Ended.CRASH
