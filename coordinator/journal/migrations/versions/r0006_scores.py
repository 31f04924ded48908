"""What vehicles scored of model versions."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table; vehicles tell their last scores again."""
    op.create_table(
        "scores",
        sa.Column("agent", sa.String(64), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("checksum", sa.String(32), nullable=False, server_default=""),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("scores")
