"""Who works on a capture: a claim that ends with the process that made it, so that nobody has to clean up after one.

Beside a SQLite file lies ``DB-claims`` while something is claimed: the byte at the number of a capture is locked by
the process at work on it. A PostgreSQL server keeps such locks itself, for as long as the connection is there.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from sqlalchemy import Connection

from .database import CLAIMS, Database

#: What a file system answers that has no locks: then there are no claims, and two processes may do the same work.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EROFS, errno.EACCES, errno.EPERM}


class Claims:
    """The claims of one process on captures of one index. A context manager: all of them end with it."""

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
            if _lock(self._file, 0, 0):  # nobody else is at work: whoever opened the file meanwhile sees it go
                _place(self._database.path).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def take(self, capture_id: int) -> bool:
        """Claim a capture; False where another process is at work on it. Taking it twice is taking it."""
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
                os.close(self._file)  # the last one at work took the file away after it was opened here
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
    """Lock ``length`` bytes from ``start`` (0: all that follow) for this process, or say that another has them."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True
