"""The outbox of notifications: one row per target, bug and event, with the state of its delivery.

A target has a name and reads the events of an index in order (`Deliveries.collect`), beginning with the first event
after its name appeared. Each notification becomes a *delivery* under a key that names target, bug and event. The
transaction that stores it also stores how far the target has read. A process *takes* a delivery before it sends it,
and stores the result afterwards. If the process ends in between, the result is unknown: such a delivery is not sent
again, unless the target can be asked.

A target has a maximum of notifications per day. The others are sent the next day, as one message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.orm import Session

from .. import codec
from ..document.case import Json
from ..errors import ForeignValue
from . import bugs, events, queue
from .database import Database, insert, now
from .documents import digest
from .events import EventInfo, Events
from .leases import is_gone, own_name, time_of
from .tables import BugStatus, CaptureRow, DeliveryRow, DeliveryState, State, TargetRow, TaskRow, TriageRow

#: The subjects of notifications: a new bug, and the kinds of events.
NEW = "new"
WHATS = (NEW, events.VERIFIED, events.FIXED, events.REGRESSED)
#: Messages to a target in a day (UTC).
PER_DAY = 20
#: Seconds for which a verified script waits for its explanation.
HOLD = 3600.0
#: How often it is tried to tell a target, and the seconds after the first time and at most.
TRIES, FIRST, LONGEST = 10, 60.0, 6 * 3600.0
#: Seconds that sending may take; events that are read, and deliveries that are sent, at a time.
_SENDING, _PAGE, _DIGEST = 600.0, 500, 1000


@dataclass(frozen=True, slots=True)
class DeliveryInfo:
    """A notification of a bug for ``target``, and its result.

    ``answer`` is the answer of the target, or the reason why sending failed. Deliveries with the same ``message``
    were sent together.
    """

    id: int
    target: str
    what: str
    bug: int
    text: str
    state: DeliveryState
    attempts: int
    message: int | None
    answer: str
    created: str
    sent: str | None

    def to_json(self) -> Json:
        return codec.dump(self)


class Deliveries:
    """``index.deliveries``."""

    def __init__(self, database: Database, happened: Events) -> None:
        self._database = database
        self._events = happened

    def collect(self, target: str, whats: Collection[str]) -> int:
        """Read the next events and queue their notifications for ``target``. Return the number of events read.

        A new target begins with the next event.
        """
        with self._database.reading() as session:
            known = session.get(TargetRow, target)
        if known is None:
            row = {"name": target, "event": self._events.last()}
            self._database.write(lambda session: insert(session, TargetRow, [row]))
            return 0
        found = self._events.after(known.event, limit=_PAGE)

        def write(session: Session) -> int:
            row = session.get_one(TargetRow, target, with_for_update=True, populate_existing=True)
            if row.event != known.event:  # another process has read on meanwhile
                return 0
            for event in found:
                _note(session, target, event, whats)
            row.event = found[-1].id
            return len(found)

        return self._database.write(write) if found else 0

    def take(self, target: str, *, per_day: int = PER_DAY) -> list[DeliveryInfo]:
        """Take the notifications that this process must send to ``target`` next, as one message.

        The list is empty if the limit of the day is reached.
        """

        def take(session: Session) -> list[DeliveryInfo]:
            if session.get(TargetRow, target, with_for_update=True) is None:
                return []
            clock, today = time_of(session), now()[:10]
            told = select(func.count(func.distinct(DeliveryRow.message))).where(
                DeliveryRow.target == target, DeliveryRow.sent >= today
            )
            if session.scalars(told).one() >= per_day:
                return []
            is_open = (TaskRow.bug == DeliveryRow.bug, TaskRow.kind == queue.ABLATE, TaskRow.open.is_not(None))
            is_explained = (
                (DeliveryRow.what == events.VERIFIED) & (DeliveryRow.attempts == 0) & ~exists().where(*is_open)
            )
            due = (
                select(DeliveryRow)
                .where(DeliveryRow.target == target, DeliveryRow.state == DeliveryState.WAITING.value)
                .where(or_(DeliveryRow.until <= clock, is_explained))
                .order_by(DeliveryRow.id)
            )
            rows = session.scalars(due.where(DeliveryRow.created < today).limit(_DIGEST)).all()
            if len(rows) < 2:
                rows = session.scalars(due.limit(1)).all()
            for row in rows:
                row.state, row.holder, row.until = DeliveryState.SENDING.value, own_name(), clock + _SENDING
                row.message, row.attempts = rows[0].id, row.attempts + 1
            session.flush()
            return [_info(row) for row in rows]

        return self._database.write(take)

    def done(self, taken: Sequence[DeliveryInfo], state: DeliveryState, answer: str) -> None:
        """Write down what came of a message. ``WAITING`` is tried again later, at most `TRIES` times in all."""
        first = taken[0]

        def done(session: Session) -> None:
            values: dict[str, object] = {"state": state.value, "answer": answer[:2000], "holder": ""}
            if state is DeliveryState.WAITING and first.attempts >= TRIES:
                values["state"] = DeliveryState.FAILED.value
            elif state is DeliveryState.WAITING:
                pause = min(FIRST * 2 ** (first.attempts - 1), LONGEST)
                values |= {"until": time_of(session) + pause, "message": None}
            elif state is not DeliveryState.FAILED:
                values["sent"] = now()
            mine = (DeliveryRow.id.in_([one.id for one in taken]), DeliveryRow.state == DeliveryState.SENDING.value)
            session.execute(update(DeliveryRow).where(*mine).values(values), execution_options=_PLAIN)

        self._database.write(done)

    def settle(self, target: str, *, can_be_asked: bool) -> int:
        """Handle deliveries whose sender died: send them again if the target ``can_be_asked``, else give them up.

        Return the number of such deliveries.
        """

        def settle(session: Session) -> int:
            clock = time_of(session)
            sending = (DeliveryRow.target == target, DeliveryRow.state == DeliveryState.SENDING.value)
            rows = session.scalars(select(DeliveryRow).where(*sending).with_for_update(skip_locked=True)).all()
            gone = [row for row in rows if row.until <= clock or is_gone(row.holder)]
            for row in gone:
                row.answer = "the process that was sending it ended"
                if can_be_asked:
                    row.state, row.until, row.message = DeliveryState.WAITING.value, clock, None
                else:
                    row.state, row.sent = DeliveryState.UNKNOWN.value, now()
            return len(gone)

        return self._database.write(settle)

    def answer(self, target: str, bug: int) -> str:
        """Return the answer of ``target`` to the first notification of a bug, or an empty text if none was sent."""
        first = (
            select(DeliveryRow.answer)
            .where(
                DeliveryRow.target == target, DeliveryRow.bug == bug, DeliveryRow.state == DeliveryState.SENT.value,
                DeliveryRow.answer != "",
            )
            .order_by(DeliveryRow.id)
            .limit(1)
        )  # fmt: skip
        with self._database.reading() as session:
            return session.scalar(first) or ""

    def page(self, *, after: int = 0, limit: int | None = None) -> list[DeliveryInfo]:
        """At most ``limit`` deliveries above the id ``after``, by id."""
        chosen = select(DeliveryRow).where(DeliveryRow.id > after).order_by(DeliveryRow.id).limit(limit)
        with self._database.reading() as session:
            return [_info(row) for row in session.scalars(chosen)]


#: Rows that this transaction has loaded need not follow.
_PLAIN = {"synchronize_session": False}
_QUIET = (BugStatus.IGNORED.value, BugStatus.DUPLICATE.value)


def _note(session: Session, target: str, event: EventInfo, whats: Collection[str]) -> None:
    """Create the delivery of an event if ``target`` wants it and did not get it before."""
    if event.bug is None:
        return
    bug, what = bugs.root(session, event.bug), event.kind
    if what == "capture":
        earlier = (CaptureRow.bug == bug, CaptureRow.id < event.capture)
        others = select(CaptureRow.id).where(*earlier, CaptureRow.state != State.EAGER_REFUSES.value).limit(1)
        what = NEW if session.scalar(others) is None else ""
    quiet = select(TriageRow.bug).where(TriageRow.bug == bug, TriageRow.status.in_(_QUIET))
    if what not in whats or what not in WHATS or session.scalar(quiet) is not None:
        return
    versions = digest(event.text.encode())[:16] if what in (events.FIXED, events.REGRESSED) else ""
    hold = HOLD if what == events.VERIFIED else 0.0
    row = {
        "target": target, "what": what, "bug": bug, "text": event.text, "state": DeliveryState.WAITING.value,
        "once": f"{target} {bug} {what} {versions}".rstrip(), "attempts": 0, "until": time_of(session) + hold,
        "holder": "", "answer": "", "created": now(),
    }  # fmt: skip
    insert(session, DeliveryRow, [row])


def _info(row: DeliveryRow) -> DeliveryInfo:
    try:
        return row.to(DeliveryInfo, state=DeliveryState(row.state))
    except ValueError as exc:
        raise ForeignValue(f"a state of a delivery that cannot be read: {exc}") from exc
