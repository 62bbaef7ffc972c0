"""The sightings of a bug are summed up, so that its page reads none of its captures."""

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
