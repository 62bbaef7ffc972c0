"""Tokens, keys of uploads, events, and what people say about bugs."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, String, Text

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "tokens",
        Column("id", Integer, primary_key=True),
        Column("name", Text, nullable=False),
        Column("digest", String(64), nullable=False),
        Column("scopes", Text, nullable=False),
        Column("created", String(32), nullable=False),
        Column("revoked", String(32)),
    )
    op.create_table(
        "uploads",
        Column("key", String(64), primary_key=True),
        Column("capture", Integer, ForeignKey("captures.id"), nullable=False),
        Column("day", String(10), nullable=False, index=True),
    )
    op.create_table(
        "events",
        Column("id", Integer, primary_key=True),
        Column("at", Float, nullable=False),
        Column("kind", String(32), nullable=False),
        Column("text", Text, nullable=False),
        Column("actor", Text, nullable=False),
        Column("bug", Integer),
        Column("capture", Integer),
        Column("task", Integer),
    )
    op.create_table(
        "triage",
        Column("bug", Integer, ForeignKey("bugs.id"), primary_key=True),
        Column("status", String(16), nullable=False),
        Column("until", BigInteger),
        Column("duplicate_of", Integer, ForeignKey("bugs.id"), index=True),
        Column("actor", Text, nullable=False),
        Column("at", String(32), nullable=False),
    )
    op.create_table(
        "merged",
        Column("capture", Integer, ForeignKey("captures.id"), primary_key=True),
        Column("bug", Integer, ForeignKey("bugs.id"), nullable=False, index=True),
    )
