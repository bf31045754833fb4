"""The database comes forward from every earlier version, with what is in it."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import anyio
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from tools.database_schema import schema_of_migrations

from shopfloor.adapters.sqlite import SqliteQueue, SqliteStore, database, queries
from shopfloor.adapters.sqlite.rows import RUN_COLUMNS
from shopfloor.errors import DatabaseTooNew, StoreError
from shopfloor.log import Usage
from shopfloor.ports import RunFilter

MIGRATIONS = Path(database.__file__).with_name("migrations")
RUN = "5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10"
CHILD = "6f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10"


def config() -> Config:
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    return made


def versions() -> list[str]:
    """All of them, oldest first."""
    return [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()][::-1]


def database_of(version: str, path: Path) -> None:
    """A database as that version left it."""
    database.migrate_file(path, version)


def fill(path: Path) -> None:
    """A run, its timeline and its channel, in the columns that every version has."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO worker_runs (id, channel_id, task, result, status, started_at, completed_at, agent_id)"
            " VALUES (?, 'chat:1', 'an old task', 'an old result', 'completed', '2026-01-01T00:00:00.000Z',"
            " '2026-01-01T00:00:09.000Z', 'ada')",
            (RUN,),
        )
        for status in ("starting", "completed"):
            connection.execute(
                "INSERT INTO worker_events (worker_id, event_type, data, created_at) VALUES (?, 'status', ?, '2026')",
                (RUN, f'{{"status": "{status}"}}'),
            )
            if "seq" in {row[1] for row in connection.execute("PRAGMA table_info(worker_events)")}:
                connection.execute("UPDATE worker_events SET n = id")
        connection.execute("INSERT INTO channels VALUES ('chat:1', '#general')")
    connection.close()


def test_the_newest_version_is_the_one_that_the_program_names():
    assert versions()[-1] == database.HEAD


@pytest.mark.parametrize("version", versions())
def test_a_database_of_each_version_comes_forward_with_its_data(tmp_path: Path, version: str):
    path = tmp_path / "shopfloor.db"
    database_of(version, path)
    fill(path)

    async def main() -> None:
        store = await SqliteStore.open(path)
        page = await store.list_runs(RunFilter(agent_id="ada", statuses=("completed",)), limit=5)
        (item,) = page.items
        assert (page.total, item.row.id, item.row.task, item.channel_name) == (1, RUN, "an old task", "#general")
        assert [event.data["status"] for event in await store.timeline(RUN, limit=9)] == ["starting", "completed"]
        found = await store.get_run(RUN)
        assert found is not None
        assert found.row.result == "an old result"
        if version < "0003":
            # Later ones are filled by the program itself.
            assert (await store.list_runs(RunFilter(search="old result"), limit=5)).total == 1
            assert found.event_count == (2 if version == "0001" else 0)
        await store.close()

    anyio.run(main)


