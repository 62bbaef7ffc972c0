"""Directories that last as long as a process, and their removal if the process was killed.

The name of such a directory identifies its process: number, start time and machine. A process that makes a
directory beside it removes the directories of ended processes of the same user. A directory stays if a file in it
has the number of a living process in its name (``faults.123``): that process may still use it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile

from .processes import machine, started

_OWNER = re.compile(r"(\d{1,9})-(\d{1,20})-([0-9a-f]{16})-")
_PROCESS = re.compile(r"(?:.*\.)?(\d{1,9})")
_swept: set[tuple[str, str]] = set()


def prefix(kind: str, folder: str | None = None) -> str:
    """The first part of the name of a new directory of this process in ``folder``, or among the temporary ones.

    ``kind`` is the part before that, as in ``fxminify-``. Once for each ``kind`` and ``folder`` it removes what dead
    processes left there.
    """
    where = tempfile.gettempdir() if folder is None else folder
    if (kind, where) not in _swept:
        _swept.add((kind, where))
        sweep(kind, where)
    return f"{kind}{os.getpid()}-{started(os.getpid())}-{machine()}-"


def sweep(kind: str, folder: str) -> list[str]:
    """Remove the directories of dead processes in ``folder`` whose names begin with ``kind``. Returns their names."""
    try:
        with os.scandir(folder) as entries:
            left = [entry.name for entry in entries if entry.name.startswith(kind)]
    except OSError:  # a new one cannot be made there either, and that says why
        return []
    gone = [name for name in left if _is_left_behind(os.path.join(folder, name), name.removeprefix(kind))]
    for name in gone:
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return gone


def _is_left_behind(path: str, owner: str) -> bool:
    """Whether the directory at ``path``, which names ``owner``, is ours and no process uses it any more."""
    named = _OWNER.match(owner)
    if named is None or named[3] != machine() or started(int(named[1])) == named[2]:
        return False
    try:
        status = os.lstat(path)
        within = os.listdir(path) if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() else None
    except OSError:
        return False
    if within is None:
        return False
    return not any(started(int(found[1])) for found in map(_PROCESS.fullmatch, within) if found)
