"""`minify copy FROM TO`: copy a whole index from a file to a server, back, or to a second file, while it is in use.

The copy is one consistent state, with the same ids, identities and tags of origin. Tokens and sessions of a server
are left out: a copy grants nothing. It cannot be opened before it is whole: a file appears under its name at the
end; a server has a schema version until then that cannot be opened. An interrupted copy continues: storages and
documents, which are named by their content, stay, and all other rows are copied again, because they may have
changed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Table, delete, func, insert, select, text, tuple_
from sqlalchemy.orm import Session

from .. import codec, outputs
from ..document.case import Json
from ..errors import StoreError, explain
from . import sqlite
from .blobs import BlobStore
from .database import (
    COPYING,
    Database,
    lock,
    make_tables,
    open_database,
    open_server_engine,
    parse_url,
    server_revision,
)
from .database import (
    insert as insert_new,
)
from .sharing import put_in_place, refuse_link
from .tables import SCHEMA, Base, BlobRow, DocumentRow, SessionRow, TokenRow

#: Rows of one transaction, and documents or storages of one.
_ROWS, _LARGE = 500, 20
#: The suffix of a copy that is not whole yet.
_DRAFT = ".copying"
_CLASSES: dict[Any, type[Base]] = {mapper.local_table: mapper.class_ for mapper in Base.registry.mappers}
#: Rows that grant something on a server. They stay where they are.
LEFT_OUT = (SessionRow.__tablename__, TokenRow.__tablename__)
#: Rows that are named by their content: those that are there are the same.
_CONTENT = (BlobRow.__tablename__, DocumentRow.__tablename__)


@dataclass(slots=True)
class Copied:
    """The number of copied rows by table. Rows that existed before are not counted."""

    rows: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> Json:
        return codec.dump(self)


def copy(source: str, target: str) -> Copied:
    """Copy the index ``source`` to ``target``, a new file or an empty database. Raises `StoreError`."""
    from_file, to_file = _file(source), _file(target, follow=False)
    if to_file is not None and os.path.lexists(to_file):
        raise StoreError(f"{target} exists: name another file")
    # A reader that opened the file without a writer does not notice a new writer.
    readonly = from_file is None or not os.access(from_file, os.W_OK) or not os.access(from_file.parent, os.W_OK)
    reading = open_database(source, create=False, readonly=readonly, timeout=30.0)
    try:
        with reading.explained():
            if from_file is not None and to_file is not None:
                return _back_up(reading, from_file, to_file)
            with _opened(target, to_file) as writing:
                return _Copying(reading, writing).all()
    finally:
        reading.close()


def _file(name: str, *, follow: bool = True) -> Path | None:
    """The path of a file, None for a server. With ``follow`` links are resolved."""
    if "://" in name:
        url = parse_url(name)
        if url.get_backend_name() != "sqlite":
            return None
        name = url.database or ""
    return Path(os.path.realpath(name) if follow else os.path.abspath(name))


def _back_up(reading: Database, source: Path, target: Path) -> Copied:
    """From file to file: SQLite's own backup, and the files beside it."""
    _copy_files(source, target)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        ready = folder / "ready.db"
        sqlite.back_up(source, ready, 30.0)
        sqlite.empty(ready, LEFT_OUT, 30.0)
        _copy_files(source, target)  # those that came meanwhile
        copied = _counted(ready, target)
        put_in_place(ready, folder / "none", target, force=False)
    except OSError as exc:
        raise StoreError(explain(exc, str(target))) from exc
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return copied


def _counted(ready: Path, target: Path) -> Copied:
    """Count the rows of a file that is to become ``target``. Raises `StoreError` if a storage is not beside
    ``target``.
    """
    copied = Copied()
    whole = open_database(str(ready), create=False, readonly=True, timeout=30.0)
    try:
        with whole.reading() as session:
            for table in Base.metadata.sorted_tables:
                _count(copied, table, session.scalar(select(func.count()).select_from(table)) or 0)
            large = session.scalars(select(BlobRow.digest).where(BlobRow.data.is_(None), BlobRow.place.is_(None))).all()
    finally:
        whole.close()
    for name in large:
        if not _beside(target, name).exists():
            raise StoreError(
                f"{target} lacks the storage {name[:12]}, which was removed while it was copied: copy again"
            )
    return copied


def _beside(path: Path, name: str) -> Path:
    return Path(f"{path}.blobs", name[:2], name)


