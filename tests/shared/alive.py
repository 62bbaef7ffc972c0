"""Whether a process is still there."""

from __future__ import annotations

import psutil


def alive(pid: int) -> bool:
    """Return whether process ``pid`` runs. A zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
