"""Jobs of a fleet: processes whose compilations fail now and then, and which write down what they have met.

    python -m fxminify.benchmarks.fleet_jobs SETTINGS       # `fxminify.benchmarks.fleet` starts it

Each job is forked from one process that has imported torch. It installs the hook for some compilations, as a program
does, and uninstalls it, as the end of a program does, again and again until its time is over. Each compilation fails
for what the backend ``planted`` cannot do. Some failures all jobs meet, others one job alone; some of the same bug.
After each failure a line in the ledger of the job says which it was and how long the hook has kept the job.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from fxminify.backends.capture import hook, places, seam
from fxminify.store import codec
from fxminify.store.recording import Recording

#: What the backend cannot do, a bug each; and operators around it, which tell graphs of one bug apart.
REFUSED = (
    "relu", "sigmoid", "tanh", "exp", "erf", "floor", "ceil", "sign", "square", "atan", "asinh", "sinh", "cosh",
    "log1p", "trunc", "expm1",
)  # fmt: skip
AROUND = ("sin", "cos", "neg", "abs")
#: Failures that all jobs meet, that one job meets alone, and that a job meets between `install` and `uninstall`.
SHARED, OWN, AT_ONCE = 6, 3, (2, 6)
#: The probability that the last failure occurs once more.
AGAIN = 0.3


@dataclass(frozen=True, slots=True)
class JobSettings:
    """``jobs`` jobs meet a failure every ``pause`` seconds, of ``bugs`` bugs in all, until there is a file ``over``, or
    the time ``until`` (Unix) has come. They send to ``address`` by spools in the folder ``spools``, one for each
    machine, and write ledgers into the folder ``ledgers``."""

    jobs: int
    machines: int
    bugs: int
    pause: float
    over: str
    until: float
    seed: int
    address: str
    spools: str
    ledgers: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A failure: the program calls these operators, of which the backend refuses ``refused``."""

    refused: str
    operators: tuple[str, ...]

    @property
    def graph(self) -> str:
        """The text by which `fxminify.benchmarks.fleet` finds its capture in the index."""
        return " ".join(self.operators)


def planned(settings: JobSettings, job: int) -> list[Planned]:
    """The failures that a job meets: those that all do, and its own."""
    bugs = REFUSED[: settings.bugs]
    shared = [Planned(bug, (bug, *digits(number))) for number, bug in enumerate(_cycled(bugs, SHARED, 0))]
    own = [Planned(bug, (*digits(job), bug)) for bug in dict.fromkeys(_cycled(bugs, OWN, job))]
    return shared + own


def digits(number: int) -> tuple[str, ...]:
    """Operators that write down a number."""
    return tuple(AROUND[number // len(AROUND) ** place % len(AROUND)] for place in range(4))


def _cycled(words: Sequence[str], count: int, first: int) -> list[str]:
    return [words[(first + number) % len(words)] for number in range(count)]


class TimedHook:
    """The hook of fxminify, and the seconds by which it delays each compilation: on the clock, of the processor, and
    those on the clock that it takes to write into the spool, with the start of a process that sends."""

    def __init__(self) -> None:
        self.delay = (0.0, 0.0)
        self.spooled = 0.0

    def compiling(self, wrapped: Any, gm: Any, inputs: Sequence[Any], call: Callable[[], Any]) -> Any:
        within, before = (0.0, 0.0), _clocks()

        def timed() -> Any:
            nonlocal within
            begun = _clocks()
            try:
                return call()
            finally:
                within = _since(begun)

        try:
            return hook._hook.compiling(wrapped, gm, inputs, timed)
        finally:
            wall, processor = _since(before)
            self.delay = (wall - within[0], processor - within[1])

    def record(self, place: places.ServerPlace, met: Recording) -> places.CaptureName:
        """Stands for `ServerPlace.record`."""
        begun = time.perf_counter()
        try:
            return _record(place, met)
        finally:
            self.spooled = time.perf_counter() - begun

    def __getattr__(self, name: str) -> Any:
        return getattr(hook._hook, name)


_record = places.ServerPlace.record


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def _since(begun: tuple[float, float]) -> tuple[float, float]:
    wall, processor = _clocks()
    return wall - begun[0], processor - begun[1]


class Ledger(logging.Handler):
    """A file with a line for each failure of a job, and for each warning of fxminify."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.WARNING)
        self._file = path.open("a", buffering=1)

    def note(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")

    def emit(self, record: logging.LogRecord) -> None:
        self.note(warning=record.getMessage())


def job(settings: JobSettings, number: int) -> None:
    """Meet failures until the time is over."""
    chance = random.Random(f"{settings.seed} {number}")
    os.environ["FXMINIFY_SPOOL"] = str(Path(settings.spools, str(number % settings.machines)))
    failures, ledger = planned(settings, number), Ledger(Path(settings.ledgers, f"{number}.jsonl"))
    logging.getLogger("fxminify").addHandler(ledger)
    last, first = failures[0], True
    while not Path(settings.over).exists() and time.time() < settings.until:
        timed = TimedHook()
        hook.install(settings.address)
        seam.detach()
        seam.attach(timed)
        for _ in range(chance.randint(*AT_ONCE)):
            last = last if chance.random() < AGAIN else chance.choice(failures)
            timed.spooled = 0.0
            with mock.patch.object(
                places.ServerPlace, "record", lambda place, met, timed=timed: timed.record(place, met)
            ):
                meet(last)
            wall, processor = timed.delay
            spooled = {"spooled": timed.spooled} if timed.spooled else {}
            ledger.note(graph=last.graph, first=first, at=time.time(), delay=wall, processor=processor, **spooled)
            first = False
            time.sleep(min(chance.expovariate(1 / settings.pause), 4 * settings.pause))
        hook.uninstall()


def meet(failure: Planned) -> None:
    """Compile a program whose compilation fails."""
    import torch

    functions = [getattr(torch, name) for name in failure.operators]

    def program(x: torch.Tensor) -> torch.Tensor:
        for function in functions:
            x = function(x)
        return x

    torch._dynamo.reset()
    options: Any = {"fault": "compile", "operators": [failure.refused]}
    try:
        torch.compile(program, backend="planted", options=options)(torch.rand(64))
    except torch._dynamo.exc.BackendCompilerFailed:
        return
    raise AssertionError(f"the backend compiles {failure.graph}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", help="the fields of `JobSettings`, as JSON")
    settings = codec.load(json.loads(parser.parse_args().settings), JobSettings)
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, os.getcwd())
    importlib.import_module("planted")
    importlib.import_module("fxminify.backends.capture.compiled_graph")
    importlib.import_module("fxminify.store.spool.upload")
    meet(planned(settings, 0)[0])
    gc.collect()
    gc.freeze()  # what all jobs have stays in pages that they share
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=job, args=(settings, number)) for number in range(settings.jobs)]
    for process in jobs:
        process.start()
    for process in jobs:
        process.join()
    sys.exit(sum(process.exitcode != 0 for process in jobs))


if __name__ == "__main__":
    main()
