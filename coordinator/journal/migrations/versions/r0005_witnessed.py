"""Heads of vehicles' logs of forecasts that were seen."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table; vehicles tell their heads again."""
    op.create_table(
        "witnessed",
        sa.Column("agent", sa.String(64), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("checksum", sa.String(32), nullable=False, server_default=""),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("witnessed")