def test_what_was_queued_before_the_queue_kept_first_events_can_be_claimed(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database_of("0009", path)
    old = {"worker": "greet", "input": {"n": None, "x": 1.5}, "task": "t", "agent_id": "ada", "channel_id": "api"}
    old |= {"queued_at": "2026-01-01T00:00:00.000Z", "definition": {"slug": "greet"}, "definition_hash": "h"}
    alone = old | {"run_id": RUN, "root_run_id": RUN, "worker_type": "builtin", "idempotency_key": "k"}
    child = old | {"run_id": CHILD, "root_run_id": RUN, "worker_type": "codex", "parent_run_id": RUN, "depth": 1}
    with sqlite3.connect(path) as connection:
        for body in (alone, child):
            connection.execute(
                "INSERT INTO dispatches (run_id, body) VALUES (?, ?)", (body["run_id"], json.dumps(body).encode())
            )
    connection.close()

    async def main() -> None:
        store = await SqliteStore.open(path)
        first, second = await SqliteQueue(store).claim("here", 9)
        assert (first.run_id, first.parent_run_id, first.root_run_id) == (RUN, None, RUN)
        assert (first.started.name, first.started.kind, first.started.idempotency_key) == ("greet", "worker", "k")
        assert (first.started.input, first.started.definition) == (old["input"], old["definition"])
        assert (second.run_id, second.parent_run_id, second.root_run_id) == (CHILD, RUN, RUN)
        assert (second.started.kind, second.started.parent) == ("agent", {"run_id": RUN, "depth": 1})
        await store.close()

    anyio.run(main)


def test_what_a_run_had_spent_is_still_known_when_it_becomes_one_value(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database_of("0009", path)
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE worker_runs SET usage = '{\"input\":5}', cost_usd = 0.5, sub_usage = '{\"output\":2}'"
        )
    connection.close()

    async def main() -> None:
        store = await SqliteStore.open(path)
        found = await store.get_run(RUN)
        assert found is not None
        assert (found.row.spending.own.usage, found.row.spending.own.cost_usd) == (Usage(input=5), 0.5)
        assert (found.row.spending.tree.usage, found.row.spending.sub.cost) == (Usage(input=5, output=2), None)
        await store.close()

    anyio.run(main)


def test_the_tables_are_what_the_queries_take_them_for(tmp_path: Path):
    pool = database.open_database(tmp_path / "shopfloor.db")
    with pool.reading() as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(worker_runs)")}
    pool.close()
    assert columns == {"num", *RUN_COLUMNS}


def test_a_database_that_is_newer_than_the_program_is_refused(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database.open_database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9000'")
    connection.close()
    with pytest.raises(DatabaseTooNew, match="9000"):
        database.open_database(path)


def test_a_file_that_is_no_database_is_a_clear_error(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    path.write_bytes(b"words" * 1000)
    with pytest.raises(StoreError) as refused:
        database.open_database(path)
    assert refused.value.hint
    assert "rebuild" in refused.value.hint


def test_many_who_open_a_new_database_at_once_migrate_it_once(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    failures: list[BaseException] = []

    def open_it() -> None:
        try:
            database.open_database(path).close()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(database.HEAD,)]
    connection.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_known_already_is_filled_in_when_a_page_comes_to_need_it(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database_of("0005", path)
    with sqlite3.connect(path) as connection:
        for run_id, parent, worker_type in (
            *(("root", None, "builtin"), ("a", "root", "claude-code"), ("b", "root", "command")),
            ("lost", "gone", "builtin"),
        ):
            connection.execute(
                "INSERT INTO worker_runs (id, task, parent_run_id, worker_type, name, agent_id, started_at)"
                " VALUES (?, 't', ?, ?, 'w', 'ada', '2026-01-01T00:00:00.000Z')",
                (run_id, parent, worker_type),
            )
    connection.close()

    async def main() -> None:
        store = await SqliteStore.open(path)
        rows = {item.row.id: item.row for item in (await store.list_runs(RunFilter(), limit=9)).items}
        assert {run_id: row.children for run_id, row in rows.items()} == {"root": 2, "a": 0, "b": 0, "lost": 0}
        assert {run_id: row.provider for run_id, row in rows.items() if row.provider} == {"a": "claude-code"}
        of_ada = RunFilter(name="w", agent_id="ada")
        for wanted, total in ((RunFilter(roots=True), 1), (RunFilter(roots=False), 3), (of_ada, 4)):
            page = await store.list_runs(wanted, limit=9)
            assert (page.total, len(page.items)) == (total, total)
        await store.delete("root")
        assert (await store.list_runs(RunFilter(roots=True), limit=9)).total == 0
        await store.close()

    anyio.run(main)


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RunFilter(), "idx_worker_runs_newest"),
        (RunFilter(roots=True), "idx_worker_runs_roots"),
        (RunFilter(name="w"), "idx_worker_runs_name (name=?)"),
        (RunFilter(name="w", roots=True), "idx_worker_runs_name (name=?)"),
        (RunFilter(agent_id="a", roots=True), "idx_worker_runs_agent (agent_id=?)"),
        (RunFilter(agent_id="a", statuses=("failed",)), "idx_worker_runs_agent_status (agent_id=? AND status=?)"),
        (RunFilter(parent_run_id="p"), "idx_worker_runs_parent (parent_run_id=?)"),
    ],
    ids=str,
)
def test_a_list_is_read_off_an_index(tmp_path: Path, wanted: RunFilter, index: str):
    pool = database.open_database(tmp_path / "shopfloor.db")
    text, parameters = queries.listing(wanted, limit=50)
    with pool.reading() as connection:
        plan = [str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]
    pool.close()
    assert f"USING INDEX {index}" in plan[0]
    assert [line for line in plan if "TEMP B-TREE" in line] == [], "it is sorted after it was read"


@pytest.mark.req("WT-25")
def test_a_timeline_is_found_by_an_index_and_not_by_reading_every_row(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database.open_database(path).close()
    with sqlite3.connect(path) as connection:
        query = "EXPLAIN QUERY PLAN SELECT * FROM worker_events WHERE worker_id = ? ORDER BY created_at"
        plan = " ".join(str(row[-1]) for row in connection.execute(query, (RUN,)))
    connection.close()
    assert "USING INDEX idx_worker_events_worker (worker_id=?)" in plan


def test_a_new_database_is_what_all_migrations_make_together() -> None:
    assert schema_of_migrations() == database.SCHEMA.read_text(encoding="utf-8"), "run `make docs`"
