"""Migration scripts, and the tables as queries use them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shopfloor.adapters.sqlite import database, queries, waiting
from shopfloor.adapters.sqlite.hooks import due_query
from shopfloor.adapters.sqlite.rows import RUN_COLUMNS
from shopfloor.adapters.sqlite.stats import read_stats
from shopfloor.errors import DatabaseTooNew, DatabaseTooOld, StoreError
from shopfloor.ports import RunFilter, StatsDays

RUN = "5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10"


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return version


def test_an_older_database_gets_the_new_scripts_and_keeps_its_rows(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database.open_database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO channels VALUES ('chat:1', '#general')")
    connection.close()
    first, second = tmp_path / "9001_topic.sql", tmp_path / "9002_filled.sql"
    first.write_text("ALTER TABLE channels ADD COLUMN topic TEXT;\n")
    second.write_text("UPDATE channels SET topic = 'talk';\n")
    for _ in range(2):
        pool = database.open_database(path, [*database.MIGRATIONS, first, second])
        with pool.read_transaction() as connection:
            assert connection.execute("SELECT * FROM channels").fetchall() == [("chat:1", "#general", "talk")]
        pool.close()
    assert version_of(path) == len(database.MIGRATIONS) + 2


def test_a_script_that_fails_changes_nothing(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database.open_database(path).close()
    script = tmp_path / "9001_half.sql"
    script.write_text("CREATE TABLE half (a TEXT);\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(StoreError):
        database.open_database(path, [*database.MIGRATIONS, script])
    assert version_of(path) == len(database.MIGRATIONS)
    pool = database.open_database(path)
    with pool.read_transaction() as connection:
        assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchone() is None
    pool.close()


def test_a_database_without_a_version_is_refused(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE worker_runs (id TEXT)")
    connection.close()
    with pytest.raises(DatabaseTooOld) as refused:
        database.open_database(path)
    assert "shopfloor rebuild" in (refused.value.hint or "")


def test_the_tables_match_the_queries(tmp_path: Path):
    pool = database.open_database(tmp_path / "shopfloor.db")
    with pool.read_transaction() as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(worker_runs)")}
    pool.close()
    assert columns == {"num", *RUN_COLUMNS}


def test_a_database_that_is_newer_than_the_program_is_refused(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database.open_database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9000")
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


def test_concurrent_opens_migrate_a_new_database_once(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    failures: list[BaseException] = []

    def open_it() -> None:
        try:
            database.open_database(path).close()
        except BaseException as error:  # noqa: BLE001 - reported to the test
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert version_of(path) == len(database.MIGRATIONS)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_statistics_of_an_older_database_get_the_sums_of_quarters(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    older = [script for script in database.MIGRATIONS if script.name < "0012"]
    database.open_database(path, older).close()
    with sqlite3.connect(path) as connection:
        insert = "INSERT INTO run_stats VALUES (?, ?, 'spending', 'opus', 'codex', 'hello', 1, ?, ?, ?)"
        connection.executemany(
            insert, [(1, 40, 5, 50, 500), (1, 41, -5, 7, 0), (2, 42, 1, 2, 3), (2, 43, 9, 9, 9), (2, 44, 4, 4, 4)]
        )
    connection.close()
    pool = database.open_database(path)
    with pool.read_transaction() as connection:
        sums = connection.execute("SELECT * FROM stats ORDER BY hour").fetchall()
    pool.close()
    key = ("hello", 1, "opus", "codex")
    assert sums == [
        ("spending", 10, *key, *(10, 68, 512), *(5, 0, 1), *(50, 57, 59), *(500, 500, 503)),
        ("spending", 11, *key, *(4, 4, 4), *(4, 4, 4), *(4, 4, 4), *(4, 4, 4)),
    ]


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
def test_a_list_uses_an_index(tmp_path: Path, wanted: RunFilter, index: str):
    pool = database.open_database(tmp_path / "shopfloor.db")
    text, parameters = queries.list_query(wanted, limit=50)
    with pool.read_transaction() as connection:
        plan = [str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]
    pool.close()
    assert f"USING INDEX {index}" in plan[0]
    assert [line for line in plan if "TEMP B-TREE" in line] == [], "it is sorted after it was read"


def plans_of(tmp_path: Path, job: Callable[[sqlite3.Connection], object]) -> list[list[str]]:
    """Return the plan of each statement of a job on an empty database."""
    pool = database.open_database(tmp_path / "shopfloor.db")
    statements: list[str] = []
    with pool.read_transaction() as connection:
        connection.set_trace_callback(statements.append)
        job(connection)
        connection.set_trace_callback(None)
        plans = [[str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")] for text in statements]
    pool.close()
    return plans


@pytest.mark.req("SF-58", "SF-67")
def test_what_waits_for_a_person_is_found_without_a_scan_the_longest_wait_first(tmp_path: Path):
    plans = plans_of(tmp_path, lambda connection: waiting.read_waiting(connection, "2026-01-01T00:00:00.000Z", 50))
    assert len(plans) == 4
    for plan in plans:
        assert "idx_worker_runs_waiting" in plan[0] or "idx_worker_runs_needs_person (needs_person_since>?)" in plan[0]
        assert [line for line in plan if line.startswith("SCAN worker_runs") and line != plan[0]] == []
        assert [line for line in plan if "TEMP B-TREE" in line] == [], "it is sorted after it was read"


@pytest.mark.req("SF-58")
def test_open_roots_are_found_without_a_scan(tmp_path: Path):
    ((first, *others),) = plans_of(tmp_path, lambda connection: waiting.read_open_roots(connection, RunFilter()))
    assert "USING INDEX idx_worker_runs_open" in first or "USING INDEX idx_worker_runs_host" in first
    assert [
        line for line in others if line.startswith("SCAN worker_runs") and "idx_worker_runs_waiting" not in line
    ] == []


def test_the_open_runs_of_a_host_are_found_without_a_scan(tmp_path: Path):
    pool = database.open_database(tmp_path / "shopfloor.db")
    wanted = RunFilter(open_on_host="local-1", statuses=("running", "waiting"))
    with pool.read_transaction() as connection:
        for text, parameters in (queries.list_query(wanted, limit=50), queries.count_query(wanted)):
            plan = [str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]
            assert "USING INDEX idx_worker_runs_host (host=?)" in plan[0]
            assert [line for line in plan if line.startswith("SCAN")] == []
    pool.close()


@pytest.mark.req("SF-51")
@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RunFilter(min_cost_usd=0.5, roots=True, started_after="2026"), "cost"),
        (RunFilter(max_duration_ms=5, statuses=("failed",)), "duration"),
        (RunFilter(ended_after="2026", model="opus", channel_id="c", min_cost_usd=0.5), "ended"),
        (RunFilter(model="opus", started_after="2026"), "model"),
        (RunFilter(name="build", started_after="2026", roots=True), "name"),
        (RunFilter(channel_id="c", started_after="2026"), "channel"),
        (RunFilter(worker_type="agent", started_after="2026"), "type"),
        (RunFilter(parent_run_id=RUN, statuses=("failed",)), "parent"),
    ],
)
def test_runs_are_counted_by_status_from_an_index_alone(tmp_path: Path, wanted: RunFilter, index: str):
    plans = plans_of(tmp_path, lambda connection: queries.count_by_status(connection, wanted))
    assert f"COVERING INDEX idx_worker_runs_{index} " in plans[-1][0]


@pytest.mark.req("SF-51")
@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RunFilter(min_cost_usd=0.5, name="build", started_after="2026"), "cost"),
        (RunFilter(min_duration_ms=5, statuses=("failed",)), "duration"),
        (RunFilter(ended_after="2026", statuses=("failed",)), "ended"),
        (RunFilter(id_prefix="face", roots=True), "autoindex_worker_runs_1"),
    ],
)
def test_a_list_of_few_runs_in_a_range_reads_the_index_of_the_range(tmp_path: Path, wanted: RunFilter, index: str):
    def job(connection: sqlite3.Connection) -> None:
        by_range = queries.find_range(connection, wanted)
        connection.execute(*queries.list_query(wanted, limit=50, by_range=by_range))

    listed = plans_of(tmp_path, job)[-1]
    assert f"{index} (" in listed[0]
    assert listed[0].startswith("SEARCH")


@pytest.mark.req("SF-50")
def test_statistics_with_a_filter_read_the_runs_that_ended_in_the_range_from_an_index_alone(tmp_path: Path):
    days = StatsDays((96, 192), (96, 192), needs_person_after="2026")
    wanted = RunFilter(model="opus", agent_id="ada", channel_id="c", error_code="x", min_cost_usd=0.5, roots=True)
    plans = plans_of(tmp_path, lambda connection: read_stats(connection, wanted, days))
    ended = [line for plan in plans for line in plan if "idx_worker_runs_ended" in line]
    assert ended == ["SEARCH worker_runs USING COVERING INDEX idx_worker_runs_ended (completed_at>?)"]
    assert [line for plan in plans for line in plan if line == "SCAN worker_runs"] == []


@pytest.mark.req("SF-59")
def test_due_deliveries_are_found_without_a_scan_and_those_of_an_older_database_are_kept(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    older = [script for script in database.MIGRATIONS if script.name < "0013"]
    database.open_database(path, older).close()
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO hooks (id, body) VALUES (?, '')", [("down",), ("due",), ("busy",)])
        insert = "INSERT INTO deliveries (hook_id, event_id, body, next_at, expires_at) VALUES (?, ?, '', ?, '9')"
        # The oldest delivery of a hook decides, whenever the later ones are due.
        rows = [("down", "a", "7"), ("due", "b", "1"), ("down", "c", "1"), ("busy", "d", "1"), ("due", "e", "7")]
        connection.executemany(insert, rows)
    connection.close()
    pool = database.open_database(path)
    text, parameters = due_query("5", limit=50, exclude=["busy"])
    with pool.read_transaction() as connection:
        found = [row[2] for row in connection.execute(text, parameters)]
        plan = [str(row[-1]) for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]
    pool.close()
    assert found == ["b", "e"]
    # Only the hooks are scanned.
    assert [line.split()[:2] for line in plan if line.startswith("SCAN")] == [["SCAN", "receiver"]]
    assert "SEARCH deliveries USING COVERING INDEX idx_deliveries_hook (hook_id=?)" in plan
    assert "SEARCH pending USING COVERING INDEX idx_deliveries_hook (hook_id=?)" in plan


@pytest.mark.req("WT-25")
def test_a_timeline_uses_an_index(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    database.open_database(path).close()
    with sqlite3.connect(path) as connection:
        query = "EXPLAIN QUERY PLAN SELECT * FROM worker_events WHERE worker_id = ? ORDER BY created_at"
        plan = " ".join(str(row[-1]) for row in connection.execute(query, (RUN,)))
    connection.close()
    assert "USING INDEX idx_worker_events_worker (worker_id=?)" in plan
