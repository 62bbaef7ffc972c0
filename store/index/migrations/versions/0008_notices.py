"""Add the installed versions of workers, the versions that fix a bug, and the notifications."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Float, ForeignKey, Integer, String, Text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("triage", Column("versions", Text))
    op.create_table(
        "installations",
        Column("backend", String(100), primary_key=True),
        Column("environment", String(64), ForeignKey("environments.digest"), primary_key=True),
        Column("at", String(32), nullable=False),
    )
    op.create_table(
        "targets",
        Column("name", String(100), primary_key=True),
        Column("event", Integer, nullable=False),
    )
    op.create_table(
        "deliveries",
        Column("id", Integer, primary_key=True),
        Column("target", String(100), ForeignKey("targets.name"), nullable=False),
        Column("what", String(16), nullable=False),
        Column("bug", Integer, nullable=False),
        Column("text", Text, nullable=False),
        Column("once", String(250), nullable=False, unique=True),
        Column("state", String(16), nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("until", Float, nullable=False),
        Column("holder", Text, nullable=False),
        Column("message", Integer),
        Column("answer", Text, nullable=False),
        Column("created", String(32), nullable=False),
        Column("sent", String(32)),
    )
    op.create_index("ix_deliveries_target_state", "deliveries", ["target", "state"])
    op.create_index("ix_deliveries_bug", "deliveries", ["bug"])
