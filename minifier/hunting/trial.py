"""Run one program of a suite under a backend, in a worker, and judge each of its calls.

The program goes through `torch.compile` under the capture hook, as a user's program does under ``--check``: each graph
that the backend compiled is compared with eager, forward and backward, at every call. At first one function makes all
calls, because a graph costs more than what it calls. If not all is well, each call is made by itself; they share one
compiled function, so a graph with symbolic sizes is called with the sizes of several samples. Failures are written to
a folder as captures, and a journal there has what is in flight, for the case that the worker dies.
"""

from __future__ import annotations

import atexit
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...backends.adapters import adapter_of
from ...backends.capture import hook, recorder
from ...backends.capture.journal import Journal
from ...backends.capture.places import CaptureName
from ...backends.capture.recorder import CaptureRecorder
from ...backends.provenance.spec import BackendSpec
from ...backends.running.execution import copy_inputs, execute
from ...store.recording import Recording
from ...store.signature import Signature
from . import recordings
from .programs import (
    CALL,
    EAGER,
    CallOutcome,
    CallResult,
    Finding,
    PreparedProgram,
    Program,
    ProgramResult,
    suite,
)

Mark = Callable[[str], None]
_LONGEST = 300


def run_program(
    program: Program,
    spec: BackendSpec,
    mark: Mark = lambda phase: None,
    without: frozenset[int] = frozenset(),
    folder: Path | None = None,
) -> ProgramResult:
    """Run ``program`` under the backend of ``spec``. ``mark`` is called before each call. Raises nothing of either.

    ``without`` are numbers of calls to leave out; the number after the last call stands for the function that makes
    all. ``folder`` takes the journal and the failures (`fxminify.minifier.hunting.recordings`).
    """
    began = time.perf_counter()
    torch._dynamo.reset()
    mark("prepare")
    try:
        prepared = suite(program.suite).prepare(program)
    except Exception as exc:  # noqa: BLE001  a library's samples may raise anything
        return ProgramResult(program, problem=_said(exc), seconds=time.perf_counter() - began)
    spec = replace(spec, dynamic=program.dynamic)
    with _described(program), _journal(folder) as journal:
        done = _calls(prepared, without, lambda what: _Trial(what, spec, mark, journal, folder))
    torch._dynamo.reset()
    return ProgramResult(program, done, "", round(time.perf_counter() - began, 3))


def _calls(
    prepared: PreparedProgram, without: frozenset[int], trial_of: Callable[[PreparedProgram], _Trial]
) -> tuple[CallResult, ...]:
    """Make all calls with one function, and if that is not ok each by itself."""
    every = len(prepared.calls)
    numbers = [number for number in range(every) if number not in without]
    together = CallResult(every, CallOutcome.UNTRACED)
    if len(numbers) > 1 and every not in without:
        together = trial_of(_together(prepared)).call(0, every, " every")
        if together.outcome is CallOutcome.OK:
            return tuple(replace(together, number=number, seconds=0.0) for number in numbers)
        torch._dynamo.reset()
    trial = trial_of(prepared)
    done = [trial.call(number, number) for number in numbers]
    if together.outcome is CallOutcome.FAILS and not any(call.outcome is CallOutcome.FAILS for call in done):
        done.append(together)
    return tuple(done)


@contextmanager
def _described(program: Program) -> Iterator[None]:
    """Name ``program`` in the captures of the block."""
    recorder.ABOUT.update(recordings.about(program))
    try:
        yield
    finally:
        recorder.ABOUT.clear()


@contextmanager
def _journal(folder: Path | None) -> Iterator[Journal | None]:
    """Give the journal in ``folder``, and close it after the block."""
    if folder is None:
        yield None
        return
    journal = recordings.journal(folder)
    try:
        yield journal
    finally:
        journal.close()


def _together(prepared: PreparedProgram) -> PreparedProgram:
    """Return a function that makes all calls of ``prepared`` and returns the list of their results."""
    function = prepared.function

    def program(*calls: Any) -> list[Any]:
        return [function(*args, **kwargs) for args, kwargs in calls]

    return PreparedProgram(program, [(tuple(prepared.calls), {})], prepared.backward)


