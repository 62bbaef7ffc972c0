"""A measurement in a process of its own, forked from one that has everything it needs."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import traceback
from collections.abc import Callable
from typing import Any


def apart(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of ``measure`` in a forked process.

    The result is empty if the process died, and has an ``error`` if it raised.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory would hide the memory that a measurement needs
    gc.freeze()  # a collection can skip older objects
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            row = measure()
        except BaseException:  # noqa: BLE001 - the line of this run says what went wrong; the others go on
            row = {"error": traceback.format_exc(limit=-3)}
        with os.fdopen(write_end, "w") as f:
            f.write(json.dumps(row))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as f:
        text = f.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text) if text else {}
    return found
