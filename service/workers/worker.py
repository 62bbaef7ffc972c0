"""A worker: takes tasks from the queue of an index and starts a driver for each, a few at a time.

The worker itself minifies nothing and imports no torch. It notices drivers that end without an answer, ends those whose
task was cancelled or given to another, and waits while the server of the index is away. What it owes the others, such
as tasks whose worker is gone, it does every few seconds (`fxminify.store.index.tasks.Tasks.sweep`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

from ...backends.running.deaths import signal_name
from ...minifier.sandbox.processes import kill_tree
from ...minifier.session.options import MinifyOptions
from ...store import codec
from ...store.errors import StoreError, is_temporary
from ...store.index import Index, TaskInfo, TaskState, queue, signing
from ...store.index.leases import RENEWED
from .driver import AWAY, Job
from .installation import serving
from .log import TaskLog
from .notify import Notifier
from .targets import Target

#: Seconds between two looks at the drivers, and at an empty queue.
_LOOK, _IDLE = 0.1, 1.0
#: Seconds between two sweeps, and between two tries to reach a server that is away.
_SWEEP, _AWAY = 5.0, 2.0
#: Seconds between two searches for obsolete bugs.
_TIDY = 3600.0
#: Seconds for a driver to end after SIGTERM.
_GRACE = 15.0
#: An idle worker waits for a task whose next attempt is due within this time.
_NEXT_ATTEMPT_SECONDS = 60.0
#: A driver may take so many times its budget, and so many seconds on top, for all that a budget does not cover.
_HARD, _ON_TOP = 2.0, 600.0


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """The options of a worker.

    * ``drivers``: tasks at a time; 0: half as many as there are processors, at least 1.
    * ``tasks``: how many tasks to take before it ends; None: any number.
    * ``until_empty``: end when no task is left that this worker can serve.
    * ``labels``: labels besides the ones that it finds itself; ``name``: its name in listings.
    * ``keys``: public keys of servers. A capture that they signed runs as if it was captured here.
    * ``minify``: options of each minification; of these, ``trust`` also decides which tasks it takes.
    * ``targets``: receivers of notifications, with links to ``page``.
    """

    drivers: int = 0
    tasks: int | None = None
    until_empty: bool = False
    labels: tuple[str, ...] = ()
    name: str = ""
    keys: tuple[str, ...] = ()
    minify: MinifyOptions = field(default_factory=MinifyOptions)
    targets: tuple[Target, ...] = ()
    page: str = ""


@dataclass(slots=True)
class _Driver:
    """A running driver. ``over`` is when it lost its task, ``ending`` when it was asked to end."""

    task: TaskInfo
    process: subprocess.Popen[str]
    begun: float
    over: float | None = None
    ending: float | None = None

    def end(self) -> None:
        """Tell it to end, and kill it where it does not."""
        if self.ending is None:
            self.ending = time.monotonic()
            self.process.terminate()
        elif time.monotonic() > self.ending + _GRACE:
            kill_tree(self.process.pid)


class TaskWorker:
    """A call of `work`, on an open index."""

    def __init__(self, store: str, index: Index, options: WorkOptions, log: TaskLog) -> None:
        self._store = store
        self._index = index
        self._options = options
        self._log = log
        here = serving()
        self._can = set(here.labels) | set(options.labels) | ({queue.TRUST} if options.minify.trust else set())
        self._can |= {queue.label(queue.SIGNER, key) for key in options.keys}
        self._can |= {queue.EXPLAIN} if options.minify.explain else set()
        self._places = options.drivers or max(1, len(os.sched_getaffinity(0)) // 2)
        self._drivers: list[_Driver] = []
        self._taken = 0
        self._swept = self._patient = self._tidied = float("-inf")
        self._versions = here.versions
        self._id = index.tasks.join(options.name, self._can)

    def run(self) -> int:
        """Work until the options say that it is enough. Returns how many tasks were taken."""
        log, places = self._log, self._places
        log(
            "begun",
            f"worker {self._id} works on up to {places} tasks at a time",
            worker=self._id,
            can=sorted(self._can),
        )
        away = False
        notifier = Notifier(self._index, self._options.targets, self._options.page, log)
        try:
            notifier.start()
            self._index.tasks.fill()
            if queued := self._index.installations.announce(self._versions):
                log("installed", f"new versions are installed here: {queued} bugs are run again", bugs=queued)
            while True:
                try:
                    if self._step():
                        return self._taken
                    if away:
                        log("back", "the index answers again")
                    away = False
                    time.sleep(_LOOK if self._drivers else _IDLE)
                except StoreError as error:
                    if not is_temporary(error):
                        raise
                    if not away:
                        log("away", f"waiting for the index: {error}")
                    away = True
                    self._patient = time.monotonic() + RENEWED  # drivers could not renew their leases either
                    time.sleep(_AWAY)
        finally:
            self._end()
            notifier.close()

    def _step(self) -> bool:
        """Look after the drivers, and start others. True where it is enough."""
        for driver in list(self._drivers):
            code = driver.process.poll()
            if code is not None:
                self._ended(driver, code)
                self._drivers.remove(driver)
        if time.monotonic() > self._swept + _SWEEP:
            self._sweep()
            self._swept = time.monotonic()
        if time.monotonic() > self._tidied + _TIDY:
            if retired := self._index.triage.retire():
                self._log("obsolete", f"{retired} bugs are obsolete: they did not occur for a long time", bugs=retired)
            self._tidied = time.monotonic()
        limit = self._options.tasks
        while len(self._drivers) < self._places and (limit is None or self._taken < limit):
            task = self._index.tasks.claim(self._id, self._can)
            if task is None:
                break
            self._taken += 1
            self._log("claimed", f"begun{f', attempt {task.attempts + 1}' * (task.attempts > 0)}", task)
            self._drivers.append(self._start(task))
        if self._drivers:
            return False
        if limit is not None and self._taken >= limit:
            return True
        return self._options.until_empty and not self._index.tasks.left(
            self._id, self._can, within=_NEXT_ATTEMPT_SECONDS
        )

    def _sweep(self) -> None:
        own = self._index.tasks.mine(self._id)
        for driver in self._drivers:
            task, budget = driver.task, driver.task.budget or self._options.minify.budget
            if (task.id, task.fence) not in own:
                self._part(driver)
            elif budget is not None and time.monotonic() > driver.begun + _HARD * budget + _ON_TOP:
                kill_tree(driver.process.pid)
        if time.monotonic() > self._patient:
            self._index.tasks.sweep(self._can)

    def _part(self, driver: _Driver) -> None:
        """Its task is not this driver's any more: it has written what became of it and is about to end, or is ended."""
        now = self._index.tasks.get(driver.task.id)
        driver.over = driver.over or time.monotonic()
        cancelled = now.state is TaskState.CANCELLED
        if cancelled or now.fence != driver.task.fence or time.monotonic() > driver.over + _GRACE:
            if driver.ending is None:
                self._log(
                    "lost", f"ended: {'it was cancelled' if cancelled else 'it was lost to another'}", driver.task
                )
            driver.end()

    def _start(self, task: TaskInfo) -> _Driver:
        """A driver with a process group of its own. It learns by a pipe where the index is: others see arguments."""
        options, can = self._options.minify, tuple(sorted(self._can))
        job = Job(
            self._store, task.id, task.fence, os.getpid(), can, options, self._log.as_json, self._options.keys
        )  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "fxminify.service.workers.driver"], stdin=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        driver = _Driver(task, process, time.monotonic())
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # one that is gone already is noticed by its exit code
            process.stdin.write(json.dumps(codec.dump(job)))
        return driver

    def _ended(self, driver: _Driver, code: int) -> None:
        """Say what became of a task whose driver may not have said so itself."""
        task = driver.task
        if code == AWAY:
            self._index.tasks.give_back(task, "the index was away", seconds=_AWAY)
        elif driver.ending is not None:
            self._index.tasks.give_back(task, "its worker was ended")
        elif code:
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
            why = f"its driver, process {driver.process.pid}, {how}"
            if self._index.tasks.fail(task, why):
                self._log("attempt", why, task)

    def _end(self) -> None:
        """End the drivers and give their tasks back. A second signal kills them."""
        try:
            while any(driver.process.poll() is None for driver in self._drivers):
                for driver in self._drivers:
                    driver.end()
                time.sleep(_LOOK)
        except KeyboardInterrupt:
            for driver in self._drivers:
                kill_tree(driver.process.pid)
                driver.process.wait()
        with suppress(StoreError):  # where the index is away, the tasks are free when their leases end
            self._index.tasks.leave(self._id)


def work(store: str, options: WorkOptions, log: TaskLog) -> int:
    """Take tasks from the queue of ``store``, a path or a URL. Return the number of tasks taken.

    SIGTERM and Ctrl-C, raised as `KeyboardInterrupt`, end it: the tasks of running drivers are given back. Raises
    `StoreError`, and `fxminify.service.workers.installation.NotServing` if torch cannot be imported.
    """
    signing.accept(options.keys)
    with Index.open(store) as index:
        return TaskWorker(store, index, options, log).run()
