"""An index as it is after months: a million captures of ten thousand bugs, with all rows that belong to them.

Programs store eight captures, which are minified and have notifications. The others are copies that the database
makes of these rows: with a number in their names, at other times, with other versions. Half of the bugs have a
verified script. One bug has very many captures.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from fxminify.store.document.case import Case
from fxminify.store.index import Index, State, StepInfo
from fxminify.store.index.bugs import COMES_FROM
from fxminify.store.index.tables import (
    ArtifactRow,
    Base,
    BugRow,
    CaptureRow,
    EventRow,
    ReductionRow,
    ReproRow,
    StepRow,
    TaskRow,
    UploadRow,
)

from .service_clients import recording_of

#: Captures that are stored as usual.
_MODELS = 8
_SCRIPT = "\n".join(["import torch", *(f"# line {number} of a script" for number in range(60))])
#: An ISO time of a row with the number ``i``.
_TIME = (
    "'2026-09-' || (10 + i % 20) || 'T' || (10 + i % 14) || ':' || (10 + i % 49) || ':' || (10 + i % 47) || '+00:00'"
)
_EVERY = "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"


@dataclass(frozen=True, slots=True)
class Filling:
    """The size of an index: it has ``captures``, and ``in_one`` of them belong to bug 1."""

    captures: int
    bugs: int
    in_one: int


def fill(index: Index, filling: Filling) -> None:
    """Fill an empty index."""
    for number in range(_MODELS):
        _model(index, number)
    with index.database.writing() as session:
        _copy(session, BugRow, _MODELS + 1, filling.bugs, "t.id = i % 8 + 1", {
            "id": "i", "identity": "'bug ' || i", "headline": "t.headline || ' in layer ' || i",
            "signature": "'v1:' || i", "created": _TIME, "last_seen": _TIME,
        })  # fmt: skip
        least, big, spread = _MODELS + 1, filling.bugs + filling.in_one, filling.bugs
        bug = f"CASE WHEN i <= {spread} THEN i WHEN i <= {big} THEN 1 ELSE i % {spread} + 1 END"
        state = f"CASE WHEN i > {spread} THEN 'pending' WHEN i % 2 = 0 THEN 'verified' ELSE 'unverified' END"
        _copy(session, CaptureRow, least, filling.captures, f"t.id = ({bug}) % 8 + 1", {
            "id": "i", "identity": "'capture ' || i", "bug": bug, "state": state, "created": _TIME, "last_seen": _TIME,
            "headline": f"t.headline || ' in layer ' || ({bug})", "signature": f"'v1:' || ({bug})",
            "nodes_before": "t.nodes_before + i % 100",
        })  # fmt: skip
        verified = "t.capture = (i % 4) * 2 + 2 AND i % 2 = 0"
        for table, more in ((ReproRow, {}), (ArtifactRow, {}), (ReductionRow, {"id": "10 * i", "finished": _TIME})):
            _copy(session, table, least, filling.bugs, verified, {"capture": "i", **more})
        first = "t.reduction = (SELECT min(id) FROM reductions WHERE capture = (i % 4) * 2 + 2) AND i % 2 = 0"
        _copy(session, StepRow, least, filling.bugs, first, {"reduction": "10 * i"})
        done = "CASE WHEN i % 2 = 0 THEN 'done' WHEN i % 3 = 0 THEN 'queued' ELSE 'failed' END"
        opened = "CASE WHEN i % 3 = 0 AND i % 2 = 1 THEN 'minify ' || i END"
        task = "t.id = (SELECT min(id) FROM tasks)"
        _copy(session, TaskRow, least, filling.bugs, task, {
            "id": "1000 + i", "bug": "i", "capture": "i", "state": done, "open": opened,
        })  # fmt: skip
        event = "t.id = (SELECT min(id) FROM events)"
        _copy(session, EventRow, least, filling.captures, event, {"id": "1000 + i", "bug": bug, "capture": "i"})
        _copy(session, UploadRow, least, filling.captures, "t.capture = 1", {"key": "'key ' || i", "capture": "i"})
        _sightings(session, filling)
        _counters(session)
    _settle(index)


def _model(index: Index, number: int) -> None:
    met = recording_of(number, number)
    id = index.captures.receive(met, ours=True, key=f"key-{number:04}").capture
    index.captures.seen_again(id, 3)
    assert met.case is not None
    best = Case(met.case.graph, met.case.inputs, met.case.tensors, backend=met.case.backend, torch=met.case.torch)
    reduction = index.reductions.begin(id, {})
    for step in range(1, 11):
        left = met.case.graph.count - 2 * step
        made = StepInfo(step, "nodes", f"{step:064x}", left, 1, queries=3 * step, seconds=1.0, difference="- a = f(x)")
        last = step == 10
        index.reductions.add_step(reduction.id, made, *((best, met.blobs) if last else ()))
    index.reductions.finish(reduction.id, queries=30, nodes_before=met.case.graph.count, nodes_after=1, seconds=9.0)
    index.repros.save(id, "script", _SCRIPT, verified=3, runs=3, log="", case=best, blobs=met.blobs)
    index.artifacts.save(id, COMES_FROM, f"train.py:{number} in forward")
    index.captures.set_state(id, State.VERIFIED)


def _copy(session: Session, table: type[Base], first: int, last: int, model: str, columns: dict[str, str]) -> None:
    """Rows with the numbers from ``first`` to ``last``, each a copy of the row ``t`` that is its ``model``, but for
    some ``columns``, which are SQL of ``i`` and ``t``."""
    names = [column.key for column in table.__table__.columns]
    values = ", ".join(columns.get(name, f't."{name}"') for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    name = table.__tablename__
    every = _EVERY.format(first=first, last=last)
    session.execute(text(f"INSERT INTO {name} ({listed}) {every} SELECT {values} FROM n JOIN {name} t ON {model}"))


def _sightings(session: Session, filling: Filling) -> None:
    """Each capture was seen on two days, with one of six versions."""
    for version in range(6):
        versions = f'{{"python":"3.11.{version}","torch":"2.{8 + version}.0"}}'
        session.execute(
            text("INSERT INTO environments (digest, versions) VALUES (:digest, :versions)"),
            {"digest": f"environment {version}", "versions": versions},
        )
    every = _EVERY.format(first=_MODELS + 1, last=filling.captures)
    for day in ("10 + i % 20", "10 + (i + 7) % 20"):
        session.execute(
            text(
                f"INSERT INTO sightings (capture, day, environment, count) {every} "
                f"SELECT i, '2026-09-' || ({day}), 'environment ' || (i % 6), 2 FROM n"
            )
        )


def _counters(session: Session) -> None:
    """Update the counters of bugs."""
    session.execute(text("DELETE FROM bug_sightings"))
    session.execute(
        text(
            "INSERT INTO bug_sightings (bug, day, environment, count) "
            "SELECT captures.bug, sightings.day, sightings.environment, sum(sightings.count) "
            "FROM sightings JOIN captures ON captures.id = sightings.capture "
            "GROUP BY captures.bug, sightings.day, sightings.environment"
        )
    )
    session.execute(
        text(
            "UPDATE bugs SET captures = (SELECT count(*) FROM captures WHERE bug = bugs.id), "
            "occurrences = (SELECT sum(occurrences) FROM captures WHERE bug = bugs.id)"
        )
    )


def _settle(index: Index) -> None:
    """Do the maintenance that a server does with time: its statistics, and the next numbers of rows."""
    with index.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if connection.dialect.name == "postgresql":
            for table in ("bugs", "captures", "reductions", "tasks", "events"):
                last = f"(SELECT max(id) FROM {table})"
                connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {last})"))
            connection.execute(text("VACUUM ANALYZE"))
        else:
            connection.execute(text("ANALYZE"))
