"""`Index`, the interface of the store on disk. It has one part for each kind of row.

Reading a file executes nothing of it, see `fxminify.store.index.sqlite` and `fxminify.store.document.decode`.
An `Index` may be shared by threads but not across a fork: open it where it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ..document.case import Case
from ..errors import StoreError
from .artifacts import Artifacts, ReproInfo, Repros
from .blobs import INLINE_LIMIT, BlobStore
from .bugs import BugInfo, Bugs
from .captures import CaptureInfo, Captures
from .cases import CaseStore
from .cleaning import Cleaner
from .database import Database, check_place, open_database
from .deliveries import Deliveries, DeliveryInfo
from .events import EventInfo, Events
from .installations import Installations
from .leases import Leases
from .reductions import ReductionInfo, Reductions, StepInfo
from .retests import Retest, Retests
from .sessions import Sessions
from .sharing import Masks, Shared, share
from .stored import StoredCapture, StoredCase, StoredScript, StoredStep, read, read_step
from .tables import BugStatus, DeliveryState, RetestResult, State, TaskState
from .tasks import TaskInfo, Tasks, WorkerInfo
from .tokens import TokenInfo, Tokens, TokenScope
from .triage import Regrouped, Triage
from .unneeded_values import UnneededValues
from .uploads import Uploads
from .verdicts import StoredVerdict, Verdicts

__all__ = [
    "BugInfo", "BugStatus", "CaptureInfo", "DeliveryInfo", "DeliveryState", "EventInfo", "Index", "ReductionInfo",
    "Regrouped", "ReproInfo", "Retest", "RetestResult", "State", "StepInfo", "StoreError", "StoredCapture",
    "StoredCase", "StoredScript", "StoredStep", "StoredVerdict", "TaskInfo", "TaskState", "TokenInfo", "TokenScope",
    "WorkerInfo",
]  # fmt: skip

#: The reason of a capture whose script is verified, although its minification was interrupted.
INTERRUPTED = "interrupted, it may become smaller"


class Index:
    """An open index. Every method may raise `StoreError` with one sentence for the terminal."""

    def __init__(self, database: Database, inline_limit: int = INLINE_LIMIT) -> None:
        self.database = database
        #: The storages of all cases, by content.
        self.blobs = BlobStore(database, inline_limit)
        self._cases = cases = CaseStore(database, self.blobs)
        #: One row for each failure.
        self.captures = Captures(database, cases)
        #: One row for captures that fail in the same way.
        self.bugs = Bugs(database)
        #: Locks of processes on the captures that they work on.
        self.leases = Leases(database)
        #: The queue of captures to minify.
        self.tasks = Tasks(database, self.captures)
        #: The installed versions of workers.
        self.installations = Installations(database, self.captures, self.bugs)
        #: The status of bugs: ignored, obsolete, fixed, duplicate.
        self.triage = Triage(database, self.tasks)
        #: Queries and their answers.
        self.verdicts = Verdicts(database)
        #: Steps and best cases.
        self.reductions = Reductions(database, cases, self.verdicts)
        #: Rendered files.
        self.repros = Repros(database, cases)
        #: All other findings about a capture.
        self.artifacts = Artifacts(database)
        #: Access tokens of a server.
        self.tokens = Tokens(database)
        #: Browsers that are signed in.
        self.sessions = Sessions(database)
        #: Uploads of senders.
        self.uploads = Uploads(database)
        #: The log of events.
        self.events = Events(database)
        #: Notifications of events.
        self.deliveries = Deliveries(database, self.events)
        #: Removal of unused captures and storages.
        self.cleaner = Cleaner(database, cases, self.blobs)
        #: Values that are removed when a script was verified without them.
        self.unneeded_values = UnneededValues(database, cases, self.blobs)
        #: Minimal cases that were run again.
        self.retests = Retests(database)

    @classmethod
    def open(
        cls,
        path_or_url: str,
        *,
        create: bool = False,
        readonly: bool = False,
        inline_limit: int = INLINE_LIMIT,
        timeout: float = 30.0,
    ) -> Self:
        """Open a file, or a server by URL.

        ``create`` makes a missing or empty file, ``readonly`` never changes anything and works on read-only files and
        directories. Storages above ``inline_limit`` bytes lie beside the file. ``timeout`` is in seconds, for a file
        another process is writing to.
        """
        database = open_database(str(path_or_url), create=create and not readonly, readonly=readonly, timeout=timeout)
        return cls(database, inline_limit)

    @classmethod
    def check(cls, path_or_url: str, *, timeout: float = 30.0) -> None:
        """Raise `StoreError` if nothing can be stored there. Makes nothing."""
        check_place(str(path_or_url), timeout=timeout)

    @property
    def name(self) -> str:
        """The file or URL as the user gave it (no password)."""
        return self.database.name

    def best(self, of: ReductionInfo | CaptureInfo) -> Case | None:
        """Return the smallest case so far of a reduction or a capture.

        For a capture, return the case of its verified script, or else of its last reduction. A bare id is not
        accepted, because it may belong to either.
        """
        if isinstance(of, ReductionInfo):
            return self.reductions.best(of.id)
        if isinstance(of, CaptureInfo):
            found = self.stored(of.id).smaller()
            return None if found is None else found.case
        raise TypeError(f"best() takes a ReductionInfo or a CaptureInfo, not {of!r}")

    def stored(self, id: int) -> StoredCapture:
        """Read the runnable parts of a capture in one transaction: see `fxminify.store.index.stored`."""
        return read(self.database, self._cases, id)

    def stored_step(self, id: int, number: int) -> StoredStep | None:
        """The case of a step of the last reduction of a capture, read once; None if it was never reduced."""
        return read_step(self.database, self._cases, id, number)

    def share(self, path: Path, ids: Sequence[int], masks: Masks, *, force: bool = False) -> Shared:
        """Write a new file with the captures ``ids`` (empty: all), scrubbed: see `fxminify.store.index.sharing`."""
        return share(self.database, self.blobs, path, ids, masks, force=force)

    def interrupted(self, id: int) -> None:
        """Give a capture the state that it has after work on it ended early."""
        script = self.repros.get(id)
        if script is not None and script.verified:
            self.captures.set_state(id, State.VERIFIED, INTERRUPTED)
        else:
            self.captures.set_state(id, State.PENDING)

    def settle(self, besides: Collection[int] = ()) -> list[int]:
        """Take captures out of the state ``reducing`` whose process has ended. Returns their ids.

        ``besides`` are ids of others that the caller will work on.
        """
        settled = []
        for capture in self.captures.find((), (State.REDUCING,)):
            if capture.id not in besides and self.leases.take(capture.id):
                if self.captures.get(capture.id).state is State.REDUCING:
                    self.interrupted(capture.id)
                    settled.append(capture.id)
                self.leases.give_back(capture.id)
        return settled

    def close(self) -> None:
        """Write what waits to be written, give back the leases, and close the connections."""
        try:
            self.verdicts.flush()
        finally:
            self.leases.close()
            self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
