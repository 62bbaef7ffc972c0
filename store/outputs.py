"""Files that a person asked for: written beside their place and renamed, so that no link is followed.

A name may be a link that somebody else made, also one that leads nowhere yet. Without ``force`` the name is taken; with
``force`` the link is replaced and the file behind it stays. A reader gets the old file or the new one, never half of
one. Devices and pipes, such as ``/dev/stdout``, are written to as they are.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write(path: Path, content: bytes, *, force: bool = False) -> None:
    """Write the file ``path``. Raises `FileExistsError` if the name is taken, unless ``force``, or `OSError`."""
    if force and _is_device(path):
        path.write_bytes(content)
        return
    with draft(path) as file:
        file.write_bytes(content)
        _put(file, path, force)


def check(path: Path) -> None:
    """Raise `OSError` if no file can be written at ``path``. Leaves nothing."""
    if not _is_device(path):
        with draft(path):
            pass


def _put(file: Path, path: Path, force: bool) -> None:
    """Rename ``file`` to ``path``, which without ``force`` takes the name first; a link is a name, too."""
    if force:
        with suppress(FileNotFoundError):
            if stat.S_ISREG((there := os.lstat(path)).st_mode):
                file.chmod(stat.S_IMODE(there.st_mode))
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.replace(file, path)


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """A new empty file in the directory of ``path``, with a name that cannot be known before. It is removed at the end
    if it is still there."""
    file = path.absolute().parent / f".{secrets.token_hex(8)}.tmp"
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _is_device(path: Path) -> bool:
    """Whether there is something at ``path`` that is no file, directory or link. The links in ``/dev`` are the
    system's own."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    named = stat.S_ISLNK(mode) and path.absolute().parent == Path("/dev")
    return named or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
