"""Alembic migrations of the journal, applied when it is opened."""
