"""Run the programs of a suite under a backend in isolated workers; a crash, a hang and a full memory are results.

Results are handed on in the order of the programs, whichever worker is first, and kept in a `ProgramLog`. So a hunt
finds the same with any number of workers, and goes on where it was interrupted.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from ...backends.capture import post_mortem
from ...backends.capture.journal import in_flight
from ...backends.running import deaths
from ...store import codec
from ...store.document.case import Json
from ...store.errors import StoreError
from ...store.failure import Failure, Phase
from ..sandbox.pool import Ended, Pool, Reply
from . import recordings, tasks
from .log import ProgramLog
from .programs import CALL, CALLING, EAGER, CallOutcome, CallResult, Finding, Program, ProgramResult, Selection

#: Seconds in which a worker lists the programs of a suite.
_LISTING = 600.0
#: After so many deaths of its worker, or one hang, a program is not run again.
_DEATHS = 4

#: Stores the failures of a result, which are in its folder, and returns the result with them.
Keep = Callable[[ProgramResult, Path], ProgramResult]


def listed(pool: Pool, suite: str, wanted: Selection) -> list[Program]:
    """Return the programs of ``suite`` that a worker lists. Raises `StoreError` with its error."""
    reply = pool.submit("programs", tasks.list_argument(suite, wanted), timeout=_LISTING).result()
    if reply.ended is not Ended.DONE or reply.error:
        raise StoreError(f"the suite {suite} cannot be listed: {reply.error or reply.ended}")
    return [codec.load(doc, Program) for doc in reply.result["programs"]]


def hunt(
    pool: Pool,
    backend: Json,
    programs: Iterable[Program],
    log: ProgramLog,
    *,
    timeout: float = 300.0,
    until: float | None = None,
    keep: Keep = lambda result, folder: result,
    done: Callable[[ProgramResult], None] = lambda result: None,
) -> None:
    """Run each of ``programs`` that ``log`` does not have under ``backend``, a `BackendSpec` as data.

    ``timeout`` is in seconds, for one program. At ``until``, a time of `time.monotonic`, what still runs is given up.
    ``keep`` stores the failures of a result, then ``done`` is called with it.
    """
    folder = Path(pool.scratch.root) / "programs"
    folder.mkdir(exist_ok=True)
    waiting = enumerate(program for program in programs if program not in log.results)
    running: dict[Future[Reply], _Attempt] = {}
    finished: dict[int, tuple[ProgramResult, Path]] = {}
    following = 0

    def hand_on(number: int) -> None:
        result, own = finished[number]
        result = keep(result, own)
        log.add(result)
        del finished[number]
        shutil.rmtree(own, ignore_errors=True)
        done(result)

    try:
        while True:
            over = until is not None and time.monotonic() >= until
            for number, program in _some(waiting, 0 if over else 2 * pool.jobs - len(running)):
                attempt = _Attempt(number, program, folder)
                running[attempt.submit(pool, backend, timeout)] = attempt
            if over or not running:
                return
            left = None if until is None else max(0.0, until - time.monotonic())
            for future in wait(running, left, FIRST_COMPLETED).done:
                attempt = running.pop(future)
                result = attempt.result(future.result(), timeout)
                if result is None:
                    running[attempt.submit(pool, backend, timeout)] = attempt
                else:
                    finished[attempt.number] = result, attempt.folder
            while following in finished:
                hand_on(following)
                following += 1
    finally:
        for number in sorted(finished):
            hand_on(number)


def _some(programs: Iterator[tuple[int, Program]], number: int) -> Iterator[tuple[int, Program]]:
    for _ in range(number):
        program = next(programs, None)
        if program is None:
            return
        yield program


class _Attempt:
    """A program that is run, and run again without the calls in which its worker died. ``folder`` is its own."""

    def __init__(self, number: int, program: Program, folder: Path) -> None:
        self.number = number
        self.program = program
        self.folder = folder / str(number)
        self._died: dict[int, CallResult] = {}
        self._every: int | None = None

    def submit(self, pool: Pool, backend: Json, timeout: float) -> Future[Reply]:
        self.folder.mkdir(exist_ok=True)
        argument = tasks.run_argument(self.program, backend, sorted(self._died), self.folder)
        return pool.submit("program", argument, timeout=timeout)

    def result(self, reply: Reply, timeout: float) -> ProgramResult | None:
        """Return the result; None if the program is to be run again without a call."""
        if reply.ended is Ended.DONE and not reply.error:
            found = ProgramResult.from_json(reply.result)
            return self._with_died(found.calls, found.problem, found.seconds)
        word, *numbers = reply.phase.split() or [""]
        if word not in CALLING or reply.ended is Ended.INFRA:
            ended = "" if reply.ended is Ended.DONE else f"{reply.ended} in {reply.phase or 'start'}: "
            return ProgramResult(self.program, (), f"{ended}{reply.error or 'its worker died'}")
        call, every = int(numbers[0]), len(numbers) > 1
        self._died[call] = self._last_call(call, word, reply, timeout)
        if every:
            self._every = call
            if reply.ended is not Ended.CRASH:  # each call by itself takes less time and memory
                self._died[call] = CallResult(call, CallOutcome.UNCHECKED)
        elif reply.ended is Ended.TIMEOUT:
            return self._with_died((), "later calls were not made after a hang", 0.0)
        if len(self._died) < _DEATHS:
            return None
        return self._with_died((), "its worker died too often", 0.0)

    def _with_died(self, calls: tuple[CallResult, ...], problem: str, seconds: float) -> ProgramResult:
        """Return the result with the calls in which the worker died, see `CallResult`."""
        found = {call.number: call for call in (*calls, *self._died.values())}
        every = None if self._every is None else found.pop(self._every)
        failed = any(call.outcome is CallOutcome.FAILS for call in found.values())
        if every is not None and every.outcome is CallOutcome.FAILS and not failed:
            found[every.number] = every
        return ProgramResult(self.program, tuple(found[number] for number in sorted(found)), problem, seconds)

    def _last_call(self, call: int, word: str, reply: Reply, timeout: float) -> CallResult:
        """Return the result of the call in which the worker died, and write its failure."""
        seen = in_flight(self.folder).get(reply.pid) if word == CALL else None
        phase = Phase.FORWARD if seen is None else seen.failing_phase
        failure = _death(reply, phase, timeout)
        if word == EAGER or (seen is not None and seen.phase == "eager"):
            return CallResult(call, CallOutcome.REFUSED, f"eager, too: {failure.headline()}")
        if seen is None:
            outside = f"{failure.headline()} outside of every compilation and compiled call"
            return CallResult(call, CallOutcome.UNCHECKED, outside)
        recordings.write(self.folder, call, [post_mortem.recording_in_flight(self.folder, seen, failure)])
        finding = Finding.of(failure)
        return CallResult(call, CallOutcome.FAILS, finding.headline, (finding,))


def _death(reply: Reply, phase: Phase, timeout: float) -> Failure:
    """Return the failure of a worker that died. Of its output only what a compiler wrote explains it."""
    printed = reply.stderr
    if reply.ended is Ended.TIMEOUT:
        return deaths.hang(phase, timeout, diagnostics=printed if phase is Phase.COMPILE else "")
    if reply.ended is Ended.MEMORY:
        return deaths.out_of_memory(phase, "killed at the memory cap")
    said = printed if phase is Phase.COMPILE else _stack(printed)
    return deaths.crash(phase, signal=reply.signal, exit_code=reply.exit_code, diagnostics=said)


def _stack(printed: str) -> str:
    """Return the stack that `faulthandler` wrote at the end of ``printed``."""
    _, fatal, rest = printed.rpartition("Fatal Python error: ")
    return f"{fatal}{rest}" if fatal else ""
