"""Whether a process is still there."""

from __future__ import annotations

import psutil


def alive(pid: int) -> bool:
    """Whether process ``pid`` has not ended; one that nobody has waited for yet has."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
