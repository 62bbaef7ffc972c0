"""Bugs with counters, on which days and with which versions each capture was seen, leases,
the places of storages, and the cases of scripts. Tags of origin have another form, so `minify run` asks once more.

What is not known of captures that are there already is guessed: all occurrences are counted on the day on which a
capture was last seen, with the versions of its first failure.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, String, Text

from fxminify.store.index import bugs
from fxminify.store.index.documents import loads

revision = "0005"
down_revision = "0004"

_CAPTURES = (
    "SELECT id, kind, phase, backend, signature, headline, reason, occurrences, created, last_seen, provenance "
    "FROM captures ORDER BY id"
)
#: The last one of each capture represents it.
_REDUCTIONS = "SELECT capture, operators FROM reductions WHERE finished IS NOT NULL ORDER BY finished, id"


def upgrade() -> None:
    made = op.create_table(
        "bugs",
        Column("id", Integer, primary_key=True),
        Column("identity", String(64), nullable=False, unique=True),
        Column("kind", String(16), nullable=False),
        Column("phase", String(16), nullable=False),
        Column("backend", Text, nullable=False, index=True),
        Column("signature", String(32), nullable=False, index=True),
        Column("headline", Text, nullable=False),
        Column("operators", Text, nullable=False),
        Column("captures", Integer, nullable=False),
        Column("occurrences", BigInteger, nullable=False),
        Column("created", String(32), nullable=False),
        Column("last_seen", String(32), nullable=False, index=True),
    )
    environments = op.create_table(
        "environments",
        Column("digest", String(64), primary_key=True),
        Column("versions", Text, nullable=False),
    )
    sightings = op.create_table(
        "sightings",
        Column("capture", Integer, ForeignKey("captures.id"), primary_key=True),
        Column("day", String(10), primary_key=True),
        Column("environment", String(64), ForeignKey("environments.digest"), primary_key=True),
        Column("count", BigInteger, nullable=False),
    )
    op.create_table(
        "leases",
        Column("capture", Integer, ForeignKey("captures.id"), primary_key=True),
        Column("fence", BigInteger, nullable=False),
        Column("holder", Text, nullable=False),
        Column("until", Float, nullable=False),
    )
    op.execute("ALTER TABLE blobs ADD COLUMN place TEXT")
    op.execute("ALTER TABLE steps ADD COLUMN origin TEXT")
    op.execute("ALTER TABLE repros ADD COLUMN nodes INTEGER")
    op.execute("ALTER TABLE repros ADD COLUMN inputs INTEGER")
    op.execute(
        "ALTER TABLE repros ADD COLUMN document VARCHAR(64) CONSTRAINT fk_repros_document REFERENCES documents (digest)"
    )
    op.create_index("ix_repros_document", "repros", ["document"])
    # Batch mode would make the table anew, and dropping the old one delete what refers to it.
    op.execute("ALTER TABLE captures ADD COLUMN bug INTEGER CONSTRAINT fk_captures_bug REFERENCES bugs (id)")
    for name in ("bug", "state", "signature", "last_seen"):
        op.create_index(f"ix_captures_{name}", "captures", [name])

    connection = op.get_bind()
    operators: dict[int, str] = {row.capture: row.operators or "" for row in connection.exec_driver_sql(_REDUCTIONS)}
    found: dict[str, dict[str, Any]] = {}
    versions: dict[str, str] = {}
    seen: list[dict[str, Any]] = []
    of: dict[int, str] = {}
    for row in connection.exec_driver_sql(_CAPTURES):
        new = bugs.columns(row._asdict(), operators.get(row.id, ""))
        bug = found.setdefault(new["identity"], {**new, "captures": 0, "occurrences": 0})
        bug["captures"] += 1
        bug["occurrences"] += row.occurrences
        bug["last_seen"] = max(bug["last_seen"], row.last_seen)
        of[row.id] = new["identity"]
        key, text = bugs.environment(loads(row.provenance))
        versions[key] = text
        seen.append({"capture": row.id, "day": row.last_seen[:10], "environment": key, "count": row.occurrences})
    op.bulk_insert(made, list(found.values()))
    op.bulk_insert(environments, [{"digest": key, "versions": text} for key, text in versions.items()])
    op.bulk_insert(sightings, seen)
    ids = {row.identity: row.id for row in connection.exec_driver_sql("SELECT id, identity FROM bugs")}
    for capture, identity in of.items():
        connection.exec_driver_sql(f"UPDATE captures SET bug = {int(ids[identity])} WHERE id = {int(capture)}")
