"""Runs, their timelines, and the channels they came from."""

from alembic import op

revision = "0001"
down_revision = None

_STATEMENTS = (
    """
    CREATE TABLE worker_runs (
        num INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        channel_id TEXT,
        task TEXT NOT NULL,
        result TEXT,
        status TEXT NOT NULL DEFAULT 'running',
        started_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        completed_at TIMESTAMP,
        worker_type TEXT NOT NULL DEFAULT 'builtin',
        agent_id TEXT
    )
    """,
    """
    CREATE TABLE worker_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        worker_id TEXT NOT NULL,
        event_type TEXT NOT NULL,
        data TEXT,
        created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        FOREIGN KEY (worker_id) REFERENCES worker_runs(id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX idx_worker_events_worker ON worker_events(worker_id, created_at)",
    "CREATE TABLE channels (id TEXT PRIMARY KEY, name TEXT)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
