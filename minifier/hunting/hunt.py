"""Run the programs of a suite under a backend in isolated workers; a crash, a hang and a full memory are results.

Results go to a `ProgramLog` as they come. Programs that are in it are not run again, so a hunt that was interrupted
goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from ...backends.running import deaths
from ...store import codec
from ...store.document.case import Json
from ...store.failure import Failure, Phase
from ...store.signature import signature
from ..sandbox.pool import Ended, Pool, Reply
from . import tasks
from .programs import CallOutcome, CallResult, Finding, Program, ProgramResult, Selection

#: Seconds in which a worker lists the programs of a suite.
_LISTING = 600.0
#: After so many deaths a program is not run again.
_DEATHS = 5


class ProgramLog:
    """The results of a hunt in a file, one JSON object a line. A line that was cut off by a kill is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results: dict[Program, ProgramResult] = {}
        if path.exists():
            text = path.read_text()
            for line in text.splitlines():
                try:
                    result = ProgramResult.from_json(json.loads(line))
                except ValueError:
                    continue
                self.results[result.program] = result
            if not text.endswith("\n"):
                path.write_text(f"{text}\n")

    def add(self, result: ProgramResult) -> None:
        """Append ``result``."""
        self.results[result.program] = result
        with self._path.open("a") as file:
            file.write(json.dumps(result.to_json()) + "\n")


def listed(pool: Pool, suite: str, wanted: Selection) -> list[Program]:
    """Return the programs of ``suite`` that a worker lists. Raises `RuntimeError` with its error."""
    reply = pool.submit("programs", tasks.list_argument(suite, wanted), timeout=_LISTING).result()
    if reply.ended is not Ended.DONE:
        raise RuntimeError(f"the suite {suite} cannot be listed: {reply.error or reply.ended}")
    return [codec.load(doc, Program) for doc in reply.result["programs"]]


def hunt(
    pool: Pool,
    backend: Json,
    programs: Iterable[Program],
    log: ProgramLog,
    *,
    timeout: float = 300.0,
    done: Callable[[ProgramResult], None] = lambda result: None,
) -> None:
    """Run each of ``programs`` that ``log`` does not have under ``backend``, a `BackendSpec` as data.

    ``timeout`` is in seconds, for one program. ``done`` is called with each result.
    """
    waiting = iter([program for program in programs if program not in log.results])
    running: dict[Future[Reply], _Attempt] = {}
    while True:
        for program in _some(waiting, 2 * pool.jobs - len(running)):
            attempt = _Attempt(program)
            running[attempt.submit(pool, backend, timeout)] = attempt
        if not running:
            return
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            attempt = running.pop(future)
            result = attempt.result(future.result(), timeout)
            if result is None:
                running[attempt.submit(pool, backend, timeout)] = attempt
            else:
                log.add(result)
                done(result)


def _some(programs: Iterator[Program], number: int) -> Iterator[Program]:
    for _ in range(number):
        program = next(programs, None)
        if program is None:
            return
        yield program


class _Attempt:
    """A program that is run, and run again without the calls in which its worker died."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._died: dict[int, CallResult] = {}
        self._apart = False

    def submit(self, pool: Pool, backend: Json, timeout: float) -> Future[Reply]:
        return pool.submit(
            "program", tasks.run_argument(self.program, backend, sorted(self._died), self._apart), timeout=timeout
        )

    def result(self, reply: Reply, timeout: float) -> ProgramResult | None:
        """Return the result; None if the program is to be run again without a call."""
        if reply.ended is Ended.DONE:
            found = ProgramResult.from_json(reply.result)
            calls = sorted([*found.calls, *self._died.values()], key=lambda call: call.number)
            return ProgramResult(self.program, tuple(calls), found.problem, found.seconds)
        word, _, number = reply.phase.partition(" ")
        if word == "calls" and reply.ended is not Ended.INFRA:
            self._apart = True
            return None
        if word != "call" or reply.ended is Ended.INFRA:
            return ProgramResult(self.program, (), f"{reply.ended} in {reply.phase or 'start'}: {reply.error}")
        failure = _death(reply, timeout)
        finding = Finding(str(failure.kind), str(failure.phase), failure.headline(), signature(failure).digest)
        self._died[int(number)] = CallResult(int(number), CallOutcome.FAILS, finding.headline, (finding,))
        if len(self._died) < _DEATHS:
            return None
        return ProgramResult(self.program, tuple(self._died.values()), "its worker died too often")


def _death(reply: Reply, timeout: float) -> Failure:
    if reply.ended is Ended.TIMEOUT:
        return deaths.hang(Phase.FORWARD, timeout)
    if reply.ended is Ended.MEMORY:
        return deaths.out_of_memory(Phase.FORWARD, "killed at the memory cap")
    return deaths.crash(Phase.FORWARD, signal=reply.signal, exit_code=reply.exit_code, diagnostics=reply.stderr)


def failing(results: Sequence[ProgramResult]) -> Iterator[tuple[Program, CallResult]]:
    """Yield each call that failed, with its program."""
    for result in results:
        for call in result.calls:
            if call.outcome is CallOutcome.FAILS:
                yield result.program, call
