"""The store in SQLite: many readers, and one writing thread that applies view updates in batches."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, NamedTuple, TypeVar, get_args

import anyio
import anyio.to_thread
import msgspec

from shopfloor.adapters.limits import DATABASE_READERS, FLEET_EVENTS_KEPT
from shopfloor.adapters.sqlite import queries
from shopfloor.adapters.sqlite.database import (
    DATABASE_ERRORS,
    Pool,
    Writer,
    damaged_error,
    is_damage,
    map_sqlite_error,
    open_database,
    run_each,
)
from shopfloor.adapters.sqlite.fleet_events import insert_fleet_events
from shopfloor.adapters.sqlite.health import Health
from shopfloor.adapters.sqlite.hooks import DELETE_HOOKS_OF_RUN, insert_deliveries
from shopfloor.adapters.sqlite.intake import Intake, Mark, mark_line
from shopfloor.adapters.sqlite.provider_health import store_observations
from shopfloor.adapters.sqlite.queries import MARK_STATEMENTS, Query, placeholders
from shopfloor.adapters.sqlite.rows import (
    RUN_COLUMNS,
    TIMELINE_COLUMNS,
    decode_run_item,
    decode_timeline_item,
    run_column_values,
)
from shopfloor.adapters.sqlite.search import UPSERT_CHUNK, UPSERT_TASK, find_runs, snippets, task_text
from shopfloor.adapters.sqlite.stats import add_stats, read_stats
from shopfloor.errors import ShopfloorError
from shopfloor.ports import (
    Channel,
    OpenRun,
    RunFilter,
    RunItem,
    RunOrder,
    RunPage,
    StatsDays,
    TimelineItem,
    ViewState,
    ViewUpdate,
)
from shopfloor.views import FleetEvent, Notification, ProviderObservation, RunState, StoredStats

_encode = msgspec.json.Encoder().encode
_ROWS_PER_STATEMENT: Final = 500
"""The number of rows per statement: bounds its parameters, and the memory SQLite uses for it."""

_DELETED: Final = "SELECT worker_id FROM tombstones WHERE worker_id IN "
_LAST_SEQS: Final = "SELECT id, last_seq FROM worker_runs WHERE id IN "
_DELETE_STATES: Final = "DELETE FROM worker_folds WHERE worker_id IN "
_POSITIONS: Final = "SELECT run_id, seq FROM fleet_positions WHERE run_id IN "
_DELETE_POSITIONS: Final = "DELETE FROM fleet_positions WHERE run_id IN "

Rows = list[tuple[Any, ...]]


class _Insert:
    """An insert of many rows per statement: after each statement the driver has to reacquire the GIL."""

    def __init__(self, table: str, columns: Sequence[str], conflict: str = "") -> None:
        self._into = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        self._values = placeholders(columns)
        self._conflict = conflict

    def run(self, connection: Connection, rows: Rows) -> None:
        for first in range(0, len(rows), _ROWS_PER_STATEMENT):
            batch = rows[first : first + _ROWS_PER_STATEMENT]
            text = f"{self._into}{', '.join([self._values] * len(batch))}{self._conflict}"
            connection.execute(text, tuple(chain.from_iterable(batch)))


_NEW_VALUES: Final = {name: f"excluded.{name}" for name in RUN_COLUMNS} | {
    "event_count": "worker_runs.event_count + excluded.event_count",
    "has_transcript": "worker_runs.has_transcript OR excluded.has_transcript",
}


def _upsert(table: str, key: str, column: str) -> _Insert:
    """Return an insert of `column` by `key`, which updates an existing row unless the new value is NULL."""
    value = f"coalesce(excluded.{column}, {table}.{column})"
    return _Insert(table, (key, column), f" ON CONFLICT ({key}) DO UPDATE SET {column} = {value}")


_RUN = _Insert(
    "worker_runs",
    RUN_COLUMNS,
    f" ON CONFLICT (id) DO UPDATE SET {', '.join([f'{name} = {value}' for name, value in _NEW_VALUES.items()])}",
)
_CHANNEL = _upsert("channels", "id", "name")
_TIMELINE = _Insert("worker_events", ("worker_id", "event_type", "data", "created_at", "seq", "n"))
_ARCHIVE = _upsert("worker_transcripts", "worker_id", "transcript")
_STATE = _upsert("worker_folds", "worker_id", "state")


class _SearchRows(NamedTuple):
    tasks: Rows
    chunks: Rows


def _apply_updates(connection: Connection, changes: Sequence[ViewUpdate], fleet_events_kept: int) -> None:
    """Write the updates. Skips deleted runs, and updates that are not newer than the stored row."""
    if not changes:
        return
    ids = [change.row.id for change in changes]
    deleted_run_ids = {run_id for (run_id,) in connection.execute(f"{_DELETED}{placeholders(ids)}", ids)}
    last_seqs: dict[str, int] = dict(connection.execute(f"{_LAST_SEQS}{placeholders(ids)}", ids).fetchall())
    # Runs come first: the other tables refer to them.
    rows: dict[_Insert, Rows] = {statement: [] for statement in (_RUN, _CHANNEL, _TIMELINE, _ARCHIVE, _STATE)}
    search_rows = _SearchRows([], [])
    fleet_events: list[FleetEvent] = []
    notifications: list[Notification] = []
    with_stats: list[tuple[ViewUpdate, int | None]] = []
    observations: list[ProviderObservation] = []
    positions: dict[str, int] = dict(connection.execute(f"{_POSITIONS}{placeholders(ids)}", ids).fetchall())
    for change in changes:
        run_id, last_seq = change.row.id, last_seqs.get(change.row.id)
        if run_id not in deleted_run_ids and (last_seq is None or last_seq < change.row.last_seq):
            last_seqs[run_id] = change.row.last_seq
            _collect_rows(rows, change, last_seq)
            _collect_search_rows(search_rows, change, last_seq)
            if change.stats:
                with_stats.append((change, last_seq))
            # The fleet events of a run whose views are made again are stored up to its position already.
            stored_seq = max(last_seq or 0, positions.get(run_id, 0))
            fleet_events += [event for event in change.fleet_events if event.seq > stored_seq]
            notifications += [item for item in change.notifications if item.seq > stored_seq]
            observations += change.observations
    for statement, parameters in rows.items():
        statement.run(connection, parameters)
    add_stats(connection, with_stats)
    insert_fleet_events(connection, fleet_events, fleet_events_kept)
    insert_deliveries(connection, notifications)
    store_observations(connection, observations)
    if passed := [run_id for run_id, seq in positions.items() if seq <= last_seqs.get(run_id, 0)]:
        connection.execute(f"{_DELETE_POSITIONS}{placeholders(passed)}", passed)
    connection.executemany(UPSERT_TASK, search_rows.tasks)
    connection.executemany(UPSERT_CHUNK, search_rows.chunks)
    if ended := [change.row.id for change in changes if change.row.is_ended]:
        connection.execute(f"{_DELETE_STATES}{placeholders(ended)}", ended)


def _collect_rows(rows: dict[_Insert, Rows], change: ViewUpdate, last_seq: int | None) -> None:
    """Add the rows of a change to a run that is stored up to `last_seq`; None if the run is not stored yet."""
    row = change.row
    # Another process may have applied the same events: skip items up to the stored `last_seq`.
    items = [item for item in change.timeline if last_seq is None or item.seq > last_seq]
    rows[_RUN].append(run_column_values(row, len(items), change.archive is not None, change.search_stopped_at))
    if last_seq is None and row.channel_id is not None:
        rows[_CHANNEL].append((row.channel_id, row.channel_name))
    rows[_TIMELINE] += [
        (row.id, item.event_type, _encode(item.data).decode(), item.created_at, item.seq, item.n) for item in items
    ]
    if change.archive is not None:
        rows[_ARCHIVE].append((row.id, change.archive))
    if not row.is_ended:
        rows[_STATE].append((row.id, change.state))


def _collect_search_rows(search_rows: _SearchRows, change: ViewUpdate, last_seq: int | None) -> None:
    row = change.row
    if not last_seq or row.is_ended:
        search_rows.tasks.append((row.id, task_text(row.task)))
    search_rows.chunks.extend((row.id, chunk.number, chunk.text) for chunk in change.search)


T = TypeVar("T")
_MARK_SETTING = "announcements"
_CHANNELS = "SELECT id, name FROM channels ORDER BY id"
_HALF_DELETED = (
    "SELECT id FROM worker_runs WHERE id IN (SELECT worker_id FROM tombstones)"
    " UNION SELECT run_id FROM dispatch_keys WHERE run_id IN (SELECT worker_id FROM tombstones)"
)
_START_WAITS = (
    "SELECT max(0.0, round((julianday(started_at) - julianday(queued_at)) * 86400, 3)) FROM worker_runs"
    " WHERE started_at > ? AND status <> 'queued' AND queued_at IS NOT NULL ORDER BY started_at DESC, num DESC LIMIT ?"
)
_EXPIRED = (
    "SELECT id, completed_at FROM worker_runs WHERE completed_at < ? AND completed_at >= ?"
    " AND id NOT IN (SELECT worker_id FROM pins) ORDER BY completed_at, num LIMIT ?"
)
_OVERDUE_PARENTS = (
    "SELECT DISTINCT parent.id FROM worker_runs AS parent, json_each(parent.waits, '$.runs') AS called"
    " JOIN worker_runs AS child ON child.id = called.value"
    " WHERE parent.completed_at IS NULL AND parent.status = 'waiting' AND child.completed_at IS NOT NULL"
)
_RECENT_DURATIONS = (
    "SELECT duration_ms FROM worker_runs WHERE name = ? AND status = 'completed' AND duration_ms IS NOT NULL"
    " ORDER BY started_at DESC, num DESC LIMIT ?"
)
_KEEP_POSITIONS = (
    "INSERT INTO fleet_positions (run_id, seq) SELECT id, last_seq FROM worker_runs WHERE {condition}"
    " ON CONFLICT (run_id) DO UPDATE SET seq = max(seq, excluded.seq)"
)
"""Remembers how far the fleet events of runs are stored, before their rows are deleted."""


class SqliteStore:
    """Implements `Store`."""

    def __init__(self, pool: Pool, path: Path, *, fleet_events_kept: int = FLEET_EVENTS_KEPT) -> None:
        self._pool = pool
        self.fleet_events_kept = fleet_events_kept
        self._health = Health(path)
        self.intake = Intake(path.with_name("intake.jsonl"))
        self.writer = Writer(pool, health=self._health, intake=self.intake)
        self._readers = anyio.CapacityLimiter(DATABASE_READERS)
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, fleet_events_kept: int = FLEET_EVENTS_KEPT) -> SqliteStore:
        """Open the database at `path`, creating and migrating it. Raises `StoreError` or `StorageError`."""
        pool = await anyio.to_thread.run_sync(open_database, path)
        return cls(pool, path, fleet_events_kept=fleet_events_kept)

    async def read(self, job: Callable[[Connection], T]) -> T:
        """Run a job in a read transaction, in a thread. Raises `StoreError`."""

        def work() -> T:
            self._health.check()
            try:
                try:
                    return self._run_job(job)
                except DATABASE_ERRORS as error:
                    if not is_damage(error):
                        raise
                    # Damage is final, so it has to be confirmed by a new connection, which has an empty cache.
                    return self._run_job(job)
            except DATABASE_ERRORS as error:
                mapped = map_sqlite_error(error)
                self._health.note(mapped)
                raise mapped from error

        return await anyio.to_thread.run_sync(work, limiter=self._readers)

    def _run_job(self, job: Callable[[Connection], T]) -> T:
        with self._pool.read_transaction() as connection:
            return job(connection)

    async def write(self, job: Callable[[Connection], T]) -> T:
        """Run a job in the next write transaction. Raises `StoreError`."""
        # Waits without a thread. A queued job is executed even if its caller is cancelled.
        written = self.writer.submit_batched(run_each, job)
        with anyio.CancelScope(shield=True):
            await asyncio.wait((written,))
        return written.result()

    # Reading.

    async def list_runs(
        self,
        wanted: RunFilter,
        *,
        limit: int,
        offset: int = 0,
        cursor: str | None = None,
        order: RunOrder = "newest",
    ) -> RunPage:
        def job(connection: Connection) -> RunPage:
            if wanted.search is not None:
                find_runs(connection, wanted.search)
            total: int = connection.execute(*queries.count_query(wanted)).fetchone()[0]
            start = 0 if cursor is not None else offset
            query = queries.list_query(wanted, limit=limit + 1, offset=start, cursor=cursor, order=order, matches=total)
            found = [decode_run_item(row, listed=True) for row in connection.execute(*query)]
            has_more = len(found) > limit
            items = queries.with_answers(connection, found[:limit])
            if wanted.search is not None:
                texts = snippets(connection, wanted.search, items)
                items = [msgspec.structs.replace(item, snippet=text) for item, text in zip(items, texts, strict=True)]
            next_cursor = queries.encode_cursor(items[-1], order) if has_more and items else None
            return RunPage(items=items, total=total, next=next_cursor)

        return await self.read(job)

    async def count_by_status(self, wanted: RunFilter) -> dict[str, int]:
        def job(connection: Connection) -> dict[str, int]:
            if wanted.search is not None:
                find_runs(connection, wanted.search)
            by_status = {state: msgspec.structs.replace(wanted, statuses=(state,)) for state in get_args(RunState)}
            counts = {state: queries.count_query(run_filter) for state, run_filter in by_status.items()}
            return {state: connection.execute(*query).fetchone()[0] for state, query in counts.items()}

        return await self.read(job)

    async def stats(self, wanted: RunFilter, days: StatsDays) -> StoredStats:
        def job(connection: Connection) -> StoredStats:
            if wanted.search is not None:
                find_runs(connection, wanted.search)
            return read_stats(connection, wanted, days)

        return await self.read(job)

    async def get_run(self, run_id: str) -> RunItem | None:
        return next(iter(await self._items(queries.run_query(run_id))), None)

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunItem]:
        return await self._items(queries.runs_query(run_ids))

    async def _items(self, query: Query) -> list[RunItem]:
        return await self.read(
            lambda connection: queries.with_answers(
                connection, [decode_run_item(found, listed=False) for found in connection.execute(*query)]
            )
        )

    async def timeline(self, run_id: str, *, limit: int, after: int = 0) -> list[TimelineItem]:
        text = f"SELECT {TIMELINE_COLUMNS} FROM worker_events WHERE worker_id = ? AND id > ? ORDER BY id LIMIT ?"
        return [decode_timeline_item(row) for row in await self._all(text, run_id, after, limit)]

    async def archive(self, run_id: str) -> bytes | None:
        found = await self._all("SELECT transcript FROM worker_transcripts WHERE worker_id = ?", run_id)
        return found[0][0] if found else None

    async def channels(self) -> list[Channel]:
        return [Channel(id=number, name=name) for number, name in await self._all(_CHANNELS)]

    async def view_states(self, run_ids: Sequence[str]) -> dict[str, ViewState]:
        query = Query(f"SELECT worker_id, state FROM worker_folds WHERE worker_id IN {placeholders(run_ids)}", run_ids)

        def job(connection: Connection) -> dict[str, ViewState]:
            # In one transaction: with a row and a state of different times, some events would be applied twice.
            started = connection.execute(*queries.runs_query(run_ids, started_only=True))
            rows = [decode_run_item(found, listed=False).row for found in started]
            states: dict[str, bytes] = dict(connection.execute(*query).fetchall())
            return {row.id: ViewState(row=row, state=states.get(row.id, b"")) for row in rows}

        return await self.read(job)

    async def _all(self, text: str, *parameters: Any) -> list[Any]:
        return await self.read(lambda connection: connection.execute(text, parameters).fetchall())

    async def _ids(self, text: str, *parameters: Any) -> list[str]:
        return [found[0] for found in await self._all(text, *parameters)]

    async def open_runs(self) -> list[str]:
        return await self._ids("SELECT id FROM worker_runs WHERE completed_at IS NULL")

    async def count_open_in_tree(self, root_run_id: str) -> int:
        text = "SELECT count(*) FROM worker_runs WHERE completed_at IS NULL AND root_run_id = ?"
        return (await self._all(text, root_run_id))[0][0]

    async def runs_needing_host(self) -> list[OpenRun]:
        text = "SELECT id, host FROM worker_runs WHERE completed_at IS NULL AND last_seq > 0 AND outside = 0"
        return [OpenRun(run_id, host) for run_id, host in await self._all(text)]

    async def start_waits(self, since: str, *, limit: int) -> list[float]:
        return [seconds for (seconds,) in await self._all(_START_WAITS, since, limit)]

    async def due_runs(self, now: str) -> list[str]:
        return await self._ids("SELECT id FROM worker_runs WHERE wake_at <= ?", now)

    async def overdue_parents(self) -> list[str]:
        return await self._ids(_OVERDUE_PARENTS)

    async def recent_durations(self, name: str, *, limit: int) -> list[int]:
        return [duration for (duration,) in await self._all(_RECENT_DURATIONS, name, limit)]

    async def known_runs(self) -> set[str]:
        return set(await self._ids("SELECT id FROM worker_runs"))

    async def deleted_run_ids(self) -> set[str]:
        return set(await self._ids("SELECT worker_id FROM tombstones"))

    async def partially_deleted_runs(self) -> list[str]:
        return await self._ids(_HALF_DELETED)

    async def expired(self, before: str, *, since: str = "", limit: int) -> list[tuple[str, str]]:
        return [(run_id, ended) for run_id, ended in await self._all(_EXPIRED, before, since, limit)]

    async def feed_position(self) -> int:
        found = await self._ids("SELECT value FROM settings WHERE name = ?", _MARK_SETTING)
        return int(found[0]) if found else 0

    # Writing.

    async def apply(self, changes: Sequence[ViewUpdate], *, feed_position: int | None = None) -> None:
        def job(connection: Connection) -> None:
            _apply_updates(connection, changes, self.fleet_events_kept)
            if feed_position is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (_MARK_SETTING, str(feed_position))
                )

        await self.write(job)

    async def pin(self, run_id: str, *, pinned: bool) -> bool:
        return await self._mark(run_id, "pin" if pinned else "unpin")

    async def dismiss(self, run_id: str) -> bool:
        return await self._mark(run_id, "dismiss")

    async def _mark(self, run_id: str, mark: Mark) -> bool:
        def job(connection: Connection) -> bool:
            if connection.execute("SELECT num FROM worker_runs WHERE id = ?", (run_id,)).fetchone() is None:
                return False
            connection.execute(MARK_STATEMENTS[mark], (run_id,))
            self.intake.add(mark_line(mark, run_id))
            return True

        return await self.write(job)

    async def add_tombstone(self, run_id: str) -> None:
        def job(connection: Connection) -> None:
            connection.execute("INSERT INTO tombstones (worker_id) VALUES (?) ON CONFLICT DO NOTHING", (run_id,))
            # If the tombstone is lost with the database, the intake must not restore the run.
            self.intake.add_deleted(run_id)

        await self.write(job)

    async def delete(self, run_id: str) -> None:
        # Cascades and triggers delete timeline, archive and search index of the run.
        tables = {"worker_runs": "id", "fleet_events": "run_id", "fleet_positions": "run_id"}
        tables |= {"pins": "worker_id", "dismissals": "worker_id"}
        deletes = [f"DELETE FROM {table} WHERE {column} = ?" for table, column in tables.items()]
        await self._execute(*(Query(text, (run_id,)) for text in (*deletes, *DELETE_HOOKS_OF_RUN)))

    async def drop_archive(self, run_id: str) -> None:
        await self._execute(
            Query("DELETE FROM worker_transcripts WHERE worker_id = ?", (run_id,)),
            Query("UPDATE worker_runs SET has_transcript = 0 WHERE id = ?", (run_id,)),
        )

    async def truncate_views(self, run_id: str, last_seq: int) -> None:
        past = (run_id, last_seq)
        await self._execute(
            Query(_KEEP_POSITIONS.format(condition="id = ? AND last_seq > ?"), past),
            Query("UPDATE fleet_positions SET seq = ? WHERE run_id = ? AND seq > ?", (last_seq, run_id, last_seq)),
            Query("DELETE FROM worker_runs WHERE id = ? AND last_seq > ?", past),
        )

    async def discard_views(self, run_id: str) -> None:
        await self._execute(
            Query(_KEEP_POSITIONS.format(condition="id = ?"), (run_id,)),
            Query("DELETE FROM worker_runs WHERE id = ?", (run_id,)),
        )

    async def clear_views(self) -> None:
        await self._execute(
            Query(_KEEP_POSITIONS.format(condition="last_seq > 0")),
            Query("DELETE FROM worker_runs"),
            Query("DELETE FROM settings WHERE name = ?", (_MARK_SETTING,)),
        )

    async def _execute(self, *statements: Query) -> None:
        def job(connection: Connection) -> None:
            for statement in statements:
                connection.execute(*statement)

        await self.write(job)

    def failure(self) -> ShopfloorError | None:
        return self._health.failure()

    async def check(self) -> None:
        def job(connection: Connection) -> None:
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if found != "ok":
                raise damaged_error(found)

        await self.read(job)

    async def compact(self) -> None:
        def work() -> None:
            # Not in a transaction, which VACUUM does not allow: SQLite itself locks the database meanwhile.
            with self._pool.connection() as connection:
                for statement in (
                    "INSERT INTO search_pieces(search_pieces) VALUES ('optimize')",
                    "INSERT INTO search_trigrams(search_trigrams) VALUES ('optimize')",
                    "VACUUM",
                    "PRAGMA wal_checkpoint(TRUNCATE)",
                ):
                    connection.execute(statement)

        try:
            await anyio.to_thread.run_sync(work, limiter=self._readers)
        except sqlite3.DatabaseError as error:
            raise map_sqlite_error(error) from error

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await anyio.to_thread.run_sync(self.writer.close)
            self.intake.close()
            self._pool.close()
