"""A PostgreSQL server of one's own, on a Unix socket in a folder, to measure on and to kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

#: Where Debian's packages put the server, which is not on ``PATH`` there.
DEBIAN = Path("/usr/lib/postgresql")
#: ``initdb`` and the server refuse to run as root.
UNPRIVILEGED = "nobody" if os.geteuid() == 0 else None
#: Seconds in which the processes of a killed server end.
_ENDING = 30.0


class PostgresMissing(Exception):
    """PostgreSQL is not installed. The message is for the user."""


def program(name: str) -> str | None:
    """Return the path of a program of PostgreSQL, of the newest installed version."""
    newest_first = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), reverse=True)
    return next(map(str, newest_first), None) or shutil.which(name)


class PostgresServer:
    """A server on a Unix socket in ``folder``. Raises `PostgresMissing`."""

    def __init__(self, folder: str) -> None:
        found = program("initdb"), program("pg_ctl")
        if None in found:
            raise PostgresMissing("PostgreSQL is not installed")
        initdb, self._control = map(str, found)
        self._folder, self._data = folder, f"{folder}/data"
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        if UNPRIVILEGED is not None:
            shutil.chown(folder, UNPRIVILEGED)
        self._run(initdb, "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses='' -c fsync=off -c max_connections=100"
        self._run(self._control, "-D", self._data, "-l", f"{self._folder}/log", "-w", "-o", options, "start")

    @property
    def pid(self) -> int:
        """Its first process."""
        return int(Path(self._data, "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """End it without a word to its clients, and without what it would write at its end."""
        self._run(self._control, "-D", self._data, "-m", "immediate", "stop")

    def kill_by_signal(self) -> None:
        """Kill its first process, whose others then end by themselves."""
        first = psutil.Process(self.pid)
        family = [first, *first.children(recursive=True)]
        first.send_signal(signal.SIGKILL)
        end = time.monotonic() + _ENDING
        while any(_lives(process) for process in family):
            if time.monotonic() > end:
                raise TimeoutError(f"processes of the PostgreSQL server in {self._folder} do not end")
            time.sleep(0.02)
        # Without a parent that reaps the first process, the next one would believe that it still runs.
        for left in (Path(self._data, "postmaster.pid"), *Path(self._folder).glob(".s.PGSQL.*.lock")):
            left.unlink(missing_ok=True)

    def _run(self, *command: str) -> None:
        subprocess.run(
            command, cwd=self._folder, user=UNPRIVILEGED, check=True, stdout=subprocess.DEVNULL, timeout=120,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        )  # fmt: skip


@contextmanager
def running() -> Iterator[PostgresServer]:
    """A new server, which ends with the block. Raises `PostgresMissing`."""
    # The temporary folders of test runners are closed to other users, and too long for the path of a socket.
    with tempfile.TemporaryDirectory(prefix="fxm", dir="/tmp") as folder:
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _lives(process: psutil.Process) -> bool:
    """Return whether ``process`` runs. A zombie, which a container may never reap, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
