"""Alembic migrations of the index."""
