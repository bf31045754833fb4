"""Search in pieces: a run that grows is indexed as it grows. Parts of words are found in tasks."""

from typing import Any

from alembic import op

revision = "0009"
down_revision = "0008"

_STATEMENTS = (
    "ALTER TABLE worker_runs ADD COLUMN search_stopped_at INTEGER",
    "ALTER TABLE worker_runs ADD COLUMN interruptions INTEGER NOT NULL DEFAULT 0",
    # Which of them only took up an answer is in the logs.
    "UPDATE worker_runs SET interruptions = attempt - 1 WHERE attempt > 1",
    # The number of a row: that of the run, then 20 bits for the piece. So hits come in the order of runs.
    "CREATE VIRTUAL TABLE search_pieces USING fts5(body, tokenize = 'unicode61 remove_diacritics 2')",
    "INSERT INTO search_pieces(rowid, body) SELECT rowid << 20, body FROM worker_search",
    "DROP TRIGGER search_gone",
    "DROP TABLE worker_search",
    # Case and accents are folded before. Without positions the index takes a third of the space; whoever searches
    # compares the texts that it finds.
    "CREATE TABLE search_tasks (num INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    """
    CREATE VIRTUAL TABLE search_trigrams USING fts5(
        text, tokenize = 'trigram case_sensitive 1', detail = none, columnsize = 0,
        content = 'search_tasks', content_rowid = 'num'
    )
    """,
    """
    CREATE TRIGGER search_task_new AFTER INSERT ON search_tasks BEGIN
        INSERT INTO search_trigrams(rowid, text) VALUES (new.num, new.text);
    END
    """,
    """
    CREATE TRIGGER search_task_gone AFTER DELETE ON search_tasks BEGIN
        INSERT INTO search_trigrams(search_trigrams, rowid, text) VALUES ('delete', old.num, old.text);
    END
    """,
    """
    CREATE TRIGGER search_task_changed AFTER UPDATE ON search_tasks WHEN old.text IS NOT new.text BEGIN
        INSERT INTO search_trigrams(search_trigrams, rowid, text) VALUES ('delete', old.num, old.text);
        INSERT INTO search_trigrams(rowid, text) VALUES (new.num, new.text);
    END
    """,
    """
    CREATE TRIGGER search_gone AFTER DELETE ON worker_runs BEGIN
        DELETE FROM search_tasks WHERE num = old.num;
        DELETE FROM search_pieces WHERE rowid BETWEEN old.num << 20 AND (old.num << 20) + 1048575;
    END
    """,
    "INSERT INTO search_tasks SELECT num, folded(task) FROM worker_runs",
)


def _folded(task: str) -> str:
    return " ".join(task.lower().split())


def upgrade() -> None:
    connection: Any = op.get_bind().connection.driver_connection
    # Enough until the tasks are written again, by `rebuild`.
    connection.create_function("folded", 1, _folded, deterministic=True)
    for statement in _STATEMENTS:
        op.execute(statement)
