"""Makes schema.sql, by which a new database is created at once, from the migrations, which update an old one."""

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

from shopfloor.adapters.sqlite.database import SCHEMA, migrate_file

_OBJECTS = """
    SELECT sql FROM sqlite_schema AS object
    WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
    AND NOT EXISTS (
        SELECT 1 FROM sqlite_schema AS virtual
        WHERE virtual.sql LIKE 'CREATE VIRTUAL TABLE%' AND object.tbl_name LIKE virtual.name || '\\_%' ESCAPE '\\'
    )
    ORDER BY rowid
"""


def schema_of_migrations() -> str:
    """The statements that make what all migrations make together. Tables that FTS5 makes by itself are left out."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.db"
        migrate_file(path)
        connection = sqlite3.connect(path)
        statements = [sql for (sql,) in connection.execute(_OBJECTS)]
        ((version,),) = connection.execute("SELECT version_num FROM alembic_version")
        connection.close()
    statements.append(f"INSERT INTO alembic_version VALUES ('{version}')")
    head = "-- Made by `make docs` from the migrations; a test fails when it is stale.\n"
    return head + "".join(f"{statement};\n" for statement in statements)


if __name__ == "__main__":
    SCHEMA.write_text(schema_of_migrations(), encoding="utf-8")