class _Trial:
    """A program and its compiled function."""

    def __init__(
        self,
        prepared: PreparedProgram,
        spec: BackendSpec,
        mark: Mark,
        journal: Journal | None,
        folder: Path | None,
    ) -> None:
        self.prepared, self.adapter = prepared, adapter_of(spec.name)
        self.compiled = spec.compile(prepared.function)
        self.mark, self.folder = mark, folder
        self.seen = _Recorder(journal)

    def call(self, index: int, number: int, which: str = "") -> CallResult:
        """Make the call with this ``index``. Returns its result under ``number``. ``which`` is added to its phases."""
        began = time.perf_counter()
        found = self._call(index, number, which)
        return replace(found, seconds=round(time.perf_counter() - began, 3))

    def _call(self, index: int, number: int, which: str) -> CallResult:
        leaves, structure = pytree.tree_flatten(self.prepared.calls[index])

        def calling(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                args, kwargs = pytree.tree_unflatten(list(given), structure)
                return function(*args, **kwargs)

            return call

        self.mark(f"{EAGER} {number}{which}")
        try:
            execute(calling(self.prepared.function), copy_inputs(leaves), self.prepared.backward)
        except Exception as exc:  # noqa: BLE001  what eager raises is the program's own error
            return CallResult(number, CallOutcome.REFUSED, _said(exc))
        self.mark(f"{CALL} {number}{which}")
        self.seen.begin()
        raised: BaseException | None = None
        with self.adapter.fallbacks() as left:
            try:
                with hook.recording(self.seen, check="every:1"):
                    calling(self.compiled)(*copy_inputs(leaves))
            except BaseException as exc:  # noqa: BLE001  a backend may call sys.exit
                raised = exc
            reasons = tuple(dict.fromkeys(left()))
        return replace(self._judged(number, raised), left=reasons)

    def _judged(self, number: int, raised: BaseException | None) -> CallResult:
        seen = self.seen
        failures = [recording.failure for recording in seen.kept.recordings]
        if absent := next((failure.absent for failure in failures if failure.absent), ""):
            return CallResult(number, CallOutcome.ABSENT, absent)
        found = [recording for recording in seen.kept.recordings if not recording.failure.refused]
        if found:
            if self.folder is not None:
                recordings.write(self.folder, number, found)
            findings = tuple(Finding.of(recording.failure) for recording in found)
            return CallResult(number, CallOutcome.FAILS, findings[0].headline, findings)
        if failures:
            return CallResult(number, CallOutcome.REFUSED, failures[0].refused)
        if seen.counts["failed"]:
            return CallResult(number, CallOutcome.FAILS, "the same failure as in an earlier call")
        if raised is not None:
            return CallResult(number, CallOutcome.UNTRACED, _said(raised))
        if seen.reasons:
            return CallResult(number, CallOutcome.UNCHECKED, "; ".join(seen.reasons))
        if not seen.counts["compared"]:
            return CallResult(number, CallOutcome.UNTRACED, "no graph was compared")
        return CallResult(number, CallOutcome.OK)


class _Recorder(CaptureRecorder):
    """Keeps what the hook reports about one call. A graph reports to the recorder with which it was compiled, so all
    calls of a compiled function share one."""

    def __init__(self, journal: Journal | None) -> None:
        self.kept = _Kept()
        super().__init__("", journal, place=self.kept)
        atexit.unregister(self.flush)  # a worker makes thousands of recorders
        self.counts: Counter[str] = Counter()
        self.reasons: list[str] = []

    def begin(self) -> None:
        """Forget what earlier calls showed."""
        self._known.clear()
        self.kept.recordings.clear()
        self.counts.clear()
        self.reasons.clear()

    def note(self, what: str, spec: Callable[[], BackendSpec]) -> None:
        self.counts[what] += 1

    def unchecked(self, reason: str) -> None:
        self.reasons.append(reason)


class _Kept:
    """A place that keeps captures in memory (`fxminify.backends.capture.places.CapturePlace`)."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []

    def record(self, met: Recording) -> CaptureName:
        self.recordings.append(met)
        return len(self.recordings)

    def seen_again(self, capture: CaptureName, times: int, versions: Mapping[str, str]) -> None:
        pass

    def remember(self, backend: str, known: Signature, capture: CaptureName) -> None:
        pass

    def recorded(self, backend: str, known: Signature) -> CaptureName | None:
        return None


def _said(exc: BaseException) -> str:
    text = " ".join(f"{type(exc).__name__}: {exc}".split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
