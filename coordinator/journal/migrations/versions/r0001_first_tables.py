"""First tables: records, runs, models."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables. Written out, not taken from `tables`: a migration must not change when the tables do."""
    op.create_table(
        "records",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("run", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("wall", sa.Double, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("checksum", sa.String(32), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_records_run", "records", ["run"])
    op.create_table(
        "runs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run", sa.String(64), nullable=False, unique=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("run", sa.String(64), nullable=False, unique=True),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("models", "runs", "records"):
        op.drop_table(table)
