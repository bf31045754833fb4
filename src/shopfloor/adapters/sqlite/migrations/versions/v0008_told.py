"""What the messages of steps that go on say was spent."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute("ALTER TABLE worker_runs ADD COLUMN told TEXT")
