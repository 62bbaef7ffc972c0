"""An open index: the engine, its transactions, and its schema version.

A `Database` makes sessions: `reading` sees one consistent state, `writing` is one transaction. Both raise a
`StoreError` for every error of the database or the disk. A path opens a SQLite file, which has one writer at a
time. A URL (``postgresql+psycopg://...``) opens a server, with the same tables and no side files. There writers
wait for each other only at the same row, and `write` repeats a transaction that conflicts with another writer.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, create_engine, func, select, update
from sqlalchemy import inspect as reflect
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, Pool, QueuePool

from ..errors import ForeignValue, LeaseLost, StoreError, UnknownRow, UnreadableRow, explained
from . import sqlite
from .logs import ENGINE, alembic_unheard, unheard
from .tables import FIRST, SCHEMA, Base, BugRow, CaptureRow, LeaseRow, ReductionRow, RoundRow, TokenRow

if TYPE_CHECKING:
    from alembic.config import Config

_T = TypeVar("_T")
_Row = TypeVar("_Row", BugRow, CaptureRow, ReductionRow, RoundRow, TokenRow)

_ATTEMPTS = 50
#: SQLSTATEs of a transaction that another one came between: a key that is there or gone by now, and deadlocks.
_BETWEEN = ("23505", "23503", "40001", "40P01")
#: How often a transaction is tried that others come between.
_TRIES = 10
#: What a connection to a server is opened with, by driver. A dead server is noticed, and nothing stays on the server
#: from one transaction to the next, because a pooler such as PgBouncer may give each one another connection.
_CONNECT: Mapping[str, Mapping[str, Any]] = {
    "psycopg": {
        "connect_timeout": 10, "prepare_threshold": None, "keepalives_idle": 30, "tcp_user_timeout": 30_000,
    },
}  # fmt: skip
#: The server ends the transaction of a process that stopped in it, so that others need not wait long for its rows.
#: Settings of a connection would not reach the server through a pooler.
_LIMITS = {"idle_in_transaction_session_timeout": "30s", "lock_timeout": "60s"}
#: The schema version of a server to which an index is being copied.
COPYING = "copying"
#: The advisory lock of those who make or change the tables on a PostgreSQL server. The number is arbitrary.
_LOCK = 0x66786D696E696679


def now() -> str:
    """The time now for a row: ISO, UTC, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Database:
    """An open index. Use `open_database`."""

    def __init__(self, name: str, engine: Engine, path: Path | None, *, readonly: bool) -> None:
        self.name = name
        self.readonly = readonly
        #: The path of the file, None for a server.
        self.path = path
        #: The captures that this index holds a lease on, and their fences: see `fxminify.store.index.leases`.
        self.fences: dict[int, int] = {}
        self.engine = engine
        self._write = engine.execution_options(write=True)
        on_server = engine.dialect.name == "postgresql"  # in a file each transaction sees one state anyway
        self._read = engine.execution_options(isolation_level="REPEATABLE READ") if on_server else engine
        self._pid = os.getpid()
        self._file: tuple[int, int] | None = None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session on one consistent state of the index."""
        with self.explained(), Session(self._read, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a transaction: all of it is stored, or nothing."""
        if self.readonly:
            raise StoreError(f"{self.name} was opened for reading only")
        self._check_file()
        with self.explained(), Session(self._write, expire_on_commit=False) as session, session.begin():
            connection = session.connection()  # in a file, the write lock is held from here on
            if self.path is None and self.engine.dialect.name == "postgresql":
                connection.execute(select(*(func.set_config(name, value, True) for name, value in _LIMITS.items())))
            yield session

    def _check_file(self) -> None:
        """Raise `StoreError` if the file is not the one that was written to before: writes to that would be lost."""
        if self.path is None:
            return
        found: tuple[int, int] | None = None
        with suppress(FileNotFoundError):
            stat = os.stat(self.path)
            found = stat.st_dev, stat.st_ino
        if self._file not in (None, found):
            how = "removed" if found is None else "replaced by another file"
            raise StoreError(f"{self.name} was {how} while it was in use: run the same command again")
        self._file = found

    def write(self, work: Callable[[Session], _T]) -> _T:
        """Return the result of ``work``, run in one transaction. Repeat it after a conflict with another writer."""
        for left in reversed(range(_TRIES)):
            try:
                with self.writing() as session:
                    return work(session)
            except StoreError as exc:
                state = getattr(getattr(exc.__cause__, "orig", None), "sqlstate", None)
                if state not in _BETWEEN or not left:
                    raise
        raise AssertionError

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a writing transaction on the connection, to make and upgrade tables."""
        with self._write.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise a `StoreError` for what databases and disks raise inside the block."""
        if os.getpid() != self._pid:
            # SQLite's locks do not survive a fork (https://sqlite.org/howtocorrupt.html, 2.6).
            raise StoreError(f"{self.name} was opened before this process was forked: open it again here")
        with _explained(self.name):
            yield

    def apart(
        self,
        ids: Sequence[int],
        read: Callable[[Session, Sequence[int]], list[_T]],
        bad: Callable[[int, str], _T | None] = lambda id, problem: None,
    ) -> list[_T]:
        """Return what ``read`` makes of the rows with these ids, in their order.

        Where one of them cannot be read the others are. Of that one the result has what ``bad`` makes of its id and of
        the reason, nothing for None.
        """
        if not ids:
            return []
        try:
            with self.reading() as session:
                return read(session, ids)
        except UnreadableRow as error:
            if len(ids) == 1:
                found = bad(ids[0], str(error))
                return [] if found is None else [found]
        half = len(ids) // 2
        return [*self.apart(ids[:half], read, bad), *self.apart(ids[half:], read, bad)]

    def need(self, session: Session, table: type[_Row], key: int, *, lock: bool = False) -> _Row:
        """Return the row ``key`` of ``table``. Raises `StoreError`, which names the nearest row, if it is missing.

        With ``lock``, no other transaction changes the row before this one ends.
        """
        row = session.get(table, key, with_for_update=lock) if 0 < key < 1 << 63 else None
        if row is None:
            noun, place = table.__tablename__.removesuffix("s"), max(0, min(key, 1 << 62))
            below = session.scalars(select(table.id).where(table.id < place).order_by(table.id.desc()).limit(1)).first()
            above = session.scalars(select(table.id).where(table.id > place).order_by(table.id).limit(1)).first()
            near = min((id for id in (below, above) if id is not None), key=lambda id: abs(id - place), default=None)
            nearest = "" if near is None else f"; the nearest is {near}"
            raise UnknownRow(f"{self.name} has no {noun} {key}: `minify list {self.name}` shows what it has{nearest}")
        return row

    def check_lease(self, session: Session, capture_id: int) -> None:
        """Raise `LeaseLost` if this index held a lease on the capture, and another process holds it now."""
        fence = self.fences.get(capture_id)
        if fence is None:
            return
        row = session.get(LeaseRow, capture_id, with_for_update={"read": True}, populate_existing=True)
        if row is None or row.fence != fence:
            raise LeaseLost(
                f"another process took over capture {capture_id} of {self.name}, "
                "because this one did not answer for long: see what it finds"
            )

    def revision(self) -> str | None:
        """Check a SQLite file, see `fxminify.store.index.sqlite.inspect`. Returns its schema version."""
        assert self.path is not None
        for attempt in range(_ATTEMPTS + 1):
            before = sqlite.state(self.path)
            try:
                with self.explained(), self.engine.connect() as connection, connection.begin():
                    return sqlite.inspect(connection, self.path, self.name)
            except StoreError:
                # While this process read the file as immutable, another may have begun to write: it looks damaged then.
                if attempt == _ATTEMPTS or sqlite.state(self.path) == before:
                    raise
                time.sleep(0.02)
        raise AssertionError

    def create(self) -> None:
        """Make the tables of an empty SQLite file, unless another process did so meanwhile."""
        assert self.path is not None
        with self.explained(), self.transaction() as connection:
            if sqlite.inspect(connection, self.path, self.name) is None:
                sqlite.stamp(connection)
                make_tables(connection)

    def close(self) -> None:
        with _explained(self.name):
            self.engine.dispose(close=os.getpid() == self._pid)


