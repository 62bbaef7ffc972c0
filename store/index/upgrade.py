"""`minify upgrade`: brings an index of an older schema, from the first edition's (0003) on, up to date.

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
from .database import Database, lock, migrations, open_server_engine, parse_url, server_revision, sqlite_engine
from .logs import alembic_unheard
from .tables import SCHEMA, Base

#: The schema of the first edition.
FIRST = "0003"
#: The suffix of the name of the copy of a file, before its schema.
BACKUP = ".schema-"
#: Kinds of artifacts that the first edition stored among the repros.
_ARTIFACTS = ("first-node", "ablation", "explanation", "onnx", "record")


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
                _apply(connection, revision)
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
            _apply(connection, revision)
            sqlite.check_schema(connection, given)
    database.close()
    return backup


def _needed(revision: str | None, name: str) -> bool:
    if revision is None:
        raise StoreError(f"{name} is empty, there is nothing to upgrade")
    if revision > SCHEMA:
        raise StoreError(f"{name} was written by a newer fxminify: upgrade with `pip install -U fxminify`")
    if revision < FIRST:
        raise StoreError(
            f"{name} has schema {revision}, which only development versions wrote: capture the failures again"
        )
    return revision < SCHEMA


def _apply(connection: Connection, revision: str | None) -> None:
    """From an older ``revision`` to `SCHEMA`, in the transaction of ``connection``."""
    if revision == FIRST:
        _from_first_edition(connection)
    with alembic_unheard():
        from alembic import command

        command.upgrade(migrations(connection), "head")


def _from_first_edition(connection: Connection) -> None:
    """From `FIRST` to 0004: what explains a capture moves from the repros to the artifacts."""
    Base.metadata.tables["artifacts"].create(connection)
    kinds = ", ".join(f"'{kind}'" for kind in _ARTIFACTS)
    connection.exec_driver_sql(
        "INSERT INTO artifacts (capture, kind, content, created) "
        f"SELECT capture, format, text, created FROM repros WHERE format IN ({kinds})"
    )
    connection.exec_driver_sql(
        "UPDATE artifacts SET kind = 'illustrations', "
        """content = '{"heading": "ONNX models", "items": ' || content || '}' WHERE kind = 'onnx'"""
    )
    for kind, old, new in (
        ("explanation", "subjects", "features"),
        ("explanation", "twin", "passing_variant"),
        ("ablation", "said", "message"),
    ):
        connection.exec_driver_sql(
            f"UPDATE artifacts SET content = replace(content, '\"{old}\":', '\"{new}\":') WHERE kind = '{kind}'"
        )
    connection.exec_driver_sql(f"DELETE FROM repros WHERE format IN ({kinds})")
    connection.exec_driver_sql("ALTER TABLE retests RENAME COLUMN said TO message")
    connection.exec_driver_sql("ALTER TABLE reductions ADD COLUMN operators TEXT")
    connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0004'")
