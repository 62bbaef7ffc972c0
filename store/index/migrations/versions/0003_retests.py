"""Minimal cases that are run again: rounds and retests; whether a minimal case and a script were made here.

Written out and not derived from `fxminify.store.index.tables`: the models move on, a migration never changes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    op.add_column("reductions", sa.Column("origin", sa.Text(), nullable=True))
    op.add_column("repros", sa.Column("origin", sa.Text(), nullable=True))
    op.create_table(
        "rounds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("config_digest", sa.String(length=64), nullable=False),
        sa.Column("started", sa.String(length=32), nullable=False),
        sa.Column("finished", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_rounds"),
    )
    op.create_index("ix_rounds_config_digest", "rounds", ["config_digest"])
    op.create_table(
        "retests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.Column("capture", sa.Integer(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("signature", sa.String(length=32), nullable=False),
        sa.Column("shown", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("versions", sa.Text(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["capture"], ["captures.id"], name="fk_retests_capture"),
        sa.ForeignKeyConstraint(["round"], ["rounds.id"], name="fk_retests_round"),
        sa.PrimaryKeyConstraint("id", name="pk_retests"),
    )
    op.create_index("ix_retests_capture", "retests", ["capture"])
    op.create_index("ix_retests_round", "retests", ["round"])


def downgrade() -> None:
    op.drop_index("ix_retests_round", table_name="retests")
    op.drop_index("ix_retests_capture", table_name="retests")
    op.drop_table("retests")
    op.drop_index("ix_rounds_config_digest", table_name="rounds")
    op.drop_table("rounds")
    op.drop_column("repros", "origin")
    op.drop_column("reductions", "origin")