_LOGGED: dict[str, Any] = {"logging_name": ENGINE, "pool_logging_name": ENGINE}


def open_database(name: str, *, create: bool, readonly: bool, timeout: float) -> Database:
    """Open or make the index called ``name``. Raises `StoreError`, also for a file of an older schema."""
    given = name
    if "://" in name:
        url = parse_url(name)
        if url.get_backend_name() != "sqlite":
            return open_server(url, create=create, readonly=readonly)
        given = url.database or ""
    with _explained(given):
        path = Path(os.path.realpath(given))
        sqlite.check_path(path, given, create=create, readonly=readonly)
        # A fresh connection for each read: every one of them decides anew how it may look at the file.
        reading = Database(given, sqlite_engine(sqlite.reader(path, timeout=timeout), NullPool), path, readonly=True)
        revision = reading.revision() if path.exists() else None  # looked at first, so a foreign file is not touched
        _check(revision, given, create=create)
        if readonly:
            return reading
        engine = sqlite_engine(sqlite.writer(path, create=create, timeout=timeout), QueuePool, max_overflow=-1)
        database = Database(given, engine, path, readonly=False)
        try:
            if revision is None:
                database.create()
            sqlite.use_wal(engine, timeout)
        except BaseException:
            database.close()
            raise
        return database


