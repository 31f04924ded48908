"""What whoever is on duty was told."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table; what lasts is told again."""
    op.create_table(
        "notices",
        sa.Column("agent", sa.String(64), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("checksum", sa.String(32), nullable=False, server_default=""),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("notices")
