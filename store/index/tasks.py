"""The queue of `minify work`: captures to minify, their workers, and the reasons why tasks wait.

A worker *claims* a task, which is then leased to the worker, and starts a *driver* for it, a process that renews
the lease. Each claim increases the fence of the task, and each write about a task compares it: a driver that was
stopped, lost its task and woke up changes nothing. `Tasks.sweep`, which every worker calls every few seconds,
queues tasks again whose lease has expired. So a task may be begun twice, which does no harm, because reductions
resume.

The same statements work on SQLite and on PostgreSQL; on PostgreSQL, claims skip rows that another worker is
claiming.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, CursorResult, Executable, bindparam, delete, func, select, update
from sqlalchemy.orm import Session, aliased

from .. import codec
from ..document.case import Json
from ..errors import ForeignValue, StoreError, UnknownRow
from . import events, queue
from .captures import Captures
from .database import Database, now
from .documents import dumps, loads
from .leases import LASTS, RENEWED, clock_of, is_gone, own_name, process_of, time_of
from .tables import CaptureRow, State, TaskRow, TaskState, WorkerRow

#: Drivers that may end without an answer before a task is put into quarantine.
ATTEMPTS = 3
#: Seconds until a task is tried again whose driver ended without an answer; twice as many after each further one.
BACKOFF = 5.0
#: Tasks in these states are not over.
OPEN = (TaskState.QUEUED, TaskState.LEASED, TaskState.WAITING)
#: The time until which a task waits that only another worker can serve.
NEVER = 1e15
#: Seconds after which a worker that was not seen is forgotten.
_FORGOTTEN = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task. ``until`` is a Unix time, see `TaskRow`; ``config`` has options of the minification."""

    id: int
    kind: str
    bug: int
    capture: int
    state: TaskState
    why: str
    needs: str
    priority: int
    attempts: int
    fence: int
    until: float
    worker: int | None
    config: Json
    budget: float | None
    created: str
    started: str | None
    finished: str | None

    def to_json(self) -> Json:
        """The fields as JSON values, as `minify tasks --json` prints them."""
        return codec.dump(self)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that is alive, what it ``can`` do, and its process in words."""

    id: int
    name: str
    process: str
    can: frozenset[str]


class Tasks:
    """``index.tasks``. May be shared by threads."""

    def __init__(self, database: Database, captures: Captures) -> None:
        self._database = database
        self._captures = captures

    def join(self, name: str, can: Collection[str]) -> int:
        """Add a worker in this process. Returns its id."""

        def add(session: Session) -> int:
            row = WorkerRow(name=name, holder=own_name(), can=" ".join(sorted(can)), seen=time_of(session))
            session.add(row)
            session.flush()
            return row.id

        return self._database.write(add)

    def leave(self, worker: int) -> None:
        """Remove a worker, whose drivers have ended. What is leased to it is given back."""

        def leave(session: Session) -> None:
            own = (TaskRow.state == TaskState.LEASED.value, TaskRow.worker == worker)
            back = {"state": TaskState.QUEUED.value, "why": "its worker was ended", "holder": "", "until": 0.0}
            session.execute(update(TaskRow).where(*own).values(back), execution_options=_PLAIN)
            session.execute(delete(WorkerRow).where(WorkerRow.id == worker))

        self._database.write(leave)

    def workers(self) -> list[WorkerInfo]:
        """The workers that are alive, by id."""
        with self._database.reading() as session:
            return [
                WorkerInfo(row.id, row.name, process_of(row.holder), frozenset(row.can.split()))
                for row in _alive(session)
            ]

    def add(
        self,
        capture_id: int,
        *,
        kind: str = queue.MINIFY,
        config: Mapping[str, Any] | None = None,
        budget: float | None = None,
        actor: str = "",
    ) -> int:
        """Queue a capture, whatever became of it and its bug. Returns the id of the task.

        Raises `StoreError` if the bug of the capture has an open task of this ``kind``.
        """
        needs = self._captures.needs(capture_id)
        if kind == queue.RETEST:  # what another version shows is what is asked for
            needs = queue.of_any_torch(needs)

        def add(session: Session) -> int:
            bug = self._database.need(session, CaptureRow, capture_id).bug
            assert bug is not None
            columns = queue.columns(session, bug, capture_id, needs, kind)
            self._need_no_other(session, str(columns["open"]))
            row = TaskRow(**columns | {"config": dumps(dict(config or {})), "budget": budget})
            session.add(row)
            session.flush()
            _tell(session, row.id, bug, capture_id, row.state, "", actor)
            return row.id

        return self._database.write(add)

    def fill(self) -> int:
        """Queue captures that were stored before there were tasks. Returns how many."""
        with self._database.reading() as session:
            open_ = select(TaskRow.bug).where(TaskRow.open.is_not(None))
            verified = select(CaptureRow.bug).where(CaptureRow.state == State.VERIFIED.value)
            waiting = (
                select(CaptureRow.bug)
                .where(CaptureRow.state.in_(_UNTRIED), CaptureRow.id.not_in(select(TaskRow.capture)))
                .where(CaptureRow.bug.not_in(open_), CaptureRow.bug.not_in(verified.where(CaptureRow.bug.is_not(None))))
                .distinct()
            )
            bugs = [bug for bug in session.scalars(waiting) if bug is not None]
        for bug in bugs:
            self.follow(bug)
        return len(bugs)

    def claim(self, worker: int, can: Collection[str]) -> TaskInfo | None:
        """Lease the most urgent task that a worker with these labels can serve. Return None if there is no such
        task.

        A task of another version of torch is left to a worker that has it, if there is one.
        """
        if self._database.path is None:
            return self._database.write(lambda session: _claim(session, worker, _served(session, worker, can)))
        with self._database.reading() as session:  # hold the write lock of a file only briefly
            served = _served(session, worker, can)
        return self._database.write(lambda session: _claim(session, worker, served)) if served else None

    def heartbeat(self, task: TaskInfo, holder: str = "") -> bool:
        """Renew the lease of a task for its driver ``holder``. False if it is not this driver's any more."""
        return self._change(task, lambda session: {"until": clock_of(session) + LASTS, "holder": holder})

    def mine(self, worker: int) -> set[tuple[int, int]]:
        """The worker is alive. Returns the ids and fences of the tasks that are leased to it."""

        def beat(session: Session) -> set[tuple[int, int]]:
            session.execute(update(WorkerRow).where(WorkerRow.id == worker).values(seen=clock_of(session)))
            own = select(TaskRow.id, TaskRow.fence).where(
                TaskRow.state == TaskState.LEASED.value, TaskRow.worker == worker
            )
            return {(id, fence) for id, fence in session.execute(own)}

        return self._database.write(beat)

    def finish(self, task: TaskInfo, state: TaskState, why: str = "") -> bool:
        """The task is over, and another capture of its bug is queued if that has no verified script.

        False if the task was lost.
        """
        ended = {"state": state.value, "why": why, "finished": now(), "open": None, "holder": "", "until": 0.0}
        if not self._change(task, lambda session: ended, tell=True):
            return False
        if task.kind == queue.MINIFY:
            self.follow(self.get(task.id).bug)  # which may have been merged meanwhile
        return True

    def settle(self, capture_id: int) -> None:
        """Close the tasks that `minify run` has done and that no driver has leased.

        These are the tasks of the capture if it is over now, or the tasks of its bug if there is a verified script.
        """
        capture = self._captures.get(capture_id)
        if capture.state in (*_UNTRIED, State.BLOCKED):
            return
        verified = capture.state is State.VERIFIED
        about = TaskRow.capture == capture_id
        waiting = select(TaskRow).where(
            TaskRow.kind == queue.MINIFY,
            TaskRow.state.in_([TaskState.QUEUED.value, TaskState.WAITING.value]),
            about | (TaskRow.bug == capture.bug) if verified else about,
        )

        def settle(session: Session) -> list[TaskRow]:
            rows = list(session.scalars(waiting.order_by(TaskRow.id).with_for_update()))
            for row in rows:
                row.state = (TaskState.DONE if verified else TaskState.FAILED).value
                other = verified and row.capture != capture_id
                why = f"capture {capture_id} has a verified script" if other else capture.reason
                row.why = why if verified else f"{capture.state.value.replace('_', ' ')}: {why}".rstrip(": ")
                row.open, row.finished, row.until = None, now(), 0.0
            session.flush()
            for row in rows:
                _tell(session, row.id, row.bug, row.capture, row.state, row.why)
            return rows

        for bug in {row.bug for row in self._database.write(settle)}:
            self.follow(bug)

    def fail(self, task: TaskInfo, why: str) -> bool:
        """The driver of the task ended without an answer: it is tried again later, at most `ATTEMPTS` times in all."""
        return self._change(task, lambda session: _failed(session, task.attempts + 1, why), tell=True)

    def give_back(self, task: TaskInfo, why: str = "", *, seconds: float = 0.0, needs: str | None = None) -> bool:
        """Let others take the task, after ``seconds``. It does not count as an attempt.

        With ``needs`` it waits until a worker has these labels.
        """

        def back(session: Session) -> dict[str, Any]:
            values = {"state": TaskState.QUEUED.value, "why": why, "holder": "", "until": 0.0}
            if needs is not None:
                return values | {"state": TaskState.WAITING.value, "needs": needs, "until": NEVER}
            if seconds:
                return values | {"state": TaskState.WAITING.value, "until": time_of(session) + seconds}
            return values

        return self._change(task, back)

    def cancel(self, id: int, *, actor: str = "") -> None:
        """End an open task. Its driver ends soon. Raises `StoreError` if the task is over or does not exist."""

        def cancel(session: Session) -> None:
            row = self._need(session, id)
            if row.state not in OPEN:
                raise StoreError(f"task {id} of {self._database.name} is {row.state}: there is nothing to cancel")
            row.state, row.why, row.open, row.finished = TaskState.CANCELLED.value, "", None, now()
            session.flush()
            _tell(session, row.id, row.bug, row.capture, row.state, "", actor)

        self._database.write(cancel)

    def retry(self, id: int, *, actor: str = "") -> None:
        """Queue a waiting or finished task again. Raises `StoreError` if it is running or does not exist."""

        def retry(session: Session) -> None:
            row = self._need(session, id)
            if row.state == TaskState.LEASED:
                raise StoreError(f"task {id} of {self._database.name} is running: `minify tasks --cancel {id}` ends it")
            if row.open is None:
                key = queue.key_of(row.kind, row.bug, row.capture, row.needs)
                self._need_no_other(session, key)
                row.open, row.config = key, dumps({**loads(row.config), "again": True})
            row.state, row.why, row.attempts, row.finished = TaskState.QUEUED.value, "", 0, None
            session.flush()
            _tell(session, row.id, row.bug, row.capture, row.state, "", actor)

        self._database.write(retry)

    def get(self, id: int) -> TaskInfo:
        """Return the task ``id``. Raises `StoreError` if it does not exist."""
        with self._database.reading() as session:
            return _info(self._need(session, id, lock=False))

    def page(self, states: Sequence[TaskState] = (), *, after: int = 0, limit: int | None = None) -> list[TaskInfo]:
        """At most ``limit`` tasks in these states (empty: all) above the id ``after``, by id."""
        chosen = select(TaskRow).where(TaskRow.id > after).order_by(TaskRow.id).limit(limit)
        if states:
            chosen = chosen.where(TaskRow.state.in_([state.value for state in states]))
        with self._database.reading() as session:
            return [_info(row) for row in session.scalars(chosen)]

    def newest(
        self, states: Sequence[TaskState] = (), *, bug: int | None = None, before: int | None = None, limit: int
    ) -> list[TaskInfo]:
        """At most ``limit`` tasks in these states (empty: all), of one ``bug`` or of any, from the newest on: the next
        page begins ``before`` the last id of this one."""
        chosen = select(TaskRow).order_by(TaskRow.id.desc()).limit(limit)
        if states:
            chosen = chosen.where(TaskRow.state.in_([state.value for state in states]))
        if bug is not None:
            chosen = chosen.where(TaskRow.bug == bug)
        if before is not None:
            chosen = chosen.where(TaskRow.id < before)
        with self._database.reading() as session:
            return [_info(row) for row in session.scalars(chosen)]

    def counts(self) -> dict[TaskState, int]:
        """Return the number of tasks in each state."""
        with self._database.reading() as session:
            found = session.execute(select(TaskRow.state, func.count()).group_by(TaskRow.state)).all()
            return {_state(state): count for state, count in found}

    def left(self, worker: int, can: Collection[str], *, within: float) -> bool:
        """Whether a task is queued, or leased by another worker, or is tried again ``within`` so many seconds, that
        this worker can serve."""
        with self._database.reading() as session:
            soon = time_of(session) + within
            others = [set(row.can.split()) for row in _alive(session) if row.id != worker]
            heads = _heads(session, TaskState.QUEUED)
            waits = select(TaskRow.needs).where(
                (TaskRow.state == TaskState.LEASED.value)
                | ((TaskRow.state == TaskState.WAITING.value) & (TaskRow.until <= soon))
            )
            waiting = session.scalars(waits.distinct()).all()
        return any(_is_for(head[2], can, others) for head in heads) or any(
            not queue.missing(needs, can) for needs in waiting
        )

    def sweep(self, can: Collection[str]) -> None:
        """Queue tasks again whose lease has expired, that have waited long enough, or that this worker can serve.

        ``can`` are the labels of this worker. Queued tasks that no worker serves get the reason why they wait.
        """

        def sweep(session: Session) -> None:
            clock = time_of(session)
            told: list[TaskRow] = []
            session.execute(delete(WorkerRow).where(WorkerRow.seen < clock - _FORGOTTEN))
            alive = {row.id: row for row in _alive(session)}
            leased = select(TaskRow).where(TaskRow.state == TaskState.LEASED.value).order_by(TaskRow.id)
            for row in session.scalars(leased.with_for_update(skip_locked=True)):
                values: dict[str, Any] = {}
                if row.worker not in alive and (row.until <= clock or _has_ended(session, row)):
                    values = {"state": TaskState.QUEUED.value, "why": "its worker was gone", "holder": "", "until": 0.0}
                elif row.until <= clock:
                    values = _failed(session, row.attempts + 1, f"{_driver(row)} did not answer for {LASTS:.0f} s")
                for name, value in values.items():
                    setattr(row, name, value)
                if values.get("attempts"):
                    told.append(row)
            session.flush()
            queued = {"state": TaskState.QUEUED.value, "until": 0.0}
            waiting = update(TaskRow).where(TaskRow.state == TaskState.WAITING.value)
            session.execute(waiting.where(TaskRow.until <= clock).values(queued), execution_options=_PLAIN)
            for _, _, needs in _heads(session, TaskState.WAITING):
                if not queue.missing(needs, can):
                    kept = waiting.where(TaskRow.needs == needs, TaskRow.until == NEVER)
                    session.execute(kept.values(queued | {"why": ""}), execution_options=_PLAIN)
            abilities = [set(can), *(set(row.can.split()) for row in alive.values())]
            for _, _, needs in _heads(session, TaskState.QUEUED):
                if all(queue.missing(needs, each) for each in abilities):
                    idle = update(TaskRow).where(TaskRow.state == TaskState.QUEUED.value, TaskRow.needs == needs)
                    why = waits_for(queue.missing(needs, can))
                    values = {"state": TaskState.WAITING.value, "until": NEVER, "why": why}
                    session.execute(idle.values(values), execution_options=_PLAIN)
            for row in told:
                _tell(session, row.id, row.bug, row.capture, row.state, row.why)

        self._database.write(sweep)

    def _need(self, session: Session, id: int, *, lock: bool = True) -> TaskRow:
        row = session.get(TaskRow, id, with_for_update=lock) if 0 < id < 1 << 63 else None
        if row is None:
            name = self._database.name
            raise UnknownRow(f"{name} has no task {id}: `minify tasks {name}` shows those that it has")
        return row

    def _need_no_other(self, session: Session, key: str) -> None:
        other = session.scalar(select(TaskRow.id).where(TaskRow.open == key))
        if other is not None:
            raise StoreError(f"task {other} of {self._database.name} is about the same bug and is not over yet")

    def _change(self, task: TaskInfo, values: Any, *, tell: bool = False) -> bool:
        """Change a task, unless it is not leased with its fence any more. With ``tell`` it is an event."""

        def change(session: Session) -> bool:
            held = (TaskRow.id == task.id, TaskRow.fence == task.fence, TaskRow.state == TaskState.LEASED.value)
            new = values(session)
            result = session.execute(update(TaskRow).where(*held).values(new), execution_options=_PLAIN)
            assert isinstance(result, CursorResult)
            if tell and result.rowcount == 1:
                _tell(session, task.id, task.bug, task.capture, new["state"], new["why"])
            return result.rowcount == 1

        return self._database.write(change)

    def follow(self, bug: int) -> None:
        """Queue a capture of a bug that was not tried yet, if the bug has no verified script and no open task."""
        untried = (
            select(CaptureRow.id)
            .where(CaptureRow.bug == bug, CaptureRow.state.in_(_UNTRIED))
            .where(CaptureRow.id.not_in(select(TaskRow.capture).where(TaskRow.bug == bug)))
            .order_by(CaptureRow.id)
            .limit(1)
        )
        with self._database.reading() as session:
            capture = session.scalar(untried)
        if capture is None:
            return
        needs = self._captures.known_needs(capture)
        self._database.write(lambda session: queue.put(session, bug, capture, needs))


