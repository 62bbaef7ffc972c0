"""Secret keys of this user, each a file of 32 random bytes that only the user can read, and the rights that ended.

Both lie beside each other. A person who can only write to an index cannot change them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger("fxminify")

#: The bytes of a key, and the fewest different ones among them: random ones have fewer once in 10^20 keys.
_BYTES, _VARIED = 32, 12
#: A file with the proof of a right that was ended in each line.
_ENDED = "ended-rights"


def ended() -> frozenset[str]:
    """Return the proofs of rights that this user ended. A writer of an index cannot take that back."""
    path = _folder() / _ENDED
    try:
        stat = path.stat()
    except OSError:
        return frozenset()
    return _read(str(path), stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=2)
def _read(path: str, changed: int, size: int) -> frozenset[str]:
    return frozenset(Path(path).read_text("ascii", "replace").split())


def end(proofs: Iterable[str]) -> None:
    """Add to what `ended` returns. Raises `OSError`."""
    _folder().mkdir(parents=True, exist_ok=True)
    with open(os.open(_folder() / _ENDED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
        file.write("".join(f"{proof}\n" for proof in proofs))


def _folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state, "fxminify")


def secret(name: str, *, create: bool) -> bytes:
    """Return the key ``name``. It is empty if the key is missing or if other users may know it.

    With ``create`` a missing key is made.
    """
    path = _folder() / name
    try:
        if create and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{name}.{os.getpid()}.{secrets.token_hex(4)}")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(_BYTES))
            with contextlib.suppress(FileExistsError):  # of two processes making a key one wins, and both read it
                os.link(draft, path)
            draft.unlink()
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_uid != os.geteuid() or stat.st_mode & 0o077:
                log.warning("%s is not private to you, so it proves nothing: remove it, and a new one is made", path)
                return b""
            content = file.read(_BYTES + 1)
        if len(content) != _BYTES or len(set(content)) < _VARIED:
            log.warning("%s is no key of ours, so it proves nothing: remove it, and a new one is made", path)
            return b""
        return content
    except OSError:
        return b""
