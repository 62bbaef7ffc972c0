"""Proofs of tokens, sessions of browsers, and the digests of what was sent under a key."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("tokens", Column("proof", String(64)))
    op.create_table(
        "sessions",
        Column("id", Integer, primary_key=True),
        Column("token", Integer, ForeignKey("tokens.id"), nullable=False),
        Column("until", BigInteger, nullable=False),
        Column("proof", String(64), nullable=False),
    )
    op.create_index("ix_sessions_token", "sessions", ["token"])
    op.add_column("uploads", Column("body", String(64)))