def _copy_files(source: Path, target: Path) -> None:
    """Copy the large storages beside a file that are not beside the other one yet."""
    refuse_link(Path(f"{target}.blobs"))
    for file in sorted(Path(f"{source}.blobs").glob("??/*")):
        place = Path(f"{target}.blobs", file.parent.name, file.name)
        if file.name.startswith(".") or file.is_symlink() or place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError), outputs.draft(place) as draft:  # it may be removed meanwhile
            shutil.copyfile(file, draft)
            os.replace(draft, place)


@contextmanager
def _opened(target: str, path: Path | None) -> Iterator[Database]:
    """The database to copy to, which is whole after the block. What an interrupted block has copied is there."""
    if path is not None:
        draft = Path(f"{path}{_DRAFT}")
        refuse_link(draft)
        writing = open_database(str(draft), create=True, readonly=False, timeout=30.0)
        try:
            yield writing
        finally:
            writing.close()
        ready = Path(f"{draft}.whole")
        sqlite.back_up(draft, ready, 30.0)
        put_in_place(ready, Path(f"{draft}.blobs"), path, force=False)
        ready.unlink(missing_ok=True)
        for suffix in ("", "-wal", "-shm"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)
        shutil.rmtree(f"{draft}.blobs", ignore_errors=True)
        return
    writing = open_server_engine(parse_url(target), readonly=False)
    try:
        with writing.explained(), writing.transaction() as connection:
            lock(connection)
            revision = server_revision(connection)
            if revision is None:
                make_tables(connection)
            elif revision != COPYING:
                raise StoreError(f"{writing.name} has an index already: name an empty database")
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": COPYING})
        yield writing
        with writing.explained(), writing.transaction() as connection:
            for table in Base.metadata.sorted_tables:
                if "id" in table.c and (last := connection.scalar(select(func.max(table.c.id)))) is not None:
                    sequence = func.pg_get_serial_sequence(table.name, "id")
                    connection.execute(select(func.setval(sequence, last)))
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": SCHEMA})
    finally:
        writing.close()


class _Copying:
    """A copy of a single consistent state."""

    def __init__(self, source: Database, target: Database) -> None:
        self._source, self._target = source, target
        self._from, self._to = BlobStore(source), BlobStore(target)
        self._copied = Copied()

    def all(self) -> Copied:
        for table in reversed(Base.metadata.sorted_tables):
            if table.name not in _CONTENT:
                self._target.write(lambda session: session.execute(delete(table)))  # noqa: B023
        with self._source.reading() as read:
            for table in Base.metadata.sorted_tables:
                if table.name == BlobRow.__tablename__:
                    self._storages(read)
                elif table.name not in LEFT_OUT:
                    self._rows(read, table)
        return self._copied

    def _rows(self, read: Session, table: Table) -> None:
        kind, keys = _CLASSES[table], list(table.primary_key)
        is_content = table.name in _CONTENT
        chosen = select(kind).order_by(*keys).limit(_LARGE if is_content else _ROWS)
        after: tuple[Any, ...] | None = None
        while True:
            query = chosen if after is None else chosen.where(tuple_(*keys) > tuple_(*after))
            rows = read.scalars(query).all()
            if not rows:
                return
            values = [{column.key: getattr(row, column.key) for column in table.columns} for row in rows]
            after = tuple(getattr(rows[-1], key.key) for key in keys)
            read.expunge_all()

            def write(session: Session) -> None:
                if is_content:
                    insert_new(session, kind, values)  # noqa: B023
                else:
                    session.execute(insert(table), values)  # noqa: B023

            self._target.write(write)
            _count(self._copied, table, len(values))

    def _storages(self, read: Session) -> None:
        last = ""
        while True:
            page = select(BlobRow.digest).where(BlobRow.digest > last).order_by(BlobRow.digest).limit(_LARGE)
            keys = read.scalars(page).all()
            if not keys:
                return
            last = keys[-1]
            view = self._from.view(keys)
            staged = self._to.stage(keys, view)
            if staged:
                self._target.write(lambda session: self._to.insert(session, dict.fromkeys(keys, view), staged))  # noqa: B023
                _count(self._copied, Base.metadata.tables[BlobRow.__tablename__], len(staged))


def _count(copied: Copied, table: Table, number: int) -> None:
    if number:
        copied.rows[table.name] = copied.rows.get(table.name, 0) + number
