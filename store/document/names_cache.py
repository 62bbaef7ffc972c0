"""The table of names of the installed torch, in this user's cache: one file for each version of torch.

The shipped table (`names.json`) was generated with one version of torch; another version has names that it lacks.
`names.grow` generates the table of the installed torch with the same rules, in a process of its own, because the rules
import parts of torch that a program may never use. Every process of this user then reads the file, without torch.

A file counts only if this user owns it and others cannot write to it. An untrusted or invalid file is ignored and
generated again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path

log = logging.getLogger("fxminify")
RULES = Path(__file__).parents[1] / "live" / "names_generate.py"
#: Seconds that the generation may take, and bytes that a table may have. It takes 10 s and has 200 kB.
_SECONDS = 300
_LARGEST = 8 << 20
_VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,60}\Z")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@cache
def path_for(shipped: str) -> Path | None:
    """Return the path of the table of the installed torch. Its name has torch's version and a digest of the rules.

    Return None if ``shipped`` is that version, if torch is not installed, or if this user has no home directory.
    """
    try:
        version = metadata.version("torch")
        rules = hashlib.sha256(RULES.read_bytes()).hexdigest()[:16]
        directory = folder()
    except (metadata.PackageNotFoundError, OSError, RuntimeError):
        return None
    if version.partition("+")[0] == shipped or not _VERSION.match(version):
        return None
    return directory / f"names-{version}-{rules}.json"


def folder() -> Path:
    """Return the folder of fxminify in this user's cache. Raises `RuntimeError` if there is no home directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fxminify"


def read(path: Path) -> bytes | None:
    """The content of the file at ``path``; None if it is missing, or somebody else could have written it."""
    try:
        if not _is_private(path.parent.lstat(), stat.S_ISDIR):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if not _is_private(known, stat.S_ISREG) or known.st_size > _LARGEST:
            return None
        return file.read()


def write(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` in one step, readable by this user alone. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(path.parent.lstat(), stat.S_ISDIR):
        raise PermissionError(f"{path.parent.name} in the cache belongs to somebody else, or others can write to it")
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    except OSError:
        os.unlink(unfinished)
        raise


def generate(path: Path) -> bool:
    """Generate the table of the installed torch at ``path``. A failure is logged."""
    command = [sys.executable, "-P", "-m", "fxminify.store.live.names_generate", "--to", str(path)]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # plug-ins would add names of their own
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return True
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except (OSError, subprocess.TimeoutExpired) as exc:
        reason = f"{type(exc).__name__}: {exc}"
    log.warning("fxminify could not generate the names of this torch, only the shipped ones count: %s", reason)
    return False


def _is_private(known: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Return whether a file or folder is of the right kind, belongs to this user, and others cannot write to it."""
    return is_kind(known.st_mode) and known.st_uid == os.geteuid() and not known.st_mode & _OTHERS_WRITE
