"""What a page shows besides: what powers a run, how many it called; and lists of the runs that no run called."""

from alembic import op

revision = "0006"
down_revision = "0005"

_COLUMNS = "agent_id, status, worker_type, channel_id, name, roots"
_KEY = (
    "coalesce({row}.agent_id, ''), {row}.status, {row}.worker_type, coalesce({row}.channel_id, ''), {row}.name, "
    "{row}.parent_run_id IS NULL"
)
_ONE_MORE = (
    "INSERT INTO run_counts VALUES ("
    + _KEY.format(row="new")
    + f", 1) ON CONFLICT ({_COLUMNS}) DO UPDATE SET n = n + 1"
)
_ONE_LESS = f"UPDATE run_counts SET n = n - 1 WHERE ({_COLUMNS}) = (" + _KEY.format(row="old") + ")"
_INDEXES = {
    "agent": "agent_id, started_at, num",
    "agent_status": "agent_id, status, started_at, num",
    "status": "status, started_at, num",
    "channel": "channel_id, started_at, num",
    "type": "worker_type, started_at, num",
}
_STATEMENTS = (
    "ALTER TABLE worker_runs ADD COLUMN provider TEXT",
    "ALTER TABLE worker_runs ADD COLUMN model TEXT",
    "ALTER TABLE worker_runs ADD COLUMN children INTEGER NOT NULL DEFAULT 0",
    "UPDATE worker_runs SET provider = worker_type WHERE worker_type NOT IN ('builtin', 'plugin', 'command')",
    """
    UPDATE worker_runs SET children = found.n
    FROM (
        SELECT parent_run_id AS id, count(*) AS n FROM worker_runs WHERE parent_run_id IS NOT NULL GROUP BY 1
    ) AS found
    WHERE found.id = worker_runs.id
    """,
    "CREATE INDEX idx_worker_runs_roots ON worker_runs(started_at, num) WHERE parent_run_id IS NULL",
    "CREATE INDEX idx_worker_runs_name ON worker_runs(name, started_at, num, parent_run_id)",
    # The parent stands in each of them, so that runs which some run called are passed over without being read.
    *(f"DROP INDEX idx_worker_runs_{name}" for name in (*_INDEXES, "parent")),
    *(
        f"CREATE INDEX idx_worker_runs_{name} ON worker_runs({columns}, parent_run_id)"
        for name, columns in _INDEXES.items()
    ),
    """
    CREATE INDEX idx_worker_runs_parent ON worker_runs(parent_run_id, started_at, num)
    WHERE parent_run_id IS NOT NULL
    """,
    "DROP TRIGGER count_new",
    "DROP TRIGGER count_gone",
    "DROP TRIGGER count_changed",
    "DROP TABLE run_counts",
    """
    CREATE TABLE run_counts (
        agent_id TEXT NOT NULL,
        status TEXT NOT NULL,
        worker_type TEXT NOT NULL,
        channel_id TEXT NOT NULL,
        name TEXT NOT NULL,
        roots BOOLEAN NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (agent_id, status, worker_type, channel_id, name, roots)
    ) WITHOUT ROWID
    """,
    f"""
    INSERT INTO run_counts SELECT {_KEY.format(row="worker_runs")}, count(*) FROM worker_runs
    GROUP BY 1, 2, 3, 4, 5, 6
    """,
    f"CREATE TRIGGER count_new AFTER INSERT ON worker_runs BEGIN {_ONE_MORE}; END",
    f"CREATE TRIGGER count_gone AFTER DELETE ON worker_runs BEGIN {_ONE_LESS}; END",
    f"""
    CREATE TRIGGER count_changed
    AFTER UPDATE OF agent_id, status, worker_type, channel_id, name, parent_run_id ON worker_runs
    WHEN ({_KEY.format(row="old")}) IS NOT ({_KEY.format(row="new")})
    BEGIN {_ONE_LESS}; {_ONE_MORE}; END
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
