"""Decisions about models: which version is current, and the steps of rollouts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table. Written out, not taken from `tables`: a migration must not change when the tables do."""
    op.create_table(
        "decisions",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("wall", sa.Double, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_decisions_name", "decisions", ["name"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("decisions")
