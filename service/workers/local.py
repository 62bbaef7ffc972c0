"""The worker that `minify serve --work N` starts beside the server: a `minify work` in a process of its own.

``python -m fxminify.service.workers.local`` reads what to do as JSON from its standard input, since others can see
arguments, and ends when the process does that started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass

#: The exit code of a worker that can never work here.
_CANNOT = 2
#: Seconds that the worker has to give back its tasks in: longer than it gives its drivers.
_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class LocalJob:
    """``drivers`` tasks of the index ``store`` at a time, while the process ``server`` is there. ``as_json`` is of
    its log."""

    store: str
    drivers: int
    server: int
    as_json: bool = False


class LocalWorker:
    """The process that works on ``store`` with so many ``drivers``. It begins at once."""

    def __init__(self, store: str, drivers: int, *, as_json: bool = False) -> None:
        self._job = LocalJob(store, drivers, os.getpid(), as_json)
        self._process = self._start()
        self._is_over = False

    def revive(self) -> str:
        """Start it again where it has ended, unless it can never work here. Returns a sentence if it has just ended."""
        code = self._process.poll()
        if code is None or self._is_over:
            return ""
        if code == _CANNOT:
            self._is_over = True
            return "the worker cannot work here, and is not started again"
        self._process = self._start()
        return f"the worker ended with exit code {code}, and is started again"

    def end(self) -> None:
        """End it: its tasks are given back."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "fxminify.service.workers.local"], stdin=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # one that is gone already is noticed by its exit code
            process.stdin.write(json.dumps(asdict(self._job)))
        return process


def main() -> int:
    """Work until SIGTERM, or until the server is gone."""
    from ...minifier.sandbox.processes import die_with_parent
    from ...store.errors import StoreError
    from .installation import NotServing
    from .log import TaskLog
    from .worker import WorkOptions, work

    job = LocalJob(**json.loads(sys.stdin.read()))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    die_with_parent(job.server, signal.SIGTERM)
    log = TaskLog(as_json=job.as_json)
    try:
        work(job.store, WorkOptions(drivers=job.drivers), log)
    except KeyboardInterrupt:
        return 143
    except (StoreError, NotServing) as error:
        log("ended", str(error))
        return _CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
