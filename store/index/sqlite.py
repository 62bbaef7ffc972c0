"""SQLite: opens files, and checks them before they are read.

* A file may come from anyone. So its schema is compared with ours before the first SELECT: a view, a trigger, a virtual
  table, a generated column or a CHECK would run expressions of the file's author.
* Reading never changes anything. It makes no side file, and a file in a read-only directory can be opened
  (``immutable=1``) unless there is an unfinished write-ahead log.
* Never open the file with `open()`: closing it would drop this process's locks on it
  (https://sqlite.org/howtocorrupt.html, 2.2). `os.stat` is harmless.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from .. import errors, outputs
from ..errors import StoreError
from ..temporary import prefix
from .tables import SCHEMA, Base

#: "fxmn", in the header of every file we make (https://sqlite.org/pragma.html#pragma_application_id).
APPLICATION_ID = 0x66786D6E
#: The most bytes of a value or row that SQLite reads or writes.
MAX_VALUE = 64 << 20

Connect = Callable[[], sqlite3.Connection]

#: Seconds after which a process that waits for the write lock looks again, at least and at most.
_LOOKS = (0.0005, 0.004)
_SIDE_FILES = ("-wal", "-shm", "-journal")
#: Words of DDL that evaluate expressions. Our own tables have none of them.
_EVALUATES = re.compile(r"(?i)\b(check|generated|as|where|collate|virtual|default\s*\()\b|default\s*\(")


def check_path(path: Path, name: str, *, create: bool, readonly: bool) -> None:
    """Raise `StoreError` if the path is missing, not writable or no file, before SQLite opens it."""
    parent, quoted = path.parent, shlex.quote(name)
    if path.is_dir():
        raise StoreError(f"{name} is a directory: give a file, for example {os.path.join(name, 'repro.db')}")
    if not path.exists():
        if not create:
            raise StoreError(
                f"{name} does not exist: `minify capture --db {quoted} SCRIPT` runs a program and makes it on a failure"
            )
        if not parent.is_dir():
            raise StoreError(
                f"{name} cannot be made, there is no directory {parent}: make it (mkdir -p) or name another"
            )
    elif not path.is_file() or 0 < path.stat().st_size < 100:  # SQLite takes the very shortest files for empty ones
        raise StoreError(errors.foreign(name))
    for suffix in _SIDE_FILES:
        if os.path.islink(f"{path}{suffix}"):
            raise StoreError(f"{name}{suffix} is a symbolic link, which fxminify never makes: remove it if it is yours")
    if path.exists() and not _may(path, os.R_OK):
        raise StoreError(f"{name} may not be read by you: ask its owner, or chmod it")
    if not readonly and not (_may(parent, os.W_OK) and (not path.exists() or _may(path, os.W_OK))):
        raise StoreError(errors.read_only(name))


def state(path: Path) -> tuple[object, ...]:
    """A value that changes when a writer changes the file."""
    with suppress(FileNotFoundError):
        stat = path.stat()
        sides = [os.path.exists(f"{path}{suffix}") for suffix in _SIDE_FILES]
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns, *sides)
    return ()


def is_index(path: Path) -> bool:
    """Whether the header of a file says that it is ours, or the file is damaged. Only the header is read."""
    try:
        connection = _connect(f"{Path(os.path.realpath(path)).as_uri()}?mode=ro&immutable=1", 1.0)
    except sqlite3.Error:
        return False
    try:
        return bool(connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,))
    except UnicodeDecodeError:  # the message about a damaged definition repeats its bytes
        return True
    except sqlite3.Error as error:
        return error.sqlite_errorname == "SQLITE_CORRUPT"
    finally:
        connection.close()


def writer(path: Path, *, create: bool, timeout: float) -> Connect:
    """A function that opens connections that read and write, and wait ``timeout`` seconds for another writer."""
    uri = f"{path.as_uri()}?mode={'rwc' if create else 'rw'}"
    return lambda: _prepare(_connect(uri, timeout), readonly=False)


def reader(path: Path, *, timeout: float) -> Connect:
    """Return a function that opens connections that only read and make no files.

    If there are side files, a writer is or was active, and its log is shared. Without them the file has no writer,
    so the main file is complete and is read as immutable, which makes no side files. If a log cannot be shared
    because its directory is read-only, it is copied with the file, once, and the copy is read.
    """
    copies: list[tempfile.TemporaryDirectory[str]] = []

    def connect() -> sqlite3.Connection:
        if not copies:
            connection = _open_reader(path, timeout)
            if connection is not None:
                return _prepare(connection, readonly=True)
            copies.append(_copy(path, timeout))
        return _prepare(_connect(f"{Path(copies[0].name, 'copy.db').as_uri()}?mode=ro", timeout), readonly=True)

    return connect


def _open_reader(path: Path, timeout: float) -> sqlite3.Connection | None:
    """A connection that changes nothing, None if that needs a copy of the file."""
    uri = f"{path.as_uri()}?mode=ro"
    left = [suffix for suffix in _SIDE_FILES if os.path.exists(f"{path}{suffix}")]
    if not left:
        return _connect(f"{uri}&immutable=1", timeout)
    connection = _connect(uri, timeout)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as exc:
        connection.close()
        if not exc.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise
        if all(os.path.getsize(f"{path}{suffix}") == 0 for suffix in left if suffix != "-shm"):
            return _connect(f"{uri}&immutable=1", timeout)
        return None
    return connection


def _copy(path: Path, timeout: float) -> tempfile.TemporaryDirectory[str]:
    """A directory with ``copy.db``: the file, including the content of its log."""
    folder = tempfile.TemporaryDirectory(prefix=prefix("fxminify-copy-"))
    copy = Path(folder.name) / "copy.db"
    for suffix in ("", "-wal", "-journal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    connection = _connect(f"{copy.as_uri()}?mode=rw", timeout)
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    return folder


def back_up(path: Path, copy: Path, timeout: float) -> None:
    """Write one consistent state of the file to ``copy``. If ``copy`` exists, it is complete."""
    with outputs.draft(copy) as draft:
        source, target = reader(path, timeout=timeout)(), _connect(f"{draft.as_uri()}?mode=rwc", timeout)
        try:
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
        finally:
            target.close()
            source.close()
        shutil.copymode(path, draft)
        os.replace(draft, copy)


def empty(path: Path, tables: Sequence[str], timeout: float) -> None:
    """Delete all rows of these tables and overwrite their free pages. The file must have no other users."""
    connection = _connect(f"{path.as_uri()}?mode=rw", timeout)
    try:
        connection.execute("PRAGMA secure_delete=ON")
        for table in tables:
            connection.execute(f"DELETE FROM {table}")
    finally:
        connection.close()


def _connect(uri: str, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, *, readonly: bool) -> sqlite3.Connection:
    """The settings of "Defense Against The Dark Arts" (https://sqlite.org/security.html), and ours."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE + 4096)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    if readonly:
        connection.execute("PRAGMA query_only=ON")
    return connection


def listen(engine: Engine) -> None:
    """Begin transactions explicitly. A writing one takes the write lock at once, so what it reads stays valid."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("write", False):
            _begin_to_write(connection)
        else:
            connection.exec_driver_sql("BEGIN")


def _begin_to_write(connection: Connection) -> None:
    """Take the write lock, for which SQLite itself looks less and less often: of several processes that want it, some
    would wait for very long."""
    raw: Any = connection.connection.driver_connection
    (patience,) = raw.execute("PRAGMA busy_timeout").fetchone()
    end = time.monotonic() + patience / 1000
    raw.execute("PRAGMA busy_timeout=0")
    try:
        while time.monotonic() < end:
            try:
                raw.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as exc:
                if not exc.sqlite_errorname.startswith("SQLITE_BUSY"):
                    break
            time.sleep(random.uniform(*_LOOKS))
    finally:
        raw.execute(f"PRAGMA busy_timeout={patience}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # it says what is wrong


def use_wal(engine: Engine, timeout: float) -> None:
    """Switch to a write-ahead log, which is a setting of the file. No other process may use the file meanwhile."""
    deadline = time.monotonic() + timeout
    raw = engine.raw_connection()
    try:
        while True:
            try:
                raw.cursor().execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as exc:
                if not exc.sqlite_errorname.startswith("SQLITE_BUSY"):
                    raise
                if time.monotonic() > deadline:
                    return  # works without, only slower; the next one to open the file tries again
                time.sleep(0.02)
    finally:
        raw.close()


def stamp(connection: Connection) -> None:
    connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")


def inspect(connection: Connection, path: Path, name: str) -> str | None:
    """Check that the file is ours, complete and harmless. Returns its revision, None for an empty file.

    Raises `StoreError` for anything else, before any of the file's tables was read.
    """
    application = _pragma(connection, "application_id")
    rows = connection.exec_driver_sql("SELECT type, name, rootpage, sql FROM sqlite_master").all()
    if application != APPLICATION_ID:
        if application == 0 and not rows:
            return None
        raise StoreError(errors.foreign(name))
    _check_size(connection, path, name)
    tables = set()
    for kind, item, root, sql in rows:
        if kind not in ("table", "index") or type(root) is not int or root <= 0 or type(item) is not str:
            raise StoreError(_tampered(name, f"a {kind} named {item!r}"))
        if sql is not None and _EVALUATES.search(str(sql)):
            raise StoreError(_tampered(name, f"an expression in the definition of {item!r}"))
        if kind == "table":
            tables.add(item)
    if "alembic_version" not in tables:
        raise StoreError(_tampered(name, "no schema version"))
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if type(revision) is not str or revision > SCHEMA:
        raise StoreError(
            f"{name} was written by a newer fxminify (schema {str(revision)[:40]!r}, this one knows {SCHEMA}): "
            "upgrade with `pip install -U fxminify`"
        )
    if not re.fullmatch(r"\d{4}", revision) or int(revision) < 1:
        raise StoreError(_tampered(name, f"the schema version {revision[:40]!r}"))
    if revision == SCHEMA:
        check_schema(connection, name)
    return revision


def check_schema(connection: Connection, name: str) -> None:
    """Raise `StoreError` unless there are our tables with our columns, our indexes, and nothing else."""
    ours = Base.metadata.tables
    expected = {table: ("table", table) for table in [*ours, "alembic_version"]}
    expected |= {str(index.name): ("index", table.name) for table in ours.values() for index in table.indexes}
    for item, kind, table in connection.exec_driver_sql("SELECT name, type, tbl_name FROM sqlite_master").all():
        automatic = kind == "index" and item.startswith("sqlite_autoindex_") and table in expected
        statistics = item in ("sqlite_stat1", "sqlite_stat4")
        if not automatic and not statistics and expected.get(item) != (kind, table):
            raise StoreError(_tampered(name, f"a {kind} named {item!r}"))
    for table, model in ours.items():
        columns = {}
        for row in connection.exec_driver_sql(f'PRAGMA table_xinfo("{table}")').all():
            columns[row[1]] = row[6]
        if columns != {column.name: 0 for column in model.columns}:
            raise StoreError(_tampered(name, f"other columns in {table}"))


def _check_size(connection: Connection, path: Path, name: str) -> None:
    """Raise `StoreError` for a truncated file. SQLite does not notice that the last page is too short."""
    expected = _pragma(connection, "page_count") * _pragma(connection, "page_size")
    with suppress(FileNotFoundError):
        if os.path.getsize(f"{path}-wal") > 0:
            return  # pages may still be in the log
    if path.stat().st_size < expected:
        raise StoreError(errors.damaged(name))


def _pragma(connection: Connection, pragma: str) -> int:
    value = connection.exec_driver_sql(f"PRAGMA {pragma}").scalar()
    return value if isinstance(value, int) else 0


def _tampered(name: str, what: str) -> str:
    return f"{name} holds {what}, which fxminify never writes: it is damaged or was tampered with, do not use it"


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
