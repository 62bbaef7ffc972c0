"""The installed versions of workers. A new version of a backend queues retests.

An *installation* of a backend has the versions of torch and of the package of the backend. The first worker with a
new installation queues a retest of each bug of that backend that has a verified script, and stores its name in the
table. Only workers with that installation take such a task: its label is the digest of the versions. For a backend
without installations yet, a bug that was captured with the same torch is not run again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session

from . import queue
from .bugs import Bugs
from .captures import Captures
from .database import Database, insert, now
from .documents import digest, dumps
from .tables import (
    BugRow,
    BugStatus,
    CaptureRow,
    EnvironmentRow,
    InstallationRow,
    ReproRow,
    TaskRow,
    TaskState,
    TriageRow,
)
from .tasks import NEVER

#: The name under which the versions are for all backends that have no name of their own.
OTHERS = ""
#: Bugs that are queued in one transaction.
BATCH = 500
#: The statuses of bugs, besides those without one, that are run again.
_RETESTED = (BugStatus.FIXED.value, BugStatus.REGRESSED.value)


def label_of(versions: Mapping[str, str]) -> str:
    """The label of workers with these versions."""
    return queue.label(queue.INSTALLED, _digest(versions)[:12])


class Installations:
    """``index.installations``."""

    def __init__(self, database: Database, captures: Captures, bugs: Bugs) -> None:
        self._database = database
        self._captures = captures
        self._bugs = bugs

    def announce(self, versions: Mapping[str, Mapping[str, str]]) -> int:
        """A worker has these versions, by backend; `OTHERS` are for backends without a name. Returns how many retests
        were queued."""
        with self._database.reading() as session:
            rows = session.execute(select(InstallationRow.backend, InstallationRow.environment)).all()
        known = {(backend, environment) for backend, environment in rows}
        queued = 0
        for backend, installed in sorted(versions.items()):
            if (backend, _digest(installed)) in known:
                continue
            of_it = BugRow.backend.not_in(list(versions)) if backend == OTHERS else BugRow.backend == backend
            is_first = backend not in {name for name, _ in known}
            queued += self._retest(of_it, installed, is_first=is_first)
            self._database.write(lambda session: _note(session, backend, installed))  # noqa: B023
        return queued

    def _retest(self, of_it: ColumnElement[bool], installed: Mapping[str, str], *, is_first: bool) -> int:
        """Queue a retest of these bugs. It may be done twice where it is interrupted: a task is queued once."""
        is_script = (ReproRow.format == "script", ReproRow.verified > 0, CaptureRow.bug.is_not(None))
        with_script = select(CaptureRow.bug).join(ReproRow, ReproRow.capture == CaptureRow.id).where(*is_script)
        aside = select(TriageRow.bug).where(TriageRow.status.not_in(_RETESTED))
        chosen = select(BugRow.id).where(of_it, BugRow.id.in_(with_script), BugRow.id.not_in(aside))
        last = queued = 0
        while True:
            with self._database.reading() as session:
                page = session.scalars(chosen.where(BugRow.id > last).order_by(BugRow.id).limit(BATCH)).all()
            if not page:
                return queued
            last = page[-1]
            tasks: list[tuple[int, int, str]] = []
            for bug in page:
                capture = self._bugs.with_script(bug)
                if capture is None:
                    continue
                if is_first and self._captures.get(capture).provenance.get("torch") == installed.get("torch"):
                    continue
                tasks.append((bug, capture, _needs(self._captures.known_needs(capture), installed)))
            self._database.write(lambda session: _put(session, tasks))  # noqa: B023
            queued += len(tasks)


def _needs(needs: str, installed: Mapping[str, str]) -> str:
    return " ".join(sorted({*queue.of_any_torch(needs).split(), label_of(installed)}))


def _put(session: Session, tasks: Collection[tuple[int, int, str]]) -> None:
    """Queue these retests. Those that wait for an installation that no worker has any more are cancelled."""
    for bug, capture, needs in tasks:
        older = update(TaskRow).where(
            TaskRow.kind == queue.RETEST, TaskRow.capture == capture, TaskRow.state == TaskState.WAITING.value,
            TaskRow.until == NEVER, TaskRow.needs != needs,
        )  # fmt: skip
        why = "a newer installation is there, on which it is run again"
        ended = {"state": TaskState.CANCELLED.value, "why": why, "open": None, "finished": now(), "until": 0.0}
        session.execute(older.values(ended), execution_options={"synchronize_session": False})
        insert(session, TaskRow, [queue.columns(session, bug, capture, needs, queue.RETEST)])


def _note(session: Session, backend: str, installed: Mapping[str, str]) -> None:
    key = _digest(installed)
    insert(session, EnvironmentRow, [{"digest": key, "versions": dumps(dict(installed))}])
    insert(session, InstallationRow, [{"backend": backend[:100], "environment": key, "at": now()}])


def _digest(versions: Mapping[str, str]) -> str:
    return digest(dumps(dict(versions)).encode())
