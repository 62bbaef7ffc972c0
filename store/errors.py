"""`StoreError`: an error of the index, as one sentence for the person at the terminal.

Only `explain` knows the error codes of SQLite and of the operating system. Every sentence names the file as the user
gave it and says what to do next. A program that is captured imports this; SQLAlchemy is imported where one of its
errors may be at hand.
"""

from __future__ import annotations

import errno
import shlex
import sqlite3


class StoreError(Exception):
    """The index cannot do what was asked. ``str()`` is one sentence for the terminal; the exit code is 2."""


class LeaseLost(StoreError):
    """Another process works on the capture by now, so nothing was written."""


class UnreadableRow(StoreError):
    """A row, or one that belongs to it, has a value that this package never writes. Other rows may be sound."""


class UnknownRow(StoreError):
    """There is no row with the id that was asked for."""


class ForeignValue(Exception):
    """A row has a value that this package never writes there."""


def explained(exc: BaseException, name: str) -> StoreError:
    """Return the error to raise for ``exc``, which occurred in the index called ``name``."""
    inner = _inner(exc)
    value = isinstance(inner, ForeignValue | OverflowError) or (
        isinstance(inner, sqlite3.Error)
        and (_NO_TEXT in str(inner) or getattr(inner, "sqlite_errorname", "") == "SQLITE_TOOBIG")
    )
    return (UnreadableRow if value else StoreError)(explain(exc, name))


def is_temporary(error: BaseException) -> bool:
    """Whether the same may succeed later, because the server was away, a file locked or the disk full."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    return not isinstance(error, UnreadableRow) and isinstance(
        error.__cause__, OperationalError | InterfaceError | OSError
    )


def is_full(error: BaseException) -> bool:
    """Return whether no space was left, on the disk of a file or of a server."""
    if error.__cause__ is None:
        return False
    inner = _inner(error.__cause__)
    if isinstance(inner, OSError):
        return inner.errno in _FULL
    return getattr(inner, "sqlite_errorname", "") == "SQLITE_FULL" or getattr(inner, "sqlstate", "") == _DISK_FULL


def explain(exc: BaseException, name: str) -> str:
    """The sentence for ``exc``, an error met while working on the index called ``name``."""
    inner = _inner(exc)
    if isinstance(inner, ForeignValue):
        return f"{name} holds what fxminify never wrote ({inner}): it is damaged or was tampered with, do not use it"
    if isinstance(inner, OverflowError):  # a counter near the largest number that a database has
        return too_large(name)
    if isinstance(inner, sqlite3.Error):
        return _explain_sqlite(inner, name)
    if isinstance(inner, OSError):
        return _explain_os(inner, name)
    if isinstance(inner, UnicodeDecodeError):  # SQLite's message repeats bytes of the file
        return damaged(name)
    if getattr(inner, "sqlstate", "") == _LOCKED:
        return locked(name)
    first = (str(inner).strip().splitlines() or [type(inner).__name__])[0]
    return f"{name}: the database answered {first!r}; check that it is reachable and that you may write to it"


def without_password(name: str) -> str:
    """The ``name`` of an index, without the password of a URL."""
    if "://" not in name:
        return name
    from sqlalchemy.engine import make_url

    return make_url(name).render_as_string()


def full(name: str) -> str:
    return f"no space left to write {name}: nothing was stored half; free some space and run the same command again"


def read_only(name: str) -> str:
    return f"{name} cannot be written (read-only file, directory or disk): copy it to a writable place and use the copy"


def damaged(name: str) -> str:
    rescue = f"sqlite3 {shlex.quote(name)} .recover | sqlite3 rescued.db"
    return f"{name} is damaged or was cut short: copy it again from where it came from, or try `{rescue}`"


def too_large(name: str) -> str:
    return f"{name} holds a value larger than fxminify ever writes: it is damaged or was tampered with"


def foreign(name: str) -> str:
    return f"{name} is not a file of fxminify and was left untouched: give the file that `minify capture --db` wrote"


def locked(name: str) -> str:
    return f"{name} is locked by another process: wait for it to finish, or end it, and run the same command again"


#: Errors of a system, and the SQLSTATE of a server, that mean a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK_FULL = "53100"
#: The SQLSTATE of a server where a row stayed locked for too long.
_LOCKED = "55P03"
#: What `sqlite3` says of a text that is no UTF-8.
_NO_TEXT = "Could not decode to UTF-8"


def _inner(exc: BaseException) -> BaseException:
    from sqlalchemy.exc import DBAPIError

    return exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc


def _explain_sqlite(exc: sqlite3.Error, name: str) -> str:
    code = str(getattr(exc, "sqlite_errorname", ""))
    text = str(exc)
    if code == "SQLITE_NOTADB":
        return foreign(name)
    if code.startswith("SQLITE_CORRUPT") or _NO_TEXT in text:
        return damaged(name)
    if code == "SQLITE_TOOBIG":
        return too_large(name)
    if code == "SQLITE_FULL":
        return full(name)
    if code.startswith("SQLITE_READONLY"):
        return read_only(name)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return locked(name)
    if code.startswith("SQLITE_CANTOPEN"):
        return f"{name} cannot be opened: check that its directory exists and that you may write to it"
    if code.startswith("SQLITE_IOERR"):
        return (
            f"the disk refused to read or write {name} ({text}): nothing was stored half; "
            "check free space, quota and file size limit, and run the same command again"
        )
    return f"{name} does not look like an index of this version of fxminify ({text}): copy it again or start a new file"


def _explain_os(exc: OSError, name: str) -> str:
    if exc.errno in _FULL:
        return full(name)
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return read_only(name)
    reason = exc.strerror or type(exc).__name__
    return f"{name}: {reason} ({exc.filename or 'a file beside it'}); mend this and run the same command again"
