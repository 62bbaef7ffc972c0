"""Measure how long a process was ready to run but had no processor. This time is not part of a hang.

The kernel counts it for each thread (https://docs.kernel.org/scheduler/sched-stats.html). Without that count, as
outside of Linux, the time is 0. Nothing here imports torch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

#: The most by which a time limit is stretched on a busy machine.
MOST_STRETCH = 10.0


class ProcessorWait:
    """The waiting time of a process and all that it started.

    Between two looks, the thread counts that waited longest: a program waits for its compiler, which waits for a
    processor. What waits beside it does not count again.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited = dict(_waited(pid))
        self._looked = time.monotonic()

    def look(self) -> float:
        """Seconds that were waited since the last look, or since this object was made; at most the time that passed."""
        waited, now = dict(_waited(self._pid)), time.monotonic()
        longest = max((new - self._waited.get(thread, 0) for thread, new in waited.items()), default=0)
        passed, self._waited, self._looked = now - self._looked, waited, now
        return min(longest / 1e9, passed)


def stretched(limit: float, waited: float) -> float:
    """The time limit, in seconds, of what has waited so long for a processor."""
    return min(limit + waited, MOST_STRETCH * limit)


def _waited(pid: int) -> Iterator[tuple[str, int]]:
    """Each thread of a process and of its descendants, and the nanoseconds that it has waited since it began."""
    try:
        threads = [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    except OSError:  # it has ended, or there is no such directory here
        return
    for thread in threads:
        try:
            yield thread, int(_read(f"{thread}/schedstat").split()[1])
            children = _read(f"{thread}/children").split()
        except (OSError, ValueError, IndexError):
            continue
        for child in children:
            yield from _waited(int(child))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)
