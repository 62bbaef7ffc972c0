"""Record what is written to file descriptor 2 while a backend compiles: it belongs to the failure.

Compilers in C++ raise one exception for every bug and print the diagnosis to descriptor 2. The program's output must
not change by being recorded, even if it dies. So there are two ways, and where neither is possible nothing is recorded:

* Descriptor 2 is an ordinary file, as under pytest: what was written meanwhile is read from it.
* Under `minify capture` the parent makes a `Relay`, a file in memory. While a backend compiles, descriptor 2 of the
  program is that file. The parent passes on what is written there within a tenth of a second. The program passes on the
  rest itself before it goes on, so the order stays, and the parent does so if the program dies.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ...store.document.case import Json

STDERR = 2
#: The most bytes that are kept of one compilation: the first and the last of them.
MOST_BYTES = 64 << 10
_CHUNK, _WORD = 64 << 10, 8


@dataclass(frozen=True, slots=True)
class Relay:
    """The file ``data`` in which descriptor 2 ends while a backend compiles, and ``state``: a file with the number of
    bytes that were passed on and the number that there were when the last compilation began. Both are descriptors."""

    data: int
    state: int

    @classmethod
    def create(cls) -> Relay | None:
        """Make the files. None where the system has no files in memory."""
        try:
            data = os.memfd_create("fxminify-stderr", 0)
            fcntl.fcntl(data, fcntl.F_SETFL, fcntl.fcntl(data, fcntl.F_GETFL) | os.O_APPEND)
            state = os.memfd_create("fxminify-stderr-state", 0)
            os.pwrite(state, bytes(2 * _WORD), 0)
        except (AttributeError, OSError):
            return None
        return cls(data, state)

    def described(self) -> Json:
        """Return what a child process needs to find the inherited files again."""
        return {
            "files": [self.data, self.state],
            "identities": [_identity(fd) for fd in (self.data, self.state, STDERR)],
        }

    @classmethod
    def inherited(cls, described: Json) -> Relay | None:
        """Return the relay of the parent. None if this process has not inherited it, or has another standard error."""
        data, state = described["files"]
        try:
            known = [_identity(fd) for fd in (data, state, STDERR)]
        except OSError:
            return None
        return cls(data, state) if known == described["identities"] else None

    def size(self) -> int:
        return os.fstat(self.data).st_size

    def began(self) -> int:
        """Return the size of the file when the last compilation began."""
        return self._number(1)

    def begin(self) -> int:
        """Note that a compilation begins now. Returns the size of the file."""
        size = self.size()
        os.pwrite(self.state, size.to_bytes(_WORD, "big"), _WORD)
        return size

    def text(self, start: int, end: int) -> str:
        """Return what was written from ``start`` to ``end``, without the middle of a long text."""
        return _text(self.data, start, end)

    def pass_on(self, to: int) -> None:
        """Write to the descriptor ``to`` what was not passed on yet. Other processes wait meanwhile."""
        if self._number(0) == self.size():
            return
        with _locked(self.state):
            done = self._number(0)
            while chunk := os.pread(self.data, _CHUNK, done):
                _write(to, chunk)
                done += len(chunk)
                os.pwrite(self.state, done.to_bytes(_WORD, "big"), 0)

    def _number(self, place: int) -> int:
        return int.from_bytes(os.pread(self.state, _WORD, place * _WORD), "big")


class _Redirection:
    """The compilations of this process that are being recorded. Descriptor 2 is the relay as long as there are some."""

    def __init__(self) -> None:
        self.relay: Relay | None = None
        self.own = -1
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget the compilations of the parent process after a fork; what they redirected stays so in this one."""
        self.lock = threading.Lock()
        self.count = 0

    def begin(self, relay: Relay) -> int:
        with self.lock:
            if self.count == 0:
                self.own = os.dup(STDERR)
                os.dup2(relay.data, STDERR)
            self.count += 1
        return relay.begin()

    def end(self, relay: Relay) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0:
                os.dup2(self.own, STDERR)
                relay.pass_on(STDERR)
                os.close(self.own)


_redirection = _Redirection()
_threads = threading.Lock()


def use(described: Json | None) -> None:
    """Record through the relay of the parent, which `Relay.described` describes, if this process has it."""
    _redirection.relay = None if described is None else Relay.inherited(described)


@contextmanager
def recorded() -> Iterator[Callable[[], str]]:
    """Record descriptor 2 inside the block. Gives a function that returns what was written, after the block too."""
    relay = _redirection.relay
    if relay is not None and os.path.sameopenfile(relay.data, STDERR) and _redirection.count == 0:
        relay = None  # this process was forked from one that compiled, and its descriptor stays the relay
    if relay is None:
        yield _in_file()
        return
    try:
        start = _redirection.begin(relay)
    except OSError:  # no descriptor is left
        yield str
        return
    end = None
    try:
        yield lambda: relay.text(start, relay.size() if end is None else end)
    finally:
        end = relay.size()
        with suppress(OSError):
            _redirection.end(relay)


def _in_file() -> Callable[[], str]:
    """Return a function for what is written to descriptor 2 from now on, if that is an ordinary file."""
    try:
        start = _position()
    except OSError:
        start = None
    if start is None:
        return str

    def written() -> str:
        try:
            readable = os.open(f"/proc/self/fd/{STDERR}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return _text(readable, start, max(start, os.fstat(readable).st_size))
        finally:
            os.close(readable)

    return written


def _position() -> int | None:
    """Return the place at which descriptor 2 writes next, None if it is no ordinary file."""
    found = os.fstat(STDERR)
    if not stat.S_ISREG(found.st_mode):
        return None
    appends = fcntl.fcntl(STDERR, fcntl.F_GETFL) & os.O_APPEND
    return found.st_size if appends else os.lseek(STDERR, 0, os.SEEK_CUR)


def _text(descriptor: int, start: int, end: int) -> str:
    half = MOST_BYTES // 2
    if end - start <= MOST_BYTES:
        return os.pread(descriptor, end - start, start).decode(errors="replace")
    first, last = os.pread(descriptor, half, start), os.pread(descriptor, half, end - half)
    return f"{first.decode(errors='replace')}\n[...]\n{last.decode(errors='replace')}"


def _identity(descriptor: int) -> list[int]:
    found = os.fstat(descriptor)
    return [found.st_dev, found.st_ino]


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    """Exclude the other threads, and the other processes that have the file."""
    with _threads:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _write(to: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(to, data) :]
        except BlockingIOError:  # a terminal or pipe that does not wait
            select.select([], [to], [])
