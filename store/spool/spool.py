"""The spool: the folder of this user in which captures wait until a server has them.

A program that is captured only writes files here, whole or not at all, and never waits for a server; a process of its
own sends them (`fxminify.store.spool.sender`). A *capture* file has a failure with its case. An *again* file counts
more occurrences of one. The name of a file says when it was written, under which key it is sent, which capture it is,
which bug and how large, so that a program, which may not be delayed, need only look at the names: there may be
thousands.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StoreError, full
from ..index.documents import digest, dumps
from ..recording import Recording, backend_of, identity_of, shape_of
from ..signature import signature

log = logging.getLogger("fxminify")

#: Names the folder with the spools; without it they are among the state of this user.
FOLDER = "FXMINIFY_SPOOL"
#: The most megabytes of captures that wait for one server, and how many there are without the variable.
LIMIT, DEFAULT_LIMIT = "FXMINIFY_SPOOL_LIMIT", 4096
CAPTURE, AGAIN = "capture", "again"
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class SpoolItem:
    """A file in the spool.

    ``identity`` comes from `fxminify.store.recording`. ``bug`` identifies its bug, see `bug_of`. ``size`` is its
    number of bytes, or None if its name does not have it.
    """

    path: Path
    key: str
    identity: str
    bug: str
    kind: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class _Name:
    """The parts of the name of a file."""

    text: str
    key: str
    identity: str
    bug: str
    size: int | None
    kind: str


@dataclass(frozen=True, slots=True)
class Again:
    """The content of an again file: the number of further occurrences of a capture, and their versions."""

    times: int
    versions: Mapping[str, str]


def is_server(place: str) -> bool:
    """Whether captures are sent to ``place``, and not stored there."""
    return place.startswith(("http://", "https://"))


def is_loopback(host: str) -> bool:
    """Whether this is the name or the address of this machine, for its own programs only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def spools() -> list[Spool]:
    """Return the spools of this user that are not empty."""
    found = []
    with suppress(FileNotFoundError):
        for folder in sorted(_root().iterdir()):
            with suppress(OSError):
                spool = Spool((folder / "server").read_text().strip())
                if spool.items() or spool.refused():
                    found.append(spool)
    return found


