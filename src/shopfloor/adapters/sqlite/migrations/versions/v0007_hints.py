"""What can be done about a failure."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("ALTER TABLE worker_runs ADD COLUMN error_hint TEXT")
