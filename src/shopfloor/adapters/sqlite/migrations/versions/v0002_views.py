"""What a row shows besides, the archive beside it, how far its views are, pins and tombstones."""

from alembic import op

revision = "0002"
down_revision = "0001"

_COLUMNS = (
    "parent_run_id TEXT",
    "root_run_id TEXT",
    "name TEXT NOT NULL DEFAULT ''",
    "kind TEXT NOT NULL DEFAULT ''",
    "error_code TEXT",
    "error_message TEXT",
    "host TEXT",
    "attempt INTEGER NOT NULL DEFAULT 0",
    "queued_at TIMESTAMP",
    "duration_ms INTEGER",
    "tool_calls INTEGER NOT NULL DEFAULT 0",
    "messages INTEGER NOT NULL DEFAULT 0",
    "usage TEXT",
    "cost_usd REAL",
    "awaits TEXT",
    "last_seq INTEGER NOT NULL DEFAULT 0",
    "event_count INTEGER NOT NULL DEFAULT 0",
    "has_transcript BOOLEAN NOT NULL DEFAULT 0",
)
_STATEMENTS = (
    *(f"ALTER TABLE worker_runs ADD COLUMN {column}" for column in _COLUMNS),
    "ALTER TABLE worker_events ADD COLUMN seq INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE worker_events ADD COLUMN n INTEGER NOT NULL DEFAULT 0",
    "UPDATE worker_runs SET event_count = (SELECT count(*) FROM worker_events WHERE worker_id = worker_runs.id)",
    # Rows of before know nothing of events in a log: their own number tells them apart.
    "UPDATE worker_events SET n = id",
    "CREATE UNIQUE INDEX idx_worker_events_seq ON worker_events(worker_id, seq, n)",
    "CREATE INDEX idx_worker_runs_newest ON worker_runs(started_at, num)",
    "CREATE INDEX idx_worker_runs_agent ON worker_runs(agent_id, started_at, num)",
    "CREATE INDEX idx_worker_runs_agent_status ON worker_runs(agent_id, status, started_at, num)",
    "CREATE INDEX idx_worker_runs_status ON worker_runs(status, started_at, num)",
    "CREATE INDEX idx_worker_runs_channel ON worker_runs(channel_id, started_at, num)",
    "CREATE INDEX idx_worker_runs_type ON worker_runs(worker_type, started_at, num)",
    "CREATE INDEX idx_worker_runs_parent ON worker_runs(parent_run_id) WHERE parent_run_id IS NOT NULL",
    "CREATE INDEX idx_worker_runs_open ON worker_runs(id) WHERE completed_at IS NULL",
    "CREATE INDEX idx_worker_runs_ended ON worker_runs(completed_at) WHERE completed_at IS NOT NULL",
    """
    CREATE TABLE worker_transcripts (
        worker_id TEXT PRIMARY KEY REFERENCES worker_runs(id) ON DELETE CASCADE,
        transcript BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE worker_folds (
        worker_id TEXT PRIMARY KEY REFERENCES worker_runs(id) ON DELETE CASCADE,
        state BLOB NOT NULL
    )
    """,
    "CREATE TABLE pins (worker_id TEXT PRIMARY KEY)",
    "CREATE TABLE tombstones (worker_id TEXT PRIMARY KEY)",
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
