"""Calls inside calls, per thread: which are our own, and which exception has been recorded further in.

A failure passes every observed call around it on its way out, and must be recorded once: by the innermost one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Thread(threading.local):
    ours = False
    entries = 0
    recorded = (0, 0)  # id of the last exception recorded, and the number of the call that recorded it


_thread = _Thread()


def ours() -> bool:
    """Is this a call the capture made itself, which must not be observed?"""
    return _thread.ours


@contextmanager
def own_calls() -> Iterator[None]:
    """Calls inside the block are ours."""
    before, _thread.ours = _thread.ours, True
    try:
        yield
    finally:
        _thread.ours = before


def enter() -> int:
    """Number of the observed call that begins now; larger than those of the calls around it."""
    _thread.entries += 1
    return _thread.entries


def first_to_see(exc: BaseException, entry: int) -> bool:
    """Has no call inside call ``entry`` recorded ``exc``? From now on one has."""
    known, by = _thread.recorded
    if known == id(exc) and by >= entry:
        return False
    _thread.recorded = (id(exc), max(entry, _thread.entries))
    return True
