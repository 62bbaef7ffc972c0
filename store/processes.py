"""Which process is which: a number, when it began, and the machine on which it has that number.

A number alone is taken again by another process. Locks and directories name their process in this way, so that others
can tell that it has ended.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """Tells apart the machines, and containers of one machine, whose processes have numbers of their own."""
    booted = Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256(f"{booted}{os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:16]


def started(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty if there is none, or only its exit code is left."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else rest[18]
