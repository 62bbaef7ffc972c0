"""`minify upgrade`: brings an index of an older schema, from `FIRST` on, up to date.

A file is upgraded in one transaction, so a full disk or a killed process does not change it. Before that, a copy is
written beside it. Nothing else upgrades an index: an error for an older index names this command.
"""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.pool import NullPool

from ..errors import StoreError
from . import sqlite
from .database import (
    Database,
    check_age,
    lock,
    migrations,
    open_server_engine,
    parse_url,
    server_revision,
    sqlite_engine,
)
from .logs import alembic_unheard
from .tables import SCHEMA

#: The suffix of the name of the copy of a file, before its schema.
BACKUP = ".schema-"


def upgrade(name: str, *, timeout: float = 30.0) -> Path | None:
    """Upgrade the index called ``name``. Return the path of the copy of the old file, or None without a copy.

    A server's index is upgraded in one transaction and not copied. An index that is up to date stays as it is.
    Raises `StoreError`.
    """
    if "://" in name and (url := parse_url(name)).get_backend_name() != "sqlite":
        database = open_server_engine(url, readonly=False)
        with database.explained(), database.transaction() as connection:
            lock(connection)
            revision = server_revision(connection)
            if _needed(revision, database.name):
                _apply(connection)
        database.close()
        return None
    given = (parse_url(name).database or "") if "://" in name else name
    path = Path(os.path.realpath(given))
    old = Database(given, sqlite_engine(sqlite.reader(path, timeout=timeout), NullPool), path, readonly=True)
    with old.explained():
        sqlite.check_path(path, given, create=False, readonly=False)
        revision = old.revision()
        needed = _needed(revision, given)
    old.close()
    if not needed:
        return None
    backup = Path(f"{path}{BACKUP}{revision}")
    engine = sqlite_engine(sqlite.writer(path, create=False, timeout=timeout), NullPool)
    database = Database(given, engine, path, readonly=False)
    with database.explained(), database.transaction() as connection:  # the lock keeps other writers out
        revision = sqlite.inspect(connection, path, given)
        if _needed(revision, given):
            sqlite.back_up(path, backup, timeout)
            _apply(connection)
            sqlite.check_schema(connection, given)
    database.close()
    return backup


def _needed(revision: str | None, name: str) -> bool:
    if revision is None:
        raise StoreError(f"{name} is empty, there is nothing to upgrade")
    check_age(revision, name)
    return revision < SCHEMA


def _apply(connection: Connection) -> None:
    """Run the revisions up to `SCHEMA`, in the transaction of ``connection``."""
    with alembic_unheard():
        from alembic import command

        command.upgrade(migrations(connection), "head")
