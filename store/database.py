"""One open index: the engine, its transactions, and its schema version.

A `Database` gives out sessions: `reading` sees one consistent state, `writing` is one transaction that holds the
write lock from its start. Both turn every error of the database or the disk into a `StoreError`. A path opens a
SQLite file; a URL (``postgresql+psycopg://...``) opens a server, with the same tables and no side files.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy import inspect as reflect
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, QueuePool

from . import sqlite
from .errors import ForeignValue, StoreError, explain
from .tables import SCHEMA


class Database:
    """An open index. Use `open_database`."""

    def __init__(self, name: str, engine: Engine, path: Path | None, *, readonly: bool) -> None:
        self.name = name
        self.readonly = readonly
        #: Where the file lies, None for a server.
        self.path = path
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
            session.connection()  # takes the write lock before the first read
            yield session

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns what databases and disks raise into `StoreError`."""
        if os.getpid() != self._pid:
            # SQLite's locks do not survive a fork (https://sqlite.org/howtocorrupt.html, 2.6).
            raise StoreError(f"{self.name} was opened before this process was forked: open it again here")
        with _explained(self.name):
            yield

    def close(self) -> None:
        with _explained(self.name):
            self._engine.dispose(close=os.getpid() == self._pid)


def open_database(name: str, *, create: bool, readonly: bool, timeout: float) -> Database:
    """Open, make or upgrade the index called ``name``. Raises `StoreError`."""
    if "://" in name and not name.startswith("sqlite:"):
        return _open_server(name, readonly=readonly)
    given = make_url(name).database or "" if name.startswith("sqlite:") else name
    with _explained(given):
        path = Path(os.path.realpath(given))
        sqlite.check_path(path, given, create=create, readonly=readonly)
        if readonly:
            connect = sqlite.reader(path, timeout=timeout)
            # A fresh connection for each read: every one of them decides anew how it may look at the file.
            engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
        else:
            connect = sqlite.writer(path, create=create, timeout=timeout)
            engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_timeout=timeout)
        sqlite.listen(engine)
        database = Database(given, engine, path, readonly=readonly)
        try:
            _prepare_file(database, path, create=create, timeout=timeout)
        except BaseException:
            database.close()
            raise
        return database


def _prepare_file(database: Database, path: Path, *, create: bool, timeout: float) -> None:
    with database._engine.connect() as connection, connection.begin():
        revision = sqlite.inspect(connection, path, database.name)
    if revision is None and not create:
        name = database.name
        raise StoreError(f"{name} is empty: `minify capture --db {name} SCRIPT` writes the failures of a program there")
    if revision != SCHEMA:
        if database.readonly:
            raise StoreError(
                f"{database.name} was written by an older fxminify (schema {revision}): "
                f"`minify run --max-queries 0 {database.name}` brings it up to date"
            )
        with database._write.connect() as connection, connection.begin():
            if sqlite.inspect(connection, path, database.name) != SCHEMA:  # nobody else did it meanwhile
                sqlite.stamp(connection)
                _migrate(connection)
    if not database.readonly:
        sqlite.use_wal(database._engine, timeout)


def _open_server(url: str, *, readonly: bool) -> Database:
    try:
        parsed = make_url(url)
        engine = create_engine(parsed)
    except (ArgumentError, NoSuchModuleError, ImportError) as exc:
        raise StoreError(f"{url.split('@')[-1]} is no database that can be opened here: {exc}") from exc
    database = Database(parsed.render_as_string(hide_password=True), engine, None, readonly=readonly)
    with database.explained(), engine.begin() as connection:
        if reflect(connection).has_table("alembic_version"):
            revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            if str(revision) > SCHEMA:
                raise StoreError(
                    f"{database.name} was written by a newer fxminify: upgrade with `pip install -U fxminify`"
                )
        if not readonly:
            _migrate(connection)
    return database


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