#: States of captures that were not tried yet.
_UNTRIED = (State.PENDING.value, State.REDUCING.value)
#: Rows that this transaction has loaded need not follow.
_PLAIN = {"synchronize_session": False}


def _tell(session: Session, id: int, bug: int, capture: int, state: str, why: str, actor: str = "") -> None:
    """Write the event that a task has another state."""
    events.note(session, "task", f"{state}: {why}".rstrip(": "), actor=actor, bug=bug, capture=capture, task=id)


def waits_for(labels: Sequence[str]) -> str:
    """Return why a task waits whose ``labels`` no worker has."""
    trust = [one for one in labels if one == queue.TRUST or one.startswith(queue.WHOSE)]
    lacks = [one for one in labels if one not in trust and one != queue.EXPLAIN]
    if lacks:
        return f"needs an environment: no worker has {' and '.join(lacks)}"
    return queue.NEEDS_TRUST if trust else "needs a worker without --no-explain"


def _heads_query() -> Executable:
    """Of each combination of needs the most urgent task in a ``state``: two look-ups in an index each, however many
    tasks there are."""
    state: BindParameter[str] = bindparam("state")
    following, head, task = aliased(TaskRow), aliased(TaskRow), aliased(TaskRow)
    found = select(func.min(TaskRow.needs).label("needs")).where(TaskRow.state == state).cte(recursive=True)
    after = select(func.min(following.needs)).where(following.state == state, following.needs > found.c.needs)
    found = found.union_all(select(after.scalar_subquery()).where(found.c.needs.is_not(None)))
    first = select(head.id).where(head.state == state, head.needs == found.c.needs).order_by(head.priority, head.id)
    best = first.limit(1).scalar_subquery()
    return select(task.priority, task.id, task.needs).select_from(found).join(task, task.id == best)


