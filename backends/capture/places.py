"""Destinations of captures: an index, or the spool of a server. A program never waits for a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from ...store.recording import Recording, backend_of
from ...store.signature import Signature
from ...store.spool.spool import Spool, bug_of, is_server

#: What a place calls a capture: its id in an index, or its identity.
CaptureName = int | str


class CapturePlace(Protocol):
    """Each call is complete in itself and may raise `fxminify.store.errors.StoreError`."""

    def record(self, met: Recording) -> CaptureName:
        """Keep a failure that a program of this user met."""

    def seen_again(self, capture: CaptureName, times: int, versions: Mapping[str, str]) -> None:
        """Count ``times`` more occurrences of a capture."""

    def remember(self, backend: str, known: Signature, capture: CaptureName) -> None:
        """A capture stands for all of its backend with this signature."""

    def recorded(self, backend: str, known: Signature) -> CaptureName | None:
        """Return a capture of this backend and signature, also by another process, or None if there is no such
        capture.
        """


class IndexPlace:
    """The index ``db``, a path or a URL."""

    def __init__(self, db: str) -> None:
        self._db = db

    def record(self, met: Recording) -> CaptureName:
        from ...store.index import Index

        with Index.open(self._db, create=True) as index:
            return index.captures.record(met)

    def seen_again(self, capture: CaptureName, times: int, versions: Mapping[str, str]) -> None:
        from ...store.index import Index

        with Index.open(self._db, create=True) as index:
            index.captures.seen_again(int(capture), times, dict(versions))

    def remember(self, backend: str, known: Signature, capture: CaptureName) -> None:
        """An index knows it anyway."""

    def recorded(self, backend: str, known: Signature) -> CaptureName | None:
        from ...store.index import Index

        if "://" not in self._db and not os.path.exists(self._db):
            return None
        with Index.open(self._db, create=True) as index:
            rows = index.captures.find(backend=backend, signatures=[known.digest], limit=1)
        return rows[0].id if rows else None


class ServerPlace:
    """The spool of the server at ``address``, and the process that sends what is there."""

    def __init__(self, address: str) -> None:
        self._spool = Spool(address)

    def record(self, met: Recording) -> CaptureName:
        identity = self._spool.put(met)
        self._send()
        return identity

    def seen_again(self, capture: CaptureName, times: int, versions: Mapping[str, str]) -> None:
        self._spool.again(str(capture), times, versions)
        self._send()

    def remember(self, backend: str, known: Signature, capture: CaptureName) -> None:
        self._spool.remember(bug_of(backend_of(None, {"backend": backend}), known.digest), str(capture))

    def recorded(self, backend: str, known: Signature) -> CaptureName | None:
        return self._spool.recall(bug_of(backend_of(None, {"backend": backend}), known.digest)) or None

    def _send(self) -> None:
        from ...store.spool.sender import start

        start(self._spool)


def place_of(db: str) -> CapturePlace:
    """Return the destination ``db`` of captures: a path, the URL of a database, or the address of a server."""
    return ServerPlace(db) if is_server(db) else IndexPlace(db)


def check(db: str) -> None:
    """Raise `fxminify.store.errors.StoreError` if nothing can be captured into ``db``. A server is not asked."""
    if is_server(db):
        Spool(db).prepare()
        return
    from ...store.index import Index

    Index.check(db)
