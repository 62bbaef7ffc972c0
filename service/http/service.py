"""Shared state of the routes of one server: the index, the limits, the disk, the signing key."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

from ...store.index import Index, TokenInfo
from ...store.index.arrivals import Arrival, Stored
from ...store.index.signing import CaptureSigner
from ...store.spool.spool import is_loopback
from ..workers.targets import Target
from .disk import Disk
from .metrics import Metrics
from .together import Together

if TYPE_CHECKING:
    from pathlib import Path

#: The most uploads in progress at a time, further ones get 503; and the most uploads that are read at once.
UPLOADS, READ = 128, 8
#: Failures that are stored in one transaction, and tokens that are looked up at once.
STORED, LOOKED_UP = 256, 100
#: Streams of events at the same time.
STREAMS = 100


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of a server.

    * ``host``, ``port``: the address to listen on; ``certificate``, ``key``: files for TLS.
    * ``max_upload``: the most bytes of an upload, compressed or not.
    * ``low``, ``least``: bytes of free space below which it warns, and below which it accepts no uploads.
    * ``tokens``: require tokens on this machine as well, as behind a proxy.
    * ``work``: the number of tasks that a worker beside the server minifies at a time; 0: no worker.
    * ``as_json``: the log is JSON, a line for each event.
    * ``targets``: receivers of notifications, with links to ``page``.
    """

    host: str = "127.0.0.1"
    port: int = 8437
    certificate: str = ""
    key: str = ""
    max_upload: int = 1 << 30
    low: int = 2 << 30
    least: int = 512 << 20
    tokens: bool = False
    work: int = 0
    as_json: bool = False
    targets: tuple[Target, ...] = ()
    page: str = ""

    @property
    def is_open(self) -> bool:
        """Whether programs of this machine need no token."""
        return not self.tokens and is_loopback(self.host)


@dataclass
class Service:
    """A server. Uploads lie in ``folder`` until they are stored."""

    index: Index
    options: ServeOptions
    disk: Disk
    folder: Path
    uploads: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(UPLOADS))
    ending: threading.Event = field(default_factory=threading.Event)
    streams: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(STREAMS))
    #: What forms are made with for those who have no token.
    form_secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    metrics: Metrics = field(init=False)
    #: What many requests do at the same time.
    storing: Together[Sequence[Arrival], Sequence[Stored | None]] = field(init=False)
    tokens: Together[str, TokenInfo | None] = field(init=False)
    sessions: Together[str, TokenInfo | None] = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.index, self.disk)
        self.storing = Together("storing", self._store, most=STORED, size=len)
        self.tokens = Together("tokens", self.index.tokens.check_all, most=LOOKED_UP)
        self.sessions = Together("sessions", self.index.sessions.check_all, most=LOOKED_UP)

    def _store(self, together: Sequence[Sequence[Arrival]]) -> Sequence[Sequence[Stored | None]]:
        stored = iter(self.index.captures.store([one for arrivals in together for one in arrivals]))
        return [list(itertools.islice(stored, len(arrivals))) for arrivals in together]

    @cached_property
    def reading(self) -> anyio.CapacityLimiter:
        """Limit the uploads that are read and packed at once. They have separate threads from other requests."""
        return anyio.CapacityLimiter(READ)

    @cached_property
    def signer(self) -> CaptureSigner:
        return CaptureSigner()
