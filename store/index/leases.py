"""Leases of processes on captures that they work on, so that no two processes work on one.

A lease is a row. Its holder renews it every `RENEWED` seconds. Another process takes a lease over, and increases
its *fence*, if it was not renewed for `LASTS` seconds, or if its process on this machine is gone. A process that
was stopped for that long may wake up and continue: what it then writes about the capture raises `LeaseLost` and
changes nothing.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from ..errors import StoreError
from ..processes import machine, started
from .database import Database, insert
from .tables import CaptureRow, LeaseRow

#: Seconds that a lease lasts unless it is renewed, and seconds between two renewals.
LASTS, RENEWED = 60.0, 15.0


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """The lease of a process on a capture. ``here`` is true for a process of this machine.

    It ends in ``seconds`` unless it is renewed.
    """

    capture: int
    pid: int
    here: bool
    seconds: float

    def __str__(self) -> str:
        return f"process {self.pid}" if self.here else f"process {self.pid} of another machine"


class Leases:
    """``index.leases``: the leases of this index, and of other processes. Threads may share this object."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._me = own_name()
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None

    def take(self, capture_id: int) -> bool:
        """Whether this index holds the capture now, as before or from here on. False if another one does."""

        def take(session: Session) -> int | None:
            self._database.need(session, CaptureRow, capture_id)
            insert(session, LeaseRow, [{"capture": capture_id, "fence": 0, "holder": "", "until": 0.0}])
            row = session.get_one(LeaseRow, capture_id, with_for_update=True)
            clock = time_of(session)
            if row.until > clock and row.holder != self._me and not is_gone(row.holder):
                return None
            if row.holder != self._me:
                row.holder, row.fence = self._me, row.fence + 1
            row.until = clock + LASTS
            return row.fence

        fence = self._database.write(take)
        if fence is None:
            return False
        self._database.fences[capture_id] = fence
        if self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="fxminify leases", daemon=True)
            self._renewing.start()
        return True

    def give_back(self, capture_id: int) -> None:
        """Let others take the capture; nothing if this index does not hold it.

        Where another has it, this index can still not write about it.
        """
        if capture_id in self._database.fences and self._database.write(
            lambda session: self._set(session, [capture_id], holder="", until=0.0)
        ):
            self._database.fences.pop(capture_id, None)

    def find(self) -> list[LeaseInfo]:
        """The captures that are worked on, by id."""
        with self._database.reading() as session:
            clock = time_of(session)
            rows = session.scalars(select(LeaseRow).where(LeaseRow.until > clock).order_by(LeaseRow.capture)).all()
        held = [(row, *_holder(row.holder)) for row in rows if not is_gone(row.holder)]
        here = machine()
        return [LeaseInfo(row.capture, pid, where == here, row.until - clock) for row, where, pid, _ in held]

    def close(self) -> None:
        """Give everything back."""
        self._ended.set()
        if self._renewing is not None:
            self._renewing.join()
            for capture_id in list(self._database.fences):
                with suppress(StoreError):  # it ends by itself
                    self.give_back(capture_id)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED):
            held = list(self._database.fences)
            with suppress(StoreError):  # the server is away; it may be back before the leases end
                self._database.write(lambda session: self._set(session, held, until=time_of(session) + LASTS))  # noqa: B023

    def _set(self, session: Session, captures: list[int], **columns: object) -> int:
        """Change the leases on these captures that are still this index's. Returns how many those are."""
        own = (LeaseRow.capture.in_(captures), LeaseRow.holder == self._me)
        return len(session.scalars(update(LeaseRow).where(*own).values(columns).returning(LeaseRow.capture)).all())


def time_of(session: Session) -> float:
    """The time now in seconds, as all who use the index see it."""
    clock = clock_of(session)
    return clock if isinstance(clock, float) else float(session.scalars(select(clock)).one())


def clock_of(session: Session) -> Any:
    """Return `time_of` as an SQL expression. On a server this saves a query."""
    on_server = session.get_bind().dialect.name == "postgresql"
    return func.extract("epoch", func.clock_timestamp()) if on_server else time.time()


def own_name() -> str:
    """A name for a holder in this process, which no other has."""
    return f"{machine()} {os.getpid()} {started(os.getpid())} {uuid.uuid4().hex[:8]}"


def _holder(text: str) -> tuple[str, int, str]:
    """The machine, the process and its start in the name of a holder."""
    where, pid, since, _ = (text.split(" ") + 4 * [""])[:4]
    return where, int(pid) if pid.isdecimal() and len(pid) < 10 else 0, since


def process_of(holder: str) -> str:
    """The process of a holder in words."""
    where, pid, _ = _holder(holder)
    return str(LeaseInfo(0, pid, where == machine(), 0.0))


def is_gone(holder: str) -> bool:
    """Whether the holder of a lease is a process of this machine that has ended."""
    where, pid, since = _holder(holder)
    return where == machine() and started(pid) != since
