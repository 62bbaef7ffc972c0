"""Claims of processes on captures that they work on. A claim ends with its process, so none needs to be cleaned up.

For a SQLite file there is a file ``DB-claims`` while something is claimed. The process that works on a capture locks
the byte at the number of the capture. A PostgreSQL server holds such locks itself, as long as the connection lasts.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from sqlalchemy import Connection

from .database import CLAIMS, Database

#: Errors of a file system without locks. Then there are no claims, and two processes may do the same work.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EROFS, errno.EACCES, errno.EPERM}


class Claims:
    """The claims of one process on captures of one index; a context manager, which ends them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._file: int | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *error: object) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._file is not None:
            assert self._database.path is not None
            if _lock(
                self._file, 0, 0
            ):  # nobody else is at work; a process that opened the file since notices that it is gone
                _place(self._database.path).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def take(self, capture_id: int) -> bool:
        """Claim a capture. Returns False if another process works on it. A second claim by this process succeeds."""
        if self._database.path is None:
            return self._ask_server(capture_id)
        try:
            while True:
                if self._file is None:
                    self._file = os.open(_place(self._database.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                if not _lock(self._file, capture_id, 1):
                    return False
                if os.fstat(self._file).st_nlink:
                    return True
                os.close(self._file)  # another process removed the file after it was opened here
                self._file = None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if self._file is not None:
                os.close(self._file)
                self._file = None
                _place(self._database.path).unlink(missing_ok=True)
            return True

    def give_back(self, capture_id: int) -> None:
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, capture_id)
        if self._connection is not None:
            self._connection.exec_driver_sql(f"SELECT pg_advisory_unlock({CLAIMS}, {int(capture_id)})")

    def _ask_server(self, capture_id: int) -> bool:
        with self._database.explained():
            if self._connection is None:
                self._connection = self._database.connect()
            if self._connection.dialect.name != "postgresql":
                return True
            query = f"SELECT pg_try_advisory_lock({CLAIMS}, {int(capture_id)})"
            return bool(self._connection.exec_driver_sql(query).scalar())


def _place(path: Path) -> Path:
    return path.with_name(f"{path.name}-claims")


def _lock(file: int, start: int, length: int) -> bool:
    """Lock ``length`` bytes from ``start`` (0: all that follow). Returns False if another process has one of them."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True
