"""The time in which a process wants a processor and has none, as the kernel counts it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fxminify.backends.running.processor_wait import ProcessorWait, stretched

#: Two children that share one processor, and say when they begin.
BUSY = """
import os, subprocess, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
spin = [sys.executable, "-c", "print(flush=True)\\nwhile True: pass"]
for child in [subprocess.Popen(spin) for _ in range(2)]:
    child.wait()
"""
IDLE = "import time; print(flush=True); print(flush=True); time.sleep(600)"


@contextmanager
def running(program: str) -> Iterator[int]:
    """The process id of a Python that runs ``program``, which has printed two lines."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"\n", b"\n"]
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def waited(pid: int) -> tuple[float, float]:
    """Seconds that ``pid`` waited, and those that passed."""
    wait, began = ProcessorWait(pid), time.monotonic()
    total = 0.0
    for _ in range(10):
        time.sleep(0.1)
        total += wait.look()
    return total, time.monotonic() - began


def test_children_that_share_a_processor_wait_half_of_the_time() -> None:
    with running(BUSY) as pid:
        total, passed = waited(pid)
    assert 0.3 * passed < total <= passed


def test_who_sleeps_does_not_wait() -> None:
    with running(IDLE) as pid:
        total, passed = waited(pid)
    assert total < 0.1 * passed


def test_who_has_ended_does_not_wait() -> None:
    with running(IDLE) as pid:
        wait = ProcessorWait(pid)
    assert wait.look() == 0


def test_a_limit_is_stretched_by_what_was_waited_up_to_tenfold() -> None:
    assert stretched(2.0, 0.0) == 2
    assert stretched(2.0, 5.0) == 7
    assert stretched(2.0, 500.0) == 20
