"""Caches of compilers for the processes that fxminify starts: filled from the user's, which are only read.

A process that is killed while its compiler writes leaves half a file, and later processes that load it fail. So workers
and runs of scripts never see the caches of the user. They share a directory that lasts as long as the command:

* At its start it has links to the newest files of the user's caches, so that nothing is compiled twice. A compiler does
  not write to a file that is there. What is empty or cut off is left out.
* `CompilerCaches.mend` removes what a killed process left half written. Other processes may go on meanwhile.
* `CompilerCaches.close` removes the directory. The one of a driver that was killed is removed by the next one
  (`fxminify.store.temporary`).

What was compiled is kept for the next command in ``fxminify/compilers`` of the user's cache directory. Only whole files
are kept, and only once every process has ended.
"""

from __future__ import annotations

import getpass
import heapq
import os
import re
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Self

from ...store.temporary import prefix
from ..adapters import CompilerCache, adapters

#: The most files of one cache that are taken over, and the most bytes of a file that is copied where links cannot be.
MOST_FILES = 2000
MOST_COPIED = 256 << 20
#: The most bytes that are kept for the next command. The oldest files go first.
MOST_KEPT = 1 << 30
#: What torch compiles for every backend: extensions in C++. They depend on their path, so none is taken over.
EXTENSIONS = CompilerCache("TORCH_EXTENSIONS_DIR", takes=("*/lock",))
#: A header may be written to for so many seconds.
_WRITING = 2.0


def known() -> tuple[CompilerCache, ...]:
    """Return the caches of all adapters, and the one of torch itself. No two have the same variable."""
    found: dict[str, CompilerCache] = {}
    for cache in (EXTENSIONS, *(cache for adapter in adapters().values() for cache in adapter.caches)):
        takes = found[cache.variable].takes if cache.variable in found else ()
        found[cache.variable] = replace(cache, takes=tuple(dict.fromkeys((*takes, *cache.takes))))
    return tuple(found.values())


@dataclass(slots=True)
class CompilerCaches:
    """The caches of one command, made on first use. Thread-safe. A context manager; `close` removes them."""

    _root: Path | None = None
    _began: float = field(default_factory=time.time)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def environment(self) -> dict[str, str]:
        """Return the variables that make compilers use these caches."""
        with self._lock:
            if self._root is None:
                self._root = _filled()
            return {cache.variable: str(_place(self._root, cache)) for cache in known()}

    def mend(self, since: float) -> None:
        """Remove what a killed process may have left half written. It began at ``since``, in seconds of `time.time`."""
        with self._lock:
            root = self._root
        if root is None:
            return
        for cache in known():
            for path, _, changed in _files(_place(root, cache), cache.takes):
                if changed >= since - 1.0 and not _is_finished(path):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Keep what was compiled, and remove the caches. Every process that used them has ended."""
        with self._lock:
            root, self._root = self._root, None
        if root is None:
            return
        for cache in known():
            with suppress(OSError):  # a home that cannot be written to: the next command compiles again
                _keep(cache, _place(root, cache), self._began)
        shutil.rmtree(root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def is_whole(path: Path) -> bool:
    """Return False for a file that is empty, and for a shared library that ends before its last section."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    if path.suffix != ".so" or not head:
        return bool(head)
    if len(head) < 64 or head[:4] != b"\x7fELF":
        return False
    sections, width, count = struct.unpack_from("<Q", head, 40)[0], *struct.unpack_from("<HH", head, 58)
    return bool(size >= sections + width * count)


def _is_finished(path: Path) -> bool:
    """Return False for a file that a process may have been writing to when it was killed."""
    return path.suffix != ".gch" and path.name != "lock" and is_whole(path)


def _filled() -> Path:
    """A new directory of caches, with links to the user's files and to those that were kept."""
    root = Path(tempfile.mkdtemp(prefix=prefix("fxminify-caches-")))
    for cache in known():
        place = _place(root, cache)
        place.mkdir()
        places = [folder for folder in (_users(cache), _place(_kept(), cache)) if folder is not None]
        files = [(changed, path, folder) for folder in places for path, _, changed in _files(folder, cache.takes)]
        for changed, path, folder in heapq.nlargest(MOST_FILES, files):
            if changed < time.time() - _WRITING or path.suffix == ".so":
                with suppress(OSError):  # it went away, or cannot be read: it is compiled again
                    _take(path, place / path.relative_to(folder))
    return root


def _take(source: Path, target: Path) -> None:
    """Link or copy a file. Do nothing where it is not whole or where there is one already."""
    if target.exists() or not is_whole(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or a file of another user
        if source.stat().st_size <= MOST_COPIED:
            fresh = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
            shutil.copy2(source, fresh)
            fresh.replace(target)


def _keep(cache: CompilerCache, place: Path, began: float) -> None:
    """Link the files of ``place`` that are newer than ``began`` into the kept ones, and remove old ones of these."""
    kept = _place(_kept(), cache)
    for path, _, changed in _files(place, cache.takes):
        if changed >= began and path.name != "lock":
            _take(path, kept / path.relative_to(place))
    files = sorted(_files(kept, cache.takes), key=lambda found: found[2], reverse=True)
    total = 0
    for number, (path, size, _) in enumerate(files, 1):
        total += size
        if total > MOST_KEPT or number > MOST_FILES:
            path.unlink(missing_ok=True)


def _files(folder: Path, patterns: Sequence[str]) -> Iterator[tuple[Path, int, float]]:
    """Yield the files below ``folder`` with one of the ``patterns``, their sizes, and when they were changed."""
    for pattern in patterns:
        yield from _matching(os.fspath(folder), _named(pattern).split("/"))


def _matching(folder: str, parts: Sequence[str]) -> Iterator[tuple[Path, int, float]]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if fnmatchcase(entry.name, parts[0])]
    except OSError:  # it does not exist, or may not be read
        return
    for entry in found:
        with suppress(OSError):  # another process removed it
            if len(parts) > 1 and entry.is_dir(follow_symlinks=False):
                yield from _matching(entry.path, parts[1:])
            elif len(parts) == 1 and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield Path(entry.path), status.st_size, status.st_mtime


def _place(root: Path, cache: CompilerCache) -> Path:
    """The directory of ``cache`` in ``root``. Its path is short, because sockets may lie in it."""
    return root / cache.variable.removesuffix("_DIR").lower()


def _users(cache: CompilerCache) -> Path | None:
    """The cache of the user, None where it is not known."""
    where = os.environ.get(cache.variable) or _named(cache.default)
    return Path(where).expanduser() if where else None


def _kept() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fxminify" / "compilers"


def _named(text: str) -> str:
    """``text`` with the directory for temporary files and the name of the user in it, as torch writes that."""
    if "{" not in text:
        return text
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without an entry, as in containers
        user = f"uid_{os.getuid()}"
    return text.format(tmp=tempfile.gettempdir(), user=re.sub(r'[\\/:*?"<>|]', "_", user))