def check_place(name: str, *, timeout: float) -> None:
    """Raise `StoreError` unless ``name`` is, or could become, an index to write to. Makes nothing."""
    if "://" in name:
        open_database(name, create=True, readonly=True, timeout=timeout).close()
        return
    with _explained(name):
        path = Path(os.path.realpath(name))
        sqlite.check_path(path, name, create=True, readonly=False)
        if path.exists():
            database = Database(
                name, sqlite_engine(sqlite.reader(path, timeout=timeout), NullPool), path, readonly=True
            )
            _check(database.revision(), name, create=True)
            database.close()


def sqlite_engine(connect: sqlite.Connect, pool: type[Pool], **options: Any) -> Engine:
    engine = create_engine("sqlite://", creator=connect, poolclass=pool, **_LOGGED, **options)
    sqlite.listen(engine)
    return unheard(engine)


def open_server_engine(url: URL, *, readonly: bool) -> Database:
    """The engine of a database server, without a check of its tables."""
    name = url.render_as_string(hide_password=True)
    try:
        connect = dict(_CONNECT.get(url.get_driver_name(), {}))
        engine = unheard(create_engine(url, pool_pre_ping=True, connect_args=connect, **_LOGGED))
    except (ArgumentError, NoSuchModuleError, ImportError) as exc:
        install = "pip install 'fxminify[postgres]'" if url.get_backend_name() == "postgresql" else "install its driver"
        raise StoreError(f"{name} cannot be opened here ({exc}): {install}") from exc
    return Database(name, engine, None, readonly=readonly)


def open_server(url: URL, *, create: bool, readonly: bool) -> Database:
    """Open or make the index on a database server. With both flags, only check whether that is possible."""
    database = open_server_engine(url, readonly=readonly)
    with database.explained(), database.transaction() as connection:
        revision = server_revision(connection)
        _check(revision, database.name, create=create)
        if revision is None and not readonly:
            lock(connection)
            if server_revision(connection) is None:
                make_tables(connection)
    return database


def server_revision(connection: Connection) -> str | None:
    """Return the schema version of a server's tables, or None if they are missing."""
    if not reflect(connection).has_table("alembic_version"):
        return None
    return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar())


