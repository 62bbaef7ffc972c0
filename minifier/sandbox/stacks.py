"""Stack samples of a busy worker: where it hangs, and whether another one hangs in the same place.

A signal has the worker write its Python stack to its standard error, whatever it is doing, by ``faulthandler``. Calls
that are on every sample have not returned between the first and the last of them. The innermost of these is where a
hang hangs: its *anchor*. A worker whose samples all have the anchor of the captured hang has got stuck like it.

The signal also wakes code in C that waits, and some takes that for an error. So another failure of a worker that was
sampled is looked at again without samples (`is_doubtful`).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...backends.running.deaths import fault_frames

#: Seconds between two samples, and how many in a row must have the anchor.
PERIOD = 0.4
ENOUGH = 5
#: The share of its time limit after which a worker is sampled, and the seconds that pass at least.
SHARE, LEAST = 0.35, 1.0
#: The most samples that are kept.
MOST = 40
SIGNAL = signal.SIGUSR2

#: The functions of a stack, as ``file:function``, outermost first.
Stack = tuple[str, ...]


def answer() -> None:
    """In a worker: answer samples from now on."""
    faulthandler.register(SIGNAL, 2, all_threads=False)


def common(stacks: Sequence[Stack]) -> Stack:
    """The calls at the outer end of all of ``stacks``."""
    alike = []
    for calls in zip(*stacks, strict=False):
        if len(set(calls)) > 1:
            break
        alike.append(calls[0])
    return tuple(alike)


def anchor(stacks: Sequence[Stack]) -> str:
    """Return the call in which the sampled worker hung: the innermost call of all ``stacks``. Empty for too few
    samples.
    """
    alike = common(stacks) if len(stacks) >= ENOUGH else ()
    return alike[-1] if alike else ""


@dataclass(frozen=True, slots=True)
class StackSampling:
    """Have a worker sampled, from the given ``share`` of its time limit on. With an ``anchor`` the worker is ended as
    soon as it has got stuck there."""

    anchor: str = ""
    share: float = SHARE


def is_doubtful(stacks: Sequence[Stack], *, hangs: bool, passes: bool) -> bool:
    """Whether samples may have changed how a run ended, which neither ``hangs`` nor ``passes``."""
    return bool(stacks) and not hangs and not passes


class StackWatch:
    """Samples the worker ``pid``, whose standard error goes to ``output``, and who may take ``limit`` seconds."""

    def __init__(self, sampling: StackSampling, pid: int, output: Path, limit: float) -> None:
        self.stacks: list[Stack] = []
        self._anchor = sampling.anchor
        self._pid = pid
        self._output = output
        self._read = 0
        self._begin = max(LEAST, sampling.share * limit)
        self._last = 0.0

    def is_stuck(self, seconds: float) -> bool:
        """Whether the worker hangs at the anchor. ``seconds`` is the time in which it could run so far.

        Called now and then; each call reads the sample before and may take another one.
        """
        if seconds < self._begin:
            return False
        if (now := time.monotonic()) - self._last < PERIOD:
            return False
        if self._last:
            self._take()
        self._last = now
        with suppress(ProcessLookupError):
            os.kill(self._pid, SIGNAL)
        latest = self.stacks[-ENOUGH:]
        return bool(self._anchor) and len(latest) == ENOUGH and self._anchor in common(latest)

    def finish(self) -> tuple[Stack, ...]:
        """All samples that are kept, once the worker has answered or ended."""
        if self._last:
            self._take()
        return tuple(self.stacks)

    def _take(self) -> None:
        """Read the stack that was written since the last look; keep it where it is whole."""
        with suppress(OSError), self._output.open("rb") as file:
            file.seek(self._read)
            text = file.read()
            self._read += len(text)
            frames, _ = fault_frames(text.decode("utf-8", "replace"))
            self.stacks.append(tuple(f"{frame.file}:{frame.function}" for frame in frames))
            del self.stacks[:-MOST]
