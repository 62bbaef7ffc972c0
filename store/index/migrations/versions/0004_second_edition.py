"""The first schema that has a history: captures, documents and storages, reductions, repros, artifacts, retests.

Its number follows those of the first edition, whose files `fxminify.store.index.upgrade` reads. It is written out and
not derived from `fxminify.store.index.tables`: the models move on, a migration never changes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = None


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("codec", sa.String(length=8), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name="pk_blobs"),
    )
    op.create_table(
        "documents",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_documents"),
    )
    op.create_table(
        "captures",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("headline", sa.Text(), nullable=False),
        sa.Column("signature", sa.String(length=32), nullable=False),
        sa.Column("signature_parts", sa.Text(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("graph_hash", sa.String(length=64), nullable=False),
        sa.Column("graph_text", sa.Text(), nullable=False),
        sa.Column("document", sa.String(length=64), nullable=True),
        sa.Column("nodes_before", sa.Integer(), nullable=True),
        sa.Column("inputs_before", sa.Integer(), nullable=True),
        sa.Column("occurrences", sa.Integer(), nullable=False),
        sa.Column("created", sa.String(length=32), nullable=False),
        sa.Column("last_seen", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["document"], ["documents.digest"], name="fk_captures_document"),
        sa.ForeignKeyConstraint(["parent"], ["captures.id"], name="fk_captures_parent"),
        sa.PrimaryKeyConstraint("id", name="pk_captures"),
        sa.UniqueConstraint("identity", name="uq_captures_identity"),
    )
    op.create_index("ix_captures_document", "captures", ["document"])
    op.create_table(
        "document_blobs",
        sa.Column("document", sa.String(length=64), nullable=False),
        sa.Column("blob", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["blob"], ["blobs.digest"], name="fk_document_blobs_blob"),
        sa.ForeignKeyConstraint(
            ["document"], ["documents.digest"], name="fk_document_blobs_document", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("document", "blob", name="pk_document_blobs"),
    )
    op.create_index("ix_document_blobs_blob", "document_blobs", ["blob"])
    op.create_table(
        "reductions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("capture", sa.Integer(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("config_digest", sa.String(length=64), nullable=False),
        sa.Column("best", sa.String(length=64), nullable=True),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.Column("queries", sa.Integer(), nullable=False),
        sa.Column("nodes_before", sa.Integer(), nullable=True),
        sa.Column("nodes_after", sa.Integer(), nullable=True),
        sa.Column("inputs_after", sa.Integer(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("started", sa.String(length=32), nullable=False),
        sa.Column("finished", sa.String(length=32), nullable=True),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("operators", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["best"], ["documents.digest"], name="fk_reductions_best"),
        sa.ForeignKeyConstraint(["capture"], ["captures.id"], name="fk_reductions_capture"),
        sa.PrimaryKeyConstraint("id", name="pk_reductions"),
    )
    op.create_index("ix_reductions_best", "reductions", ["best"])
    op.create_index("ix_reductions_capture_config_digest", "reductions", ["capture", "config_digest"])
    op.create_table(
        "repros",
        sa.Column("capture", sa.Integer(), nullable=False),
        sa.Column("format", sa.String(length=32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("verified", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("created", sa.String(length=32), nullable=False),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["capture"], ["captures.id"], name="fk_repros_capture"),
        sa.PrimaryKeyConstraint("capture", "format", name="pk_repros"),
    )
    op.create_table(
        "artifacts",
        sa.Column("capture", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["capture"], ["captures.id"], name="fk_artifacts_capture"),
        sa.PrimaryKeyConstraint("capture", "kind", name="pk_artifacts"),
    )
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
    op.create_table(
        "verdicts",
        sa.Column("reduction", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("pass_name", sa.Text(), nullable=False),
        sa.Column("asks", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("signature", sa.String(length=32), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["reduction"], ["reductions.id"], name="fk_verdicts_reduction"),
        sa.PrimaryKeyConstraint("reduction", "key", name="pk_verdicts"),
    )
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
        sa.Column("message", sa.Text(), nullable=False),
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
    for table in (
        "retests",
        "rounds",
        "verdicts",
        "steps",
        "artifacts",
        "repros",
        "reductions",
        "document_blobs",
        "captures",
        "documents",
        "blobs",
    ):
        op.drop_table(table)
