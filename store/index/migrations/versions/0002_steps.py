"""Steps say what they changed: the key of their question, what had been asked by then, their difference, their case.

The table is made anew and its rows are copied: SQLite cannot add a foreign key to a table that is there.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"

_COLUMNS = ("reduction", "number", "pass_name", "nodes", "inputs", "at")


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint("pk_steps", "steps", type_="primary")  # names are those of a schema there, not of a table
    op.rename_table("steps", "steps_before")
    op.create_table(
        "steps",
        sa.Column("reduction", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("pass_name", sa.Text(), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("inputs", sa.Integer(), nullable=False),
        sa.Column("queries", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("difference", sa.Text(), nullable=False),
        sa.Column("document", sa.String(length=64), nullable=True),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["document"], ["documents.digest"], name="fk_steps_document"),
        sa.ForeignKeyConstraint(["reduction"], ["reductions.id"], name="fk_steps_reduction"),
        sa.PrimaryKeyConstraint("reduction", "number", name="pk_steps"),
    )
    op.create_index("ix_steps_document", "steps", ["document"])
    kept = ", ".join(_COLUMNS)
    op.execute(
        f"INSERT INTO steps ({kept}, key, queries, seconds, difference) SELECT {kept}, '', 0, 0.0, '' FROM steps_before"
    )
    op.drop_table("steps_before")


def downgrade() -> None:
    op.drop_index("ix_steps_document", "steps")
    with op.batch_alter_table("steps") as table:
        for column in ("key", "queries", "seconds", "difference", "document"):
            table.drop_column(column)
