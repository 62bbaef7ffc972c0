"""The sightings of a bug are summed up, and indexes: the page of a bug does not read all of its captures."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String

revision = "0010"
down_revision = "0009"

_FILL = """
INSERT INTO bug_sightings (bug, day, environment, count)
SELECT captures.bug, sightings.day, sightings.environment, sum(sightings.count)
FROM sightings JOIN captures ON captures.id = sightings.capture
WHERE captures.bug IS NOT NULL
GROUP BY captures.bug, sightings.day, sightings.environment
"""


def upgrade() -> None:
    op.create_table(
        "bug_sightings",
        Column("bug", Integer, ForeignKey("bugs.id"), primary_key=True),
        Column("day", String(10), primary_key=True),
        Column("environment", String(64), ForeignKey("environments.digest"), primary_key=True),
        Column("count", BigInteger, nullable=False),
    )
    op.execute(_FILL)
    op.create_index("ix_captures_bug_id", "captures", ["bug", "id"])
    op.create_index("ix_captures_bug_nodes_before", "captures", ["bug", "nodes_before"])
    op.create_index("ix_reductions_finished", "reductions", ["finished"])
