"""Search, and counts that are kept so that nobody has to count a million rows."""

from alembic import op

revision = "0003"
down_revision = "0002"

_KEY = "coalesce({row}.agent_id, ''), {row}.status, {row}.worker_type, coalesce({row}.channel_id, '')"
_ONE_MORE = (
    "INSERT INTO run_counts VALUES ("
    + _KEY.format(row="new")
    + ", 1) ON CONFLICT (agent_id, status, worker_type, channel_id) DO UPDATE SET n = n + 1"
)
_ONE_LESS = (
    "UPDATE run_counts SET n = n - 1 WHERE (agent_id, status, worker_type, channel_id) = ("
    + _KEY.format(row="old")
    + ")"
)
_STATEMENTS = (
    "CREATE VIRTUAL TABLE worker_search USING fts5(body, tokenize = 'unicode61')",
    "INSERT INTO worker_search(rowid, body) SELECT num, task || char(10) || coalesce(result, '') FROM worker_runs",
    """
    CREATE TABLE run_counts (
        agent_id TEXT NOT NULL,
        status TEXT NOT NULL,
        worker_type TEXT NOT NULL,
        channel_id TEXT NOT NULL,
        n INTEGER NOT NULL,
        PRIMARY KEY (agent_id, status, worker_type, channel_id)
    ) WITHOUT ROWID
    """,
    f"INSERT INTO run_counts SELECT {_KEY.format(row='worker_runs')}, count(*) FROM worker_runs GROUP BY 1, 2, 3, 4",
    f"CREATE TRIGGER count_new AFTER INSERT ON worker_runs BEGIN {_ONE_MORE}; END",
    f"CREATE TRIGGER count_gone AFTER DELETE ON worker_runs BEGIN {_ONE_LESS}; END",
    f"""
    CREATE TRIGGER count_changed AFTER UPDATE OF agent_id, status, worker_type, channel_id ON worker_runs
    WHEN ({_KEY.format(row="old")}) IS NOT ({_KEY.format(row="new")})
    BEGIN {_ONE_LESS}; {_ONE_MORE}; END
    """,
    "CREATE TRIGGER search_gone AFTER DELETE ON worker_runs BEGIN DELETE FROM worker_search WHERE rowid = old.num; END",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
