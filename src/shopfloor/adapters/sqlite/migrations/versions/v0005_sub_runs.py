"""What the runs that a run called have spent."""

from alembic import op

revision = "0005"
down_revision = "0004"

_STATEMENTS = (
    "ALTER TABLE worker_runs ADD COLUMN sub_usage TEXT",
    "ALTER TABLE worker_runs ADD COLUMN sub_cost_usd REAL",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