class Spool:
    """The queue of captures for the server with the address ``server``."""

    def __init__(self, server: str) -> None:
        self.server = server.rstrip("/")
        self.folder = _root() / digest(self.server.encode())[:16]

    def prepare(self) -> None:
        """Make the folder. Raises `StoreError` where nothing can be written."""
        with self._explained():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in ("refused", "seen"):
                (self.folder / name).mkdir(exist_ok=True)
            if not (self.folder / "server").exists():
                self._write(self.folder / "server", f"{self.server}\n".encode())

    def put(self, met: Recording) -> str:
        """Let a failure of this user wait, without what is private here. Returns its identity.

        If it waits already, one more occurrence does. Raises `StoreError` where there is no space for it.
        """
        from ..index import trust
        from ..index.documents import pack
        from . import upload

        met = met.masked()
        known = signature(met.failure).digest
        backend = backend_of(met.case, met.provenance)
        identity = identity_of(backend, shape_of(met.case, met.graph_text, met.reason), known)
        bug = bug_of(backend, known)
        self.prepare()
        waiting = self._names()
        if any(name.identity == identity and name.kind == CAPTURE for name in waiting):
            self.again(identity, 1, _versions(met.provenance), bug)
            return identity
        origin = "" if met.case is None else trust.origin_tag(pack(met.case)[0], identity)
        draft = self.folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with self._explained():
                upload.write(upload.Upload(met, origin, trust.maker(create=True)), draft)
                size = draft.stat().st_size
                self._make_room(size, bug, waiting)
                draft.rename(self._name(identity, f"{bug}-{size}", CAPTURE))
        finally:
            draft.unlink(missing_ok=True)
        return identity

    def again(self, identity: str, times: int, versions: Mapping[str, str], bug: str = "") -> None:
        """Let ``times`` more occurrences of a capture wait."""
        self.prepare()
        content = dumps({"times": times, "versions": dict(versions)}).encode()
        with self._explained():
            self._write(self._name(identity, bug or "0" * 16, AGAIN), content)

    def remember(self, bug: str, identity: str) -> None:
        """This capture stands for its bug: `recall` finds it after it was sent."""
        self.prepare()
        with self._explained():
            self._write(self.folder / "seen" / bug, identity.encode())

    def recall(self, bug: str) -> str:
        """Return the identity of the capture that represents a bug, or an empty text if it is unknown."""
        with suppress(OSError):
            return (self.folder / "seen" / bug).read_text()
        return ""

    def forget(self, identity: str) -> None:
        """The server does not know this capture: it stands for no bug any more."""
        with suppress(OSError):
            for file in (self.folder / "seen").iterdir():
                if file.read_text() == identity:
                    file.unlink(missing_ok=True)

    def items(self) -> list[SpoolItem]:
        """List the files that wait, oldest first."""
        return [
            SpoolItem(self.folder / name.text, name.key, name.identity, name.bug, name.kind, name.size)
            for name in self._names()
        ]

    def _names(self) -> list[_Name]:
        """The names of what waits, oldest first."""
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith((f".{CAPTURE}", f".{AGAIN}")))
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            stem, _, kind = name.partition(".")
            _, *parts = stem.split("-")
            if len(parts) == 3:
                found.append(_Name(name, parts[0], parts[1], parts[2], None, kind))
            elif len(parts) == 4 and parts[3].isdecimal():
                found.append(_Name(name, parts[0], parts[1], parts[2], int(parts[3]), kind))
        return found

    def refused(self) -> list[Path]:
        """The captures that the server did not want, each with the reason beside it."""
        return sorted((self.folder / "refused").glob(f"*.{CAPTURE}"))

    def refuse(self, item: SpoolItem, why: str) -> None:
        """The server does not want it: it is kept, and not sent again by itself."""
        self._write(self.folder / "refused" / f"{item.path.name}.txt", f"{why}\n".encode())
        with suppress(FileNotFoundError):
            item.path.rename(self.folder / "refused" / item.path.name)

    def take_back(self) -> int:
        """Let what was refused wait again. Returns how many captures."""
        found = self.refused()
        for path in found:
            path.rename(self.folder / path.name)
            path.with_name(f"{path.name}.txt").unlink(missing_ok=True)
        return len(found)

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """Hold the right to send inside the block. Yield False if another process has it."""
        self.prepare()
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def is_sending(self) -> bool:
        """Whether somebody sends what waits here."""
        with self.sending() as alone:
            return not alone

    def _make_room(self, size: int, bug: str, names: Sequence[_Name]) -> None:
        """Drop the oldest captures whose bug has others, until there is space for ``size`` bytes of the bug ``bug``.

        As long as there is enough, only the ``names`` of what waits are looked at.
        """
        limit = int(float(os.environ.get(LIMIT) or DEFAULT_LIMIT) * _MB)
        known = [name.size for name in names if name.kind == CAPTURE]
        if None not in known and size + sum(known_size or 0 for known_size in known) <= limit:
            return
        waiting = {item: _size(item.path) for item in self.items() if item.kind == CAPTURE}
        bugs = Counter([bug, *(item.bug for item in waiting)])
        for item in list(waiting):
            if sum(waiting.values()) + size <= limit:
                break
            if bugs[item.bug] > 1:
                bugs[item.bug] -= 1
                del waiting[item]
                item.path.unlink(missing_ok=True)
                self._say_dropped(item)
        if sum(waiting.values()) + size > limit:
            raise StoreError(
                f"{self.folder} is as large as it may be ({LIMIT}={limit // _MB}): `minify send` empties it"
            )

    def _say_dropped(self, item: SpoolItem) -> None:
        log.warning("fxminify dropped a capture that waited for %s: there are others of its bug", self.server)
        with (self.folder / "dropped").open("a") as file:
            file.write(f"{item.path.name}\n")

    def _name(self, identity: str, bug: str, kind: str) -> Path:
        return self.folder / f"{time.time_ns():020d}-{uuid.uuid4().hex}-{identity}-{bug}.{kind}"

    def _write(self, path: Path, content: bytes) -> None:
        """Write a file so that a reader sees all of it or nothing."""
        draft = self.folder / f".{uuid.uuid4().hex}.tmp"
        try:
            draft.write_bytes(content)
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise a `StoreError` for what disks raise inside the block."""
        from safetensors import SafetensorError

        try:
            yield
        except SafetensorError as exc:  # that is how it says that a file cannot be written
            raise StoreError(full(str(self.folder))) from exc
        except OSError as exc:
            why = exc.strerror or type(exc).__name__
            raise StoreError(f"{self.folder} cannot be written ({why}): {FOLDER} names another folder") from exc


def read_again(item: SpoolItem) -> Again:
    """Read an again file. Return one occurrence if it cannot be read."""
    try:
        found: Any = json.loads(item.path.read_bytes())
        return Again(int(found["times"]), {str(name): str(version) for name, version in found["versions"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return Again(1, {})


def bug_of(backend: Mapping[str, Any], signature: str) -> str:
    """Return a digest that identifies the bug in names of files."""
    return digest(f"{backend.get('name', '')} {signature}".encode())[:16]


def _versions(provenance: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(provenance[name]) for name in ("torch", "python") if provenance.get(name)}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it was sent meanwhile
        return 0


def _root() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(os.environ.get(FOLDER) or os.path.join(state, "fxminify", "spool"))
