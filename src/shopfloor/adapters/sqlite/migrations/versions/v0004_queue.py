"""The queue: runs that are to be made, what somebody asks of runs, and when a run that waits is to be woken."""

from alembic import op

revision = "0004"
down_revision = "0003"

_STATEMENTS = (
    """
    CREATE TABLE dispatches (
        num INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        host TEXT,
        body BLOB NOT NULL
    )
    """,
    "CREATE INDEX idx_dispatches_free ON dispatches(num) WHERE host IS NULL",
    "CREATE INDEX idx_dispatches_claimed ON dispatches(host) WHERE host IS NOT NULL",
    """
    CREATE TABLE orders (
        num INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL,
        id TEXT NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (run_id, id)
    )
    """,
    # Beside each key what was asked for under it, so that something else under the same key is noticed.
    "CREATE TABLE dispatch_keys (key TEXT PRIMARY KEY, run_id TEXT NOT NULL, asked BLOB NOT NULL)",
    "CREATE INDEX idx_dispatch_keys_run ON dispatch_keys(run_id)",
    "ALTER TABLE worker_runs ADD COLUMN wake_at TEXT",
    "ALTER TABLE worker_runs ADD COLUMN waits TEXT",
    "ALTER TABLE worker_runs ADD COLUMN outside BOOLEAN NOT NULL DEFAULT 0",
    """
    UPDATE worker_runs SET outside = 1,
        waits = json_object('calls', (SELECT json_group_object(value, '') FROM json_each(awaits)))
    WHERE awaits IS NOT NULL
    """,
    "ALTER TABLE worker_runs DROP COLUMN awaits",
    "CREATE INDEX idx_worker_runs_wake ON worker_runs(wake_at) WHERE wake_at IS NOT NULL",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
