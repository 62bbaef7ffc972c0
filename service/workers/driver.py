"""The driver of a task: a process that does it, renews its lease, and stores the result.

A worker starts it as ``python -m fxminify.service.workers.driver`` with a `Job` on its standard input, and it ends
when the worker does. SIGTERM, or the loss of the lease, ends the minification as Ctrl-C does, and the task is given
back. The fence of the capture guards all its writes about the capture, and the fence of the task all writes about
the task.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from ...backends.provenance.spec import InvalidSpec
from ...minifier.consent import NOT_TRUSTED, AgreedCase, may_run
from ...minifier.oracle.ablation import layers, stored
from ...minifier.sandbox.processes import die_with_parent
from ...minifier.session import events
from ...minifier.session.minify import OPEN, minify
from ...minifier.session.options import MinifyOptions
from ...store import codec
from ...store.errors import StoreError, is_temporary
from ...store.index import Index, State, StoredCase, TaskInfo, TaskState, queue, signing
from ...store.index.leases import RENEWED, own_name
from .fixed import retest_bug
from .log import TaskLog

#: Exit codes of a driver that has not written what became of its task: it was ended, or could not reach the index.
ENDED, AWAY = 143, 75
#: Seconds until a task is tried again: when another process works on its capture, and when a package is missing.
BUSY, BLOCKED = 5.0, 3600.0

_DEFAULTS = MinifyOptions()


@dataclass(frozen=True, slots=True)
class Job:
    """The request of a worker to its driver.

    ``worker`` is the process that starts it, ``can`` has its labels, ``keys`` the public keys of servers whose
    signatures it accepts. A new field needs a default: a newer fxminify may be installed while the worker runs, and
    its driver then gets a job without the field.
    """

    store: str
    task: int
    fence: int
    worker: int
    can: tuple[str, ...] = ()
    options: MinifyOptions = _DEFAULTS
    as_json: bool = False
    keys: tuple[str, ...] = ()


def drive(job: Job, log: TaskLog) -> int:
    """Work on a task. Returns the exit code."""
    task: TaskInfo | None = None
    try:
        signing.accept(job.keys)
        with Index.open(job.store) as index:
            task = index.tasks.get(job.task)
            lost = threading.Event()
            if task.fence != job.fence or not index.tasks.heartbeat(task, holder := own_name()):
                return 0
            try:
                with _renewed(index, task, holder, lost):
                    _work(index, task, job, log)
            except KeyboardInterrupt:
                if not lost.is_set() and index.tasks.give_back(task, "its worker was ended"):
                    log("given-back", "given back", task)
                return ENDED
            except (StoreError, InvalidSpec) as error:
                if is_temporary(error):
                    raise
                index.tasks.fail(task, str(error))
    except StoreError as error:
        log("away", str(error), task)
        return AWAY
    return 0


@contextmanager
def _renewed(index: Index, task: TaskInfo, holder: str, lost: threading.Event) -> Iterator[None]:
    """Renew the lease inside the block, and end the block with `KeyboardInterrupt` when the lease is lost."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEWED):
            with suppress(StoreError):  # the server is away; it may be back before the lease ends
                if not index.tasks.heartbeat(task, holder) and not ended.is_set():
                    lost.set()
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

    thread = threading.Thread(target=renew, name="fxminify task", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _minify(index: Index, task: TaskInfo, job: Job, log: TaskLog) -> None:
    """Minify the capture of a task, and write down what became of the task."""
    again = task.config.get("again") is True
    capture = index.captures.get(task.capture)
    if capture.state not in OPEN and not again:
        _finish(index, task, *outcome(task, capture.state, "it was minified before", job.can), log)
        return
    if _agreed(index, task, job, log, index.stored(task.capture).captured()) is None:
        return
    reasons: list[str] = []

    def listen(event: events.Event) -> None:
        if isinstance(event, events.CaptureFinished):
            reasons.append(event.reason)
        log.told(task, event)

    options = replace(job.options, again=again, budget=task.budget or job.options.budget)
    (result,) = minify(job.store, [task.capture], options=options, listener=listen)
    if result.state is State.BLOCKED and result.reason == NOT_TRUSTED:
        _wait_for_trust(index, task, log)  # its row was changed meanwhile
    elif result.state is State.BLOCKED:
        why = f"needs an environment: {result.reason}"
        index.tasks.give_back(task, why, seconds=BLOCKED)
        log("waits", why, task)
    elif result.state in OPEN:
        why = f"backs off for {BUSY:.0f} s: {' '.join(reasons) or 'another process was working on it'}"
        index.tasks.give_back(task, why, seconds=BUSY)
        log("waits", why, task)
    else:
        _finish(index, task, *outcome(task, result.state, result.reason, job.can), log)


def _ablate(index: Index, task: TaskInfo, job: Job, log: TaskLog) -> None:
    """Find out at which layer the failure of a capture enters, unless its reduction found that out."""
    if (known := stored(index, task.capture)) is not None and known.shows:
        _finish(index, task, TaskState.DONE, f"enters at: {known.enters}", log)
        return
    with _held(index, task, log) as held:
        if held and (agreed := _agreed(index, task, job, log, index.stored(task.capture).minimal())) is not None:
            found = layers(index, agreed, done=lambda row: log("layer", f"{row.backend}: {row.result}", task))
            index.artifacts.save(task.capture, queue.ABLATION, found.to_json())
            _finish(index, task, TaskState.DONE, f"enters at: {found.enters}", log)


def _retest(index: Index, task: TaskInfo, job: Job, log: TaskLog) -> None:
    """Find out whether a bug is fixed here, or fails again."""
    with _held(index, task, log) as held:
        if not held:
            return
        found = retest_bug(index, task.capture, job.options)
        if found is None:
            _wait_for_trust(index, task, log)
            return
        if found.is_fixed or found.fails:
            status = index.triage.retested(task.capture, found.versions, fixed=found.is_fixed)
            log("retested", f"bug {task.bug} is {status}", task, status=status.value)
        if found.is_stale:
            with suppress(StoreError):  # it has an open task already
                index.tasks.add(task.capture, config={"again": True})
    over = found.is_fixed or found.fails
    _finish(index, task, TaskState.DONE if over else TaskState.FAILED, str(found), log)


def _work(index: Index, task: TaskInfo, job: Job, log: TaskLog) -> None:
    if task.kind == queue.MINIFY:
        _minify(index, task, job, log)
    elif task.kind == queue.ABLATE:
        _ablate(index, task, job, log)
    elif task.kind == queue.RETEST:
        _retest(index, task, job, log)
    else:
        _finish(index, task, TaskState.FAILED, "this fxminify does not know what is to be done", log)


def _agreed(index: Index, task: TaskInfo, job: Job, log: TaskLog, stored: StoredCase) -> AgreedCase | None:
    """Return what the task is about if this worker may run it. Else give the task back."""
    agreed = may_run(task.capture, stored, trust=job.options.trust)
    if agreed is None:
        _wait_for_trust(index, task, log)
    return agreed


def _wait_for_trust(index: Index, task: TaskInfo, log: TaskLog) -> None:
    """Give a task back that only workers with `--trust` run."""
    index.tasks.give_back(task, queue.NEEDS_TRUST, needs=queue.for_trusting(task.needs))
    log("waits", queue.NEEDS_TRUST, task)


@contextmanager
def _held(index: Index, task: TaskInfo, log: TaskLog) -> Iterator[bool]:
    """Hold the lease on the capture of a task inside the block. False where another process does: the task is tried
    again soon."""
    if not index.leases.take(task.capture):
        why = f"backs off for {BUSY:.0f} s: another process was working on it"
        index.tasks.give_back(task, why, seconds=BUSY)
        log("waits", why, task)
        yield False
        return
    try:
        yield True
    finally:
        index.leases.give_back(task.capture)


def outcome(task: TaskInfo, state: State, reason: str, can: Collection[str]) -> tuple[TaskState, str]:
    """The state of a task whose capture has this state now, and why."""
    if state is State.VERIFIED:
        return TaskState.DONE, reason
    why = f"{state.value.replace('_', ' ')}: {reason}".rstrip(": ")
    for label in task.needs.split():
        if label.startswith(queue.TORCH) and label not in can:
            why += f"; it was captured with torch {label.removeprefix(queue.TORCH)}, and tried with another version"
    return TaskState.FAILED, why


def _finish(index: Index, task: TaskInfo, state: TaskState, why: str, log: TaskLog) -> None:
    if index.tasks.finish(task, state, why):
        log(state.value, f"{state.value}: {why}".rstrip(": "), task)


def main() -> int:
    job = codec.load(json.loads(sys.stdin.read()), Job)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    die_with_parent(job.worker)
    try:
        return drive(job, TaskLog(as_json=job.as_json))
    except KeyboardInterrupt:  # before or after its work
        return ENDED


if __name__ == "__main__":
    sys.exit(main())