def _check(revision: str | None, name: str, *, create: bool) -> None:
    """Raise `StoreError` unless this fxminify supports that schema version (None: there are no tables yet)."""
    if revision is None:
        if not create:
            raise StoreError(
                f"{name} is empty: `minify capture --db {shlex.quote(name)} SCRIPT` writes a program's failures there"
            )
        return
    if revision == COPYING:
        raise StoreError(
            f"{name} is a copy that is not whole yet: `minify copy FROM {shlex.quote(name)}` goes on with it"
        )
    check_age(revision, name)
    if revision < SCHEMA:
        raise StoreError(
            f"{name} was written by an older fxminify (schema {revision}): "
            f"`minify upgrade {shlex.quote(name)}` brings it up to date"
        )


def check_age(revision: str, name: str) -> None:
    """Raise `StoreError` for a schema that is newer than `SCHEMA` or older than `FIRST`."""
    if revision > SCHEMA:
        raise StoreError(f"{name} was written by a newer fxminify: upgrade with `pip install -U fxminify`")
    if revision < FIRST:
        raise StoreError(
            f"{name} has schema {revision}, which only development versions wrote: capture the failures again"
        )


def parse_url(name: str) -> URL:
    if name.startswith(("http://", "https://")):
        raise StoreError(f"{name} takes captures, and nothing else is done there: name the index that it serves")
    try:
        return make_url(name)
    except (ArgumentError, ValueError) as exc:
        raise StoreError(f"{name.rpartition('@')[2]} is neither a file nor the URL of a database: {exc}") from exc


def insert(
    session: Session,
    table: type[Base],
    rows: Sequence[Mapping[str, Any]],
    merged: Callable[[Any], dict[str, Any]] | None = None,
) -> None:
    """Insert the rows whose keys are new, even if other transactions insert the same keys at the same time.

    An existing row stays as it is, or gets the columns that ``merged`` makes of the given row.
    """
    if not rows:
        return
    new: Any
    if session.get_bind().dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        new = postgresql.insert(table_of(table))
    else:
        from sqlalchemy.dialects import sqlite as file

        new = file.insert(table_of(table))
    key = list(table_of(table).primary_key)
    if merged is None:
        new = new.on_conflict_do_nothing()
    else:
        new = new.on_conflict_do_update(index_elements=key, set_=merged(new.excluded))
    session.execute(new.returning(key[0]), rows).close()  # what returns something is one statement for many rows


def table_of(table: type[Base]) -> Table:
    """The table of a class, for statements about many rows, of which no objects are made."""
    found = table.__table__
    assert isinstance(found, Table)
    return found


def update_each(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Set the columns of rows, all the same ones, each by its primary key."""
    if not rows:
        return
    columns = table_of(table).c
    keys = [column.key for column in table_of(table).primary_key]
    found = [columns[key] == bindparam(f"key_{key}") for key in keys]
    changed: dict[str, Any] = {name: bindparam(name) for name in rows[0] if name not in keys}
    given = [{f"key_{name}" if name in keys else name: value for name, value in row.items()} for row in rows]
    session.execute(update(table_of(table)).where(*found).values(changed), given)


def lock(connection: Connection) -> None:
    """Wait until no other transaction holds this lock, and hold it to the end: SQLite's transactions do so anyway."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def make_tables(connection: Connection) -> None:
    """Make the tables from the models and note their revision, inside the transaction of ``connection``.

    This is how Alembic's cookbook makes a database from scratch; revisions are for databases that exist already.
    """
    Base.metadata.create_all(connection)
    with alembic_unheard():
        from alembic import command  # heavy, and needed only for a new file

        command.stamp(migrations(connection), "head")


def migrations(connection: Connection) -> Config:
    """Return the configuration of Alembic's commands for the transaction of ``connection``."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, sqlite3.Error, OSError, ForeignValue, OverflowError, UnicodeDecodeError) as exc:
        raise explained(exc, name) from exc
