"""Verification: run a script several times, as its receiver would, and say whether it shows the expected failure.

Each run is a process of its own in an empty directory; see `processes`. The runs are parallel, three on two processors.
All but the last go through `runner`, which reports the exception as data. The last one is plainly ``python repro.py``,
and its exit status must agree.

That one is a fresh process, the others are forked after the script's imports. What forked runs show counts only if all
of them show the same and the fresh one agrees. Otherwise every run is done again in a fresh process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..backends.provenance import variables
from ..backends.running import deaths
from ..store import codec
from ..store.failure import Failure, FailureKind, Phase
from ..store.private_values import here
from ..store.scrubbing import masked_failure
from ..store.signature import signature
from .processes import SCRIPT, EndedRun, Processes, Script
from .tracebacks import phase_of_crash

_TAIL = 4000


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification. ``shown`` of ``runs`` runs showed the failure.

    ``failures`` has the failure of each run, None for a run that passed. ``mismatch`` describes the runs that did
    not show it. ``log`` has the end of the output of each run. ``passed`` runs ended without an error.
    ``blocked_reason`` is the reason why a run never reached the compiler. ``versions`` are the versions of packages
    that a run imported.
    """

    shown: int
    runs: int
    failures: tuple[Failure | None, ...] = ()
    mismatch: str = ""
    log: str = ""
    passed: int = 0
    blocked_reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def with_more(self, other: Verification) -> Verification:
        """Combine these runs with the runs of ``other``, of the same script."""
        return Verification(
            self.shown + other.shown, self.runs + other.runs, (*self.failures, *other.failures),
            self.mismatch or other.mismatch, f"{self.log}\n{other.log}", self.passed + other.passed,
            self.blocked_reason or other.blocked_reason, {**other.versions, **self.versions},
        )  # fmt: skip


def verify(
    script: str,
    shows: Callable[[Failure], bool],
    *,
    runs: int = 3,
    fresh: int = 1,
    again: bool = True,
    timeout: float = 300.0,
    search_path: Sequence[str] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
    embedded: str = "",
    processes: Processes | None = None,
) -> Verification:
    """Run the text ``script``. ``shows`` accepts the failure that it must show.

    At least ``fresh`` runs are fresh processes: 0 for a script that was verified before, ``runs`` for a failure that
    comes and goes. ``again``: what forked runs show is found out again in fresh processes unless all agree. ``files``
    lie beside the script. A run that takes longer than ``timeout`` seconds counts as a hang. ``embedded`` is the name
    of the file from which source in the script was taken, for frames. ``processes`` can share the imports with other
    scripts; another thread can end the runs through it, then `fxminify.repro_templates.processes.Stopped` is raised.
    Ctrl-C ends them, too.
    """
    what = Script(script, timeout, search_path, files)

    def told(ended: EndedRun) -> Failure | None:
        readings = [_at_home(failure, embedded) for failure in _readings(ended, timeout)]
        masked = [masked_failure(failure, here().mask) for failure in readings]
        return next(filter(shows, masked), next(iter(masked), None))

    reports = max(runs - 1, 1)
    forked = fresh <= 1 and (processes is not None or reports > 1)
    with Processes() if processes is None else nullcontext(processes) as where:
        reported, plainly = _run(what, reports, where, forked=forked, fork_plain=forked and not fresh)
        failures = [told(ended) for ended in reported]
        settled = _agree(failures, plainly) and (fresh or (failures[0] is not None and shows(failures[0])))
        if again and not settled and any(ended.forked for ended in (*reported, plainly)):
            reported, plainly = _run(what, reports, where)
            failures = [told(ended) for ended in reported]
    seen = [failure for failure in failures if failure is not None and shows(failure)]
    others = [pair for pair in zip(reported, failures, strict=True) if pair[1] not in seen]
    mismatch = _mismatch(*others[0]) if others else ""
    log = "\n".join([*(_log("reported", ended) for ended in reported), _log("plain", plainly)])
    passed = failures.count(None) + (plainly.code == 0) if runs > 1 else int(plainly.code == 0)
    blocked = next((text for ended in reported if (text := _blocked(ended))), "")
    blocked = here().mask(blocked)
    versions = next((found for ended in reported if (found := _versions(ended.report))), {})
    if not seen:
        return Verification(0, runs, tuple(failures), mismatch, log, passed, blocked, versions)
    if not (agrees := _agrees(plainly, seen[-1])):
        mismatch = mismatch or f"run plainly, it ends with {_status(plainly)}"
    count = int(agrees) if runs == 1 else len(seen) + agrees
    return Verification(count, runs, tuple(failures), mismatch, log, passed, blocked, versions)


def _run(
    script: Script, reports: int, processes: Processes, *, forked: bool = False, fork_plain: bool = False
) -> tuple[list[EndedRun], EndedRun]:
    """``reports`` runs through `runner`, and a plain one."""

    def once(plain: bool) -> EndedRun:
        return processes.run(script, plain=plain, forked=fork_plain if plain else forked)

    with ThreadPoolExecutor(min(reports + 1, (3 * len(os.sched_getaffinity(0)) + 1) // 2)) as together:
        try:
            plainly, *reported = together.map(once, [True] + [False] * reports)
        except BaseException:
            processes.stop()
            raise
    return reported, plainly


def _agree(failures: Sequence[Failure | None], plainly: EndedRun) -> bool:
    """Whether all runs through `runner` showed the same, and the plain run does not contradict them."""
    first = failures[0]
    if first is None:
        return not any(failures) and plainly.code == 0
    same = all(failure is not None and signature(failure) == signature(first) for failure in failures)
    return same and _agrees(plainly, first)


def failure_of_run(ended: EndedRun, timeout: float) -> Failure | None:
    """Return the failure of a run through `runner`, or None if the script ended without an error."""
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


def _blocked(ended: EndedRun) -> str:
    """Return why a run could not show anything, or an empty text if it could."""
    if ended.code == variables.CODE:
        lines = ended.output.splitlines()
        said = (line.removeprefix(variables.CANNOT_RUN) for line in lines if line.startswith(variables.CANNOT_RUN))
        return next(said, f"it ends with exit code {ended.code}")
    return str((ended.report or {}).get("blocked_reason", ""))


def _readings(ended: EndedRun, timeout: float) -> list[Failure]:
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


def _agrees(ended: EndedRun, failure: Failure) -> bool:
    """Whether the plain run ended in the way in which this failure ends a process."""
    if failure.kind == "hang":
        return ended.code in (None, -signal.SIGALRM)
    if failure.signal is not None:
        return ended.code == -failure.signal
    if failure.kind == "crash":
        return f"exit {ended.code}" == failure.type
    return ended.code == 1 and failure.type.rpartition(".")[2] in ended.output


def _versions(report: Mapping[str, object] | None) -> dict[str, str]:
    found = (report or {}).get("versions")
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def _mismatch(ended: EndedRun, failure: Failure | None) -> str:
    if ended.code == variables.CODE:
        return f"{variables.CANNOT_RUN}{_blocked(ended)}"
    return f"it ends with {_status(ended)}" if failure is None else f"it shows another failure: {failure.headline()}"


def _status(ended: EndedRun) -> str:
    if ended.code is None:
        return "no answer in time"
    return deaths.signal_name(-ended.code) if ended.code < 0 else f"exit code {ended.code}"


def _log(kind: str, ended: EndedRun) -> str:
    return f"[{kind}: {_status(ended)}, {ended.seconds:.1f} s]\n{here().mask(ended.output)[-_TAIL:]}"