_HEADS = _heads_query()


def _heads(session: Session, state: TaskState) -> list[tuple[int, int, str]]:
    """Priority, id and needs of each task that comes first among those in this state with the same needs."""
    heads = session.execute(_HEADS, {"state": state.value})
    return [(priority, id, needs) for priority, id, needs in heads.all()]


def _served(session: Session, worker: int, can: Collection[str]) -> list[str]:
    """Return the needs of queued tasks that this worker should serve, the most urgent first."""
    heads = [head for head in _heads(session, TaskState.QUEUED) if not queue.missing(head[2], can)]
    others: list[WorkerRow] | None = None
    served = []
    for _, _, needs in sorted(heads):
        if not _has_torch(needs, can) and others is None:
            others = [row for row in _seen(session) if row.id != worker]
        if _has_torch(needs, can) or not any(
            _is_better(needs, set(row.can.split())) and not is_gone(row.holder) for row in others or ()
        ):
            served.append(needs)
    return served


def _claim(session: Session, worker: int, served: Sequence[str]) -> TaskInfo | None:
    """Lease the most urgent task with the first of these needs of which one is left."""
    for needs in served:
        best = (
            select(TaskRow.id)
            .where(TaskRow.state == TaskState.QUEUED.value, TaskRow.needs == needs)
            .order_by(TaskRow.priority, TaskRow.id)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        values = {
            "state": TaskState.LEASED.value, "fence": TaskRow.fence + 1, "worker": worker, "holder": "",
            "until": clock_of(session) + LASTS, "started": now(), "finished": None,
        }  # fmt: skip
        taken = update(TaskRow).where(TaskRow.id == best).values(values).returning(TaskRow)
        row = session.scalars(taken, execution_options=_PLAIN).one_or_none()
        if row is not None:
            return _info(row)
    return None


def _is_for(needs: str, can: Collection[str], others: Collection[Collection[str]]) -> bool:
    """Whether a worker is to take such a task, and none of the others with the right version of torch."""
    if queue.missing(needs, can):
        return False
    return _has_torch(needs, can) or not any(_is_better(needs, other) for other in others)


def _has_torch(needs: str, can: Collection[str]) -> bool:
    """Whether a worker with these labels has the version of torch that a task asks for, if it does."""
    return all(one in can for one in needs.split() if one.startswith(queue.TORCH))


def _is_better(needs: str, can: Collection[str]) -> bool:
    """Whether a worker with these labels can serve a task, with the version of torch that it asks for."""
    return _has_torch(needs, can) and not queue.missing(needs, can)


def _alive(session: Session) -> list[WorkerRow]:
    """The workers that were seen of late and whose process, if it is of this machine, is there."""
    return [row for row in _seen(session) if not is_gone(row.holder)]


def _seen(session: Session) -> list[WorkerRow]:
    """The workers that were seen of late. Whether a process of this machine is there takes longer to find out."""
    seen = select(WorkerRow).where(WorkerRow.seen > clock_of(session) - 2 * RENEWED).order_by(WorkerRow.id)
    return list(session.scalars(seen))


def _has_ended(session: Session, row: TaskRow) -> bool:
    """Whether the driver of a task, or the worker that was about to start it, is gone from this machine."""
    worker = session.get(WorkerRow, row.worker)
    holder = row.holder or ("" if worker is None else worker.holder)
    return is_gone(holder)


def _driver(row: TaskRow) -> str:
    return f"its driver, {process_of(row.holder)}," if row.holder else "its driver"


def _failed(session: Session, attempts: int, why: str) -> dict[str, Any]:
    """The columns of a task after so many attempts without an answer."""
    values: dict[str, Any] = {"attempts": attempts, "holder": "", "until": 0.0}
    if attempts >= ATTEMPTS:
        said = f"{attempts} drivers ended without an answer; the last: {why}"
        return values | {"state": TaskState.QUARANTINED.value, "why": said, "open": None, "finished": now()}
    seconds = BACKOFF * 2 ** (attempts - 1)
    said = f"backs off for {seconds:.0f} s: {why}"
    return values | {"state": TaskState.WAITING.value, "why": said, "until": time_of(session) + seconds}


def _state(name: str) -> TaskState:
    try:
        return TaskState(name)
    except ValueError as exc:
        raise ForeignValue(f"a state of a task that cannot be read: {exc}") from exc


def _info(row: TaskRow) -> TaskInfo:
    return row.to(TaskInfo, state=_state(row.state), config=loads(row.config))
