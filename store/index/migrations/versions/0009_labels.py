"""Labels that people put on bugs."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, ForeignKey, Integer, String

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "labels",
        Column("bug", Integer, ForeignKey("bugs.id"), primary_key=True),
        Column("label", String(50), primary_key=True),
    )
    op.create_index("ix_labels_label", "labels", ["label"])
