"""Read files that foreign code may have written: only ordinary ones, through no link, and up to a limit.

Foreign code writes to directories that the driver reads. A file with an expected name may be a link to a file of
the user, or a pipe without a writer.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_ordinary(path: Path) -> BinaryIO:
    """The file at ``path``, opened to be read. Raises `FileNotFoundError` for anything but an ordinary file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise FileNotFoundError(errno.ENOENT, "no ordinary file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no ordinary file", str(path))
    return os.fdopen(descriptor, "rb")
