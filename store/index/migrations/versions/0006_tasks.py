"""Tasks and workers. `minify work` adds the tasks of captures that are there already when it begins."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, String, Text

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "tasks",
        Column("id", Integer, primary_key=True),
        Column("kind", String(16), nullable=False),
        Column("open", String(48), unique=True),
        Column("bug", Integer, ForeignKey("bugs.id"), nullable=False, index=True),
        Column("capture", Integer, ForeignKey("captures.id"), nullable=False, index=True),
        Column("config", Text, nullable=False),
        Column("needs", Text, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("state", String(16), nullable=False),
        Column("why", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("fence", BigInteger, nullable=False),
        Column("holder", Text, nullable=False),
        Column("until", Float, nullable=False),
        Column("worker", Integer),
        Column("budget", Float),
        Column("created", String(32), nullable=False),
        Column("started", String(32)),
        Column("finished", String(32)),
    )
    op.create_index("ix_tasks_state_needs_priority", "tasks", ["state", "needs", "priority", "id"])
    op.create_index("ix_tasks_state_until", "tasks", ["state", "until"])
    op.create_table(
        "workers",
        Column("id", Integer, primary_key=True),
        Column("name", Text, nullable=False),
        Column("holder", Text, nullable=False),
        Column("can", Text, nullable=False),
        Column("seen", Float, nullable=False),
    )
    op.create_index("ix_captures_bug_state", "captures", ["bug", "state"])
    op.drop_index("ix_captures_bug", "captures")
