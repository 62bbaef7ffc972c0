"""Run by Alembic: uses the connection, and the transaction, of the index that is being opened."""

from __future__ import annotations

from alembic import context

from fxminify.store.index.tables import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
