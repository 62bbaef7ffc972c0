"""Identify a process by its number, its start time, and its machine.

A number alone is used again by a later process. Locks and directories name their process in this way, so that other
processes can see that it has ended.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """Return an identifier of this machine, or container, within which process numbers are unique."""
    booted = Path("/proc/sys/kernel/random/boot_id").read_text()
    return hashlib.sha256(f"{booted}{os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:16]


def started(pid: int) -> str:
    """Return the start time of a process, in ticks since boot. Empty for a process that has ended or is a zombie."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else rest[18]
