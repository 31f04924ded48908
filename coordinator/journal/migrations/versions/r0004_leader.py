"""Who leads, and with which settings: for a coordinator that stands by."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table; the next coordinator that leads writes its row."""
    op.create_table(
        "leader",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("checksum", sa.String(32), nullable=False, server_default=""),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("leader")
