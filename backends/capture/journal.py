"""The write-ahead journal. A process writes what it will run, and the parent reads that after a crash or hang.

One directory belongs to one `minify capture`. Every process of the program has its own folder in it, whose name is the
process id:

* ``marks`` has a 64-byte slot per thread, ``phase graph sequence``, which is overwritten in place. An empty phase means
  that the thread is idle.
* ``GRAPH.json`` has the case of that graph with the values of its last recorded call, or the reason why it has none.

``blobs`` has the storages of all processes, named by their content. ``faults.PID`` has the Python stack of a process
that died of a signal. The other files are the lists that the parent reports at the end (`backends.capture.ending`).
`RESERVE` keeps space for them on a disk that becomes full, and `COMPLETE` is removed where a line is lost nevertheless.
Nothing is synchronized to disk: the journal survives the death of a process, not of the machine.

A journal that cannot be written, on a full disk for instance, says so once and then writes nothing: the program runs
on, and what its backends raise is captured without it.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...store.document.case import Blobs, Json
from ...store.document.storages import Piece, StorageReader, pieces, read, write
from ...store.failure import Phase
from .log import log

SLOT = 64
#: A file whose space is for the lists, and its bytes; a file that is there as long as the lists have all lines.
RESERVE, RESERVED = "reserve", 16 << 10
COMPLETE = "complete"
IDLE = ""


class Journal:
    """Writes the journal of this process. Files are created with the first mark."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self._given_up = False
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._marks = -1
        self._slots = 0
        self._sequence = 0
        self._threads = threading.local()

    @contextmanager
    def marked(self, phase: str, graph: int) -> Iterator[None]:
        """Mark ``phase`` of ``graph`` as in flight on this thread inside the block."""
        token = self.begin(phase, graph)
        try:
            yield
        finally:
            self.end(token)

    def begin(self, phase: str, graph: int) -> bytes:
        """Mark ``phase`` of ``graph`` as in flight. Returns the argument for `end`."""
        previous: bytes = getattr(self._threads, "current", b" " * SLOT)
        self._sequence += 1
        self._mark(f"{phase} {graph} {self._sequence}".encode().ljust(SLOT))
        return previous

    def end(self, previous: bytes) -> None:
        """Restore the former mark of this thread."""
        self._mark(previous)

    def put(self, graph: int, document: Json, blobs: Blobs) -> None:
        """Write the document of ``graph``, and its storages that are not there yet."""
        if self._given_up:
            return
        with self._writable():
            shared = self.directory / "blobs"
            for key in blobs:
                path = shared / key
                if not path.exists():
                    _replace(path, pieces(blobs, key))
            self.folder.mkdir(exist_ok=True)
            _replace(self.folder / f"{graph}.json", [json.dumps(document).encode()])

    def document(self, graph: int) -> Json | None:
        """Return the document of ``graph`` that this process wrote, or None."""
        return _document(self.folder, graph)

    def tell(self, what: str, line: str) -> None:
        """Append a line to the list ``what`` that the parent reads at the end."""
        with self._writable():
            data = (json.dumps(line) + "\n").encode()
            try:
                self._append(what, data)
            except OSError:
                (self.directory / RESERVE).unlink(missing_ok=True)
                try:
                    self._append(what, data)
                except OSError:
                    (self.directory / COMPLETE).unlink(missing_ok=True)
                    raise

    def _append(self, what: str, data: bytes) -> None:
        descriptor = os.open(self.directory / what, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def faults(self) -> int:
        """A file descriptor for the stack that `faulthandler` writes when this process dies."""
        return os.open(self.directory / f"faults.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def folder(self) -> Path:
        return self.directory / str(os.getpid())

    def close(self) -> None:
        """Close the file of marks. Nothing may be marked afterwards."""
        if self._marks >= 0:
            os.close(self._marks)
        self._given_up, self._marks = True, -1

    def _slot(self) -> int:
        slot: int | None = getattr(self._threads, "slot", None)
        if slot is None:
            with self._lock:
                if self._marks < 0:
                    self.folder.mkdir(exist_ok=True)
                    self._marks = os.open(self.folder / "marks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                slot = self._threads.slot = self._slots
                self._slots += 1
        return slot

    def _mark(self, record: bytes) -> None:
        self._threads.current = record
        if not self._given_up:
            with self._writable():
                slot = self._slot()
                os.pwrite(self._marks, record, slot * SLOT)

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """Give up if the block cannot write: the program is not to notice."""
        try:
            yield
        except OSError as exc:
            if not self._given_up:
                self._given_up = True
                log.warning("fxminify cannot note what runs (%s); a crash or a hang would not be captured", exc)


@dataclass(frozen=True, slots=True)
class InFlight:
    """The work of a process in flight: the phase and graph of its latest mark that is not idle."""

    pid: int
    phase: str
    graph: int
    sequence: int
    folder: Path

    @property
    def failing_phase(self) -> Phase:
        """Return the phase of a failure of it. An eager run counts as ``forward``."""
        return Phase.FORWARD if self.phase == "eager" else Phase(self.phase)

    def document(self) -> Json | None:
        """Return the document of the graph, or None if it was not written completely."""
        return _document(self.folder, self.graph)


def _document(folder: Path, graph: int) -> Json | None:
    try:
        found: Any = json.loads((folder / f"{graph}.json").read_bytes())
    except (OSError, ValueError):  # the process died before, or while, writing
        return None
    return found if isinstance(found, dict) else None


def stack(directory: Path, pid: int) -> str:
    """Return the text that `faulthandler` wrote when the process died. It may be empty."""
    try:
        return (directory / f"faults.{pid}").read_text(errors="replace")
    except FileNotFoundError:
        return ""


def last_graph(directory: Path, pid: int) -> InFlight | None:
    """Return the graph that a process wrote last, even if it is not in flight, or None if it wrote no graph."""
    written = sorted((directory / str(pid)).glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    return InFlight(pid, IDLE, int(written[-1].stem), 0, written[-1].parent) if written else None


def in_flight(directory: Path) -> dict[int, InFlight]:
    """Return the work that each process under ``directory`` has in flight, by process id."""
    found: dict[int, InFlight] = {}
    for marks in directory.glob("*/marks"):
        text = marks.read_bytes()
        for start in range(0, len(text), SLOT):
            words = text[start : start + SLOT].decode(errors="replace").split()
            if len(words) != 3:
                continue
            pid = int(marks.parent.name)
            mark = InFlight(pid, words[0], int(words[1]), int(words[2]), marks.parent)
            if pid not in found or found[pid].sequence < mark.sequence:
                found[pid] = mark
    return found


def told(directory: Path, what: str) -> list[str]:
    """The lines of the list ``what``, in order, without those that were not written to their end."""
    try:
        text = (directory / what).read_text()
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines():
        try:
            found.append(str(json.loads(line)))
        except ValueError:  # the disk was full
            continue
    return found


class JournalBlobs(StorageReader):
    """The storages of a journal, each read when it is asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "blobs"

    def size(self, key: str) -> int:
        try:
            return self._file(key).stat().st_size
        except FileNotFoundError:
            raise KeyError(key) from None

    def pieces(self, key: str) -> Iterator[Piece]:
        try:
            yield from read(self._file(key))
        except FileNotFoundError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(p.name for p in self._directory.iterdir()))

    def _file(self, key: str) -> Path:
        return self._directory / os.path.basename(key)


def _replace(path: Path, parts: Iterable[Piece]) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        write(unfinished, parts)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
