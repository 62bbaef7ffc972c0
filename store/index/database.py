"""One open index: the engine, its transactions, and its schema version.

A `Database` gives out sessions: `reading` sees one consistent state, `writing` is one transaction that holds the
write lock from its start. Both turn every error of the database or the disk into a `StoreError`. A path opens a
SQLite file; a URL (``postgresql+psycopg://...``) opens a server, with the same tables and no side files.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine
from sqlalchemy import inspect as reflect
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, Pool, QueuePool

from ..errors import ForeignValue, StoreError, explain
from . import sqlite
from .tables import SCHEMA

_ATTEMPTS = 50
#: The advisory lock of whoever writes to an index on a PostgreSQL server: any number that is ours.
_LOCK = 0x66786D696E696679
#: The first half of the advisory locks of `fxminify.store.index.claims`; the other half is the number of a capture.
CLAIMS = 0x66786D69


class Database:
    """An open index. Use `open_database`."""

    def __init__(self, name: str, engine: Engine, path: Path | None, *, readonly: bool) -> None:
        self.name = name
        self.readonly = readonly
        #: Where the file lies, None for a server.
        self.path = path
        #: What is read instead of it, where that is a copy.
        self.copy: tempfile.TemporaryDirectory[str] | None = None
        self._engine = engine
        self._write = engine.execution_options(write=True)
        self._pid = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session on one consistent state of the index."""
        with self.explained(), Session(self._engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One transaction: all of it is stored, or nothing."""
        if self.readonly:
            raise StoreError(f"{self.name} was opened for reading only")
        with self.explained(), Session(self._write, expire_on_commit=False) as session, session.begin():
            _lock(session.connection())
            yield session

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns what databases and disks raise into `StoreError`."""
        if os.getpid() != self._pid:
            # SQLite's locks do not survive a fork (https://sqlite.org/howtocorrupt.html, 2.6).
            raise StoreError(f"{self.name} was opened before this process was forked: open it again here")
        with _explained(self.name):
            yield

    def revision(self) -> str | None:
        """Check a SQLite file, see `fxminify.store.index.sqlite.inspect`; its schema version."""
        assert self.path is not None
        for attempt in range(_ATTEMPTS + 1):
            before = sqlite.state(self.path)
            try:
                with self.explained(), self._engine.connect() as connection, connection.begin():
                    return sqlite.inspect(connection, self.path, self.name)
            except StoreError:
                # Read as immutable while another process began to write: what looks damaged may be half-way.
                if attempt == _ATTEMPTS or sqlite.state(self.path) == before:
                    raise
                time.sleep(0.02)
        raise AssertionError

    def upgrade(self) -> None:
        """Make or upgrade the tables of a SQLite file, unless another process just did."""
        assert self.path is not None
        with self.explained(), self._write.connect() as connection, connection.begin():
            if sqlite.inspect(connection, self.path, self.name) != SCHEMA:
                sqlite.stamp(connection)
                _migrate(connection)

    def connect(self) -> Connection:
        """A connection of its own, outside transactions; closing it ends it."""
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()
        return connection

    def close(self) -> None:
        with _explained(self.name):
            self._engine.dispose(close=os.getpid() == self._pid)
            if self.copy is not None and os.getpid() == self._pid:
                self.copy.cleanup()


def open_database(name: str, *, create: bool, readonly: bool, timeout: float) -> Database:
    """Open, make or upgrade the index called ``name``. Raises `StoreError`."""
    given = name
    if "://" in name:
        url = _parse(name)
        if url.get_backend_name() != "sqlite":
            return open_server(url, create=create, readonly=readonly)
        given = url.database or ""
    with _explained(given):
        path = Path(os.path.realpath(given))
        sqlite.check_path(path, given, create=create, readonly=readonly)
        # A fresh connection for each read: every one of them decides anew how it may look at the file.
        reading = Database(given, _engine(sqlite.reader(path, timeout=timeout), NullPool), path, readonly=True)
        revision = reading.revision() if path.exists() else None  # looked at first, so a foreign file is not touched
        if revision is None and not create:
            raise StoreError(_empty(given))
        if readonly:
            return reading if revision == SCHEMA else _brought_up_to_date(reading, timeout)
        engine = _engine(sqlite.writer(path, create=create, timeout=timeout), QueuePool, max_overflow=-1)
        database = Database(given, engine, path, readonly=False)
        try:
            if revision != SCHEMA:
                database.upgrade()
            sqlite.use_wal(engine, timeout)
        except BaseException:
            database.close()
            raise
        return database


def _brought_up_to_date(old: Database, timeout: float) -> Database:
    """To read a file of an older schema, which may have come by mail and stays as it is: a copy of it is upgraded."""
    assert old.path is not None
    folder = sqlite.copied(old.path, timeout)
    copy = Path(folder.name) / "copy.db"
    engine = _engine(sqlite.writer(copy, create=False, timeout=timeout), NullPool)
    Database(old.name, engine, copy, readonly=False).upgrade()
    engine.dispose()
    reading = Database(old.name, _engine(sqlite.reader(copy, timeout=timeout), NullPool), copy, readonly=True)
    reading.revision()  # now that its tables must be ours
    reading.path, reading.copy = old.path, folder  # large storages lie beside the file itself
    return reading


def check_place(name: str, *, timeout: float) -> None:
    """Raise `StoreError` if ``name`` is, or can be, no index to write to. Makes nothing."""
    if "://" in name:
        open_database(name, create=True, readonly=True, timeout=timeout).close()
        return
    with _explained(name):
        path = Path(os.path.realpath(name))
        sqlite.check_path(path, name, create=True, readonly=False)
        if path.exists():
            database = Database(name, _engine(sqlite.reader(path, timeout=timeout), NullPool), path, readonly=True)
            database.revision()
            database.close()


def _engine(connect: sqlite.Connect, pool: type[Pool], **options: Any) -> Engine:
    engine = create_engine("sqlite://", creator=connect, poolclass=pool, **options)
    sqlite.listen(engine)
    return engine


def open_server(url: URL, *, create: bool, readonly: bool) -> Database:
    """Open, make or upgrade the index that a database server keeps; with both flags, only see whether that can be."""
    name = url.render_as_string(hide_password=True)
    try:
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ImportError) as exc:
        raise StoreError(f"{name} cannot be opened here ({exc}): install the driver it names") from exc
    database = Database(name, engine, None, readonly=readonly)
    with database.explained(), engine.begin() as connection:
        revision = None
        if reflect(connection).has_table("alembic_version"):
            revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if revision is None and not create:
            raise StoreError(_empty(name))
        if revision is not None and str(revision) > SCHEMA:
            raise StoreError(f"{name} was written by a newer fxminify: upgrade with `pip install -U fxminify`")
        if revision != SCHEMA:
            if readonly and not create:
                raise StoreError(_older(name, revision))
            if not readonly:
                _lock(connection)
                _migrate(connection)
    return database


def _empty(name: str) -> str:
    return f"{name} is empty: `minify capture --db {shlex.quote(name)} SCRIPT` writes a program's failures there"


def _older(name: str, revision: str | None) -> str:
    return (
        f"{name} was written by an older fxminify (schema {revision}): "
        f"`minify run {shlex.quote(name)}` brings it up to date"
    )


def _parse(name: str) -> URL:
    try:
        return make_url(name)
    except (ArgumentError, ValueError) as exc:
        raise StoreError(f"{name.rpartition('@')[2]} is neither a file nor the URL of a database: {exc}") from exc


def _lock(connection: Connection) -> None:
    """One writer at a time: SQLite's transactions begin so, a server is asked for a lock that ends with this one."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def _migrate(connection: Connection) -> None:
    """Bring the schema to `SCHEMA`, inside the transaction of ``connection``."""
    from alembic import command  # heavy, and needed only for a new or an old file
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, sqlite3.Error, OSError, ForeignValue) as exc:
        raise StoreError(explain(exc, name)) from exc
