"""The store in SQLite: many readers, and one writing thread that applies view updates in batches."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

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
from shopfloor.adapters.sqlite.health import Health
from shopfloor.adapters.sqlite.hooks import DELETE_HOOKS_OF_RUN
from shopfloor.adapters.sqlite.intake import Intake, Mark, mark_line
from shopfloor.adapters.sqlite.queries import MARK_STATEMENTS, Query, placeholders, read_later_runs
from shopfloor.adapters.sqlite.rows import (
    TIMELINE_COLUMNS,
    decode_run_item,
    decode_timeline_item,
)
from shopfloor.adapters.sqlite.search import find_runs, snippets
from shopfloor.adapters.sqlite.stats import read_stats
from shopfloor.adapters.sqlite.view_updates import apply_updates
from shopfloor.adapters.sqlite.waiting import read_open_roots, read_waiting
from shopfloor.errors import ShopfloorError
from shopfloor.ports import (
    Channel,
    LaterRun,
    OpenRun,
    RunFilter,
    RunItem,
    RunOrder,
    RunPage,
    StatsDays,
    TimelineItem,
    ViewState,
    ViewUpdate,
    WaitingRuns,
)
from shopfloor.views import StoredStats

T = TypeVar("T")
_MARK_SETTING = "announcements"
_CHANNELS = "SELECT id, name FROM channels ORDER BY id"
_KEEP_POSITIONS = (
    "INSERT INTO fleet_positions (run_id, seq) SELECT id, last_seq FROM worker_runs WHERE {condition}"
    " ON CONFLICT (run_id) DO UPDATE SET seq = max(seq, excluded.seq)"
)
"""Remembers how far the fleet events of runs are stored, before their rows are deleted."""


def find_later_runs(path: Path, run_id: str) -> list[LaterRun]:
    """Return what `SqliteStore.later_runs` does, without opening the store; nothing if the file cannot be read."""
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return read_later_runs(connection, run_id)
    except (sqlite3.Error, ValueError):
        return []


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
            by_range = queries.find_range(connection, wanted)
            total: int = connection.execute(*queries.count_query(wanted, by_range)).fetchone()[0]
            query = queries.list_query(
                wanted,
                limit=limit + 1,
                offset=0 if cursor is not None else offset,
                cursor=cursor,
                order=order,
                matches=total,
                by_range=by_range,
            )
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
            return queries.count_by_status(connection, wanted)

        return await self.read(job)

    async def waiting(self, *, failed_after: str, limit: int) -> WaitingRuns:
        return await self.read(lambda connection: read_waiting(connection, failed_after, limit))

    async def open_roots(self, wanted: RunFilter) -> list[OpenRun]:
        def job(connection: Connection) -> list[OpenRun]:
            if wanted.search is not None:
                find_runs(connection, wanted.search)
            return read_open_roots(connection, wanted)

        return await self.read(job)

    async def later_runs(self, run_id: str) -> list[LaterRun]:
        return await self.read(lambda connection: read_later_runs(connection, run_id))

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
        return [seconds for (seconds,) in await self._all(queries.START_WAITS, since, limit)]

    async def due_runs(self, now: str) -> list[str]:
        return await self._ids("SELECT id FROM worker_runs WHERE wake_at <= ?", now)

    async def overdue_parents(self) -> list[str]:
        return await self._ids(queries.OVERDUE_PARENTS)

    async def recent_durations(self, name: str, *, limit: int) -> list[int]:
        return [duration for (duration,) in await self._all(queries.RECENT_DURATIONS, name, limit)]

    async def known_runs(self) -> set[str]:
        return set(await self._ids("SELECT id FROM worker_runs"))

    async def deleted_run_ids(self) -> set[str]:
        return set(await self._ids("SELECT worker_id FROM tombstones"))

    async def partially_deleted_runs(self) -> list[str]:
        return await self._ids(queries.HALF_DELETED)

    async def expired(self, before: str, *, since: str = "", limit: int) -> list[tuple[str, str]]:
        return [(run_id, ended) for run_id, ended in await self._all(queries.EXPIRED, before, since, limit)]

    async def feed_position(self) -> int:
        found = await self._ids("SELECT value FROM settings WHERE name = ?", _MARK_SETTING)
        return int(found[0]) if found else 0

    # Writing.

    async def apply(self, changes: Sequence[ViewUpdate], *, feed_position: int | None = None) -> None:
        def job(connection: Connection) -> None:
            apply_updates(connection, changes, self.fleet_events_kept)
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
