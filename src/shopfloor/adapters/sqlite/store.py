"""The store port over SQLite: many readers, one writing thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
from sqlalchemy import Connection, Engine, delete, func, select, text, update
from sqlalchemy.dialects.sqlite import insert as upsert

from shopfloor.adapters.sqlite import queries
from shopfloor.adapters.sqlite.changes import apply
from shopfloor.adapters.sqlite.database import UNREADABLE, Writer, damaged, driver, open_database, readable
from shopfloor.adapters.sqlite.health import Health
from shopfloor.adapters.sqlite.intake import Intake, pin_line
from shopfloor.adapters.sqlite.rows import item_of, timeline_item_of
from shopfloor.adapters.sqlite.schema import (
    channels,
    dispatch_keys,
    pins,
    settings,
    tombstones,
    worker_events,
    worker_folds,
    worker_runs,
    worker_transcripts,
)
from shopfloor.adapters.sqlite.search import find_runs, snippets
from shopfloor.errors import ShopfloorError
from shopfloor.limits import DATABASE_READERS
from shopfloor.ports import ANSWER, Change, Channel, Folded, OpenRun, RunFilter, RunItem, RunPage, TimelineItem

T = TypeVar("T")
_PLACE = "announcements"


class SqliteStore:
    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._health = Health(path)
        self.intake = Intake(path.with_name("intake.jsonl"))
        self.writer = Writer(engine, health=self._health, intake=self.intake)
        self._readers = anyio.CapacityLimiter(DATABASE_READERS)
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        return cls(await anyio.to_thread.run_sync(open_database, path), path)

    async def read(self, job: Callable[[Connection], T]) -> T:
        def work() -> T:
            self._health.check()
            try:
                with self._engine.connect() as connection:
                    return job(connection)
            except UNREADABLE as error:
                said = readable(error)
                self._health.note(said)
                raise said from error

        return await anyio.to_thread.run_sync(work, limiter=self._readers)

    async def _write(self, job: Callable[[Connection], T]) -> T:
        # Nobody holds a thread while it waits. What is in line is written, also where whoever asked is cancelled.
        written = asyncio.wrap_future(self.writer.submit(job))
        with anyio.CancelScope(shield=True):
            await asyncio.wait((written,))
        return written.result()

    # Reading.

    async def list_runs(self, wanted: RunFilter, *, limit: int, offset: int = 0, cursor: str | None = None) -> RunPage:
        query = queries.listing(wanted).limit(limit + 1)
        query = queries.after_cursor(query, wanted, cursor) if cursor is not None else query.offset(offset)

        def job(connection: Connection) -> RunPage:
            if wanted.search is not None:
                # In the transaction of what follows. Its rollback, as the connection goes back, takes the hits away.
                connection.begin()
                find_runs(driver(connection), wanted.search)
            found = [item_of(row, listed=True) for row in connection.execute(query)]
            total: int = connection.execute(queries.total(wanted)).scalar_one()
            more = len(found) > limit
            items = _with_answers(connection, found[:limit])
            if wanted.search is not None:
                shown = snippets(driver(connection), wanted.search, items)
                items = [msgspec.structs.replace(item, snippet=one) for item, one in zip(items, shown, strict=True)]
            return RunPage(items=items, total=total, next=queries.cursor_of(items[-1]) if more and items else None)

        return await self.read(job)

    async def get_run(self, run_id: str) -> RunItem | None:
        return next(iter(await self._items(queries.one(run_id))), None)

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunItem]:
        return await self._items(queries.those(run_ids))

    async def _items(self, query: Any) -> list[RunItem]:
        return await self.read(
            lambda connection: _with_answers(
                connection, [item_of(found, listed=False) for found in connection.execute(query)]
            )
        )

    async def timeline(self, run_id: str, *, limit: int, after: int = 0) -> list[TimelineItem]:
        events = worker_events.c
        query = select(worker_events).where(events.worker_id == run_id, events.id > after)
        query = query.order_by(events.id).limit(limit)
        return await self.read(
            lambda connection: [timeline_item_of(row) for row in connection.execute(query).mappings()]
        )

    async def archive(self, run_id: str) -> bytes | None:
        query = select(worker_transcripts.c.transcript).where(worker_transcripts.c.worker_id == run_id)
        return await self.read(lambda connection: connection.execute(query).scalar())

    async def channels(self) -> list[Channel]:
        found = await self.read(lambda connection: connection.execute(select(channels).order_by(channels.c.id)).all())
        return [Channel(id=row.id, name=row.name) for row in found]

    async def folded(self, run_ids: Sequence[str]) -> dict[str, Folded]:
        query = select(worker_folds).where(worker_folds.c.worker_id.in_(run_ids))

        def job(connection: Connection) -> dict[str, Folded]:
            # In one transaction: a row and a state of different times would fold some events twice.
            begun = connection.execute(queries.those(run_ids, begun=True))
            rows = [item_of(found, listed=False).row for found in begun]
            states: dict[str, bytes] = {found.worker_id: found.state for found in connection.execute(query)}
            return {row.id: Folded(row=row, state=states.get(row.id, b"")) for row in rows}

        return await self.read(job)

    async def _ids(self, query: Any) -> list[str]:
        return await self.read(lambda connection: list(connection.execute(query).scalars()))

    async def open_runs(self) -> list[str]:
        return await self._ids(select(worker_runs.c.id).where(worker_runs.c.completed_at.is_(None)))

    async def open_in_tree(self, root_run_id: str) -> int:
        runs = worker_runs.c
        query = select(func.count()).where(runs.completed_at.is_(None), runs.root_run_id == root_run_id)
        return await self.read(lambda connection: connection.execute(query).scalar_one())

    async def unattended(self) -> list[OpenRun]:
        runs = worker_runs.c
        query = select(runs.id, runs.host).where(
            runs.completed_at.is_(None), runs.last_seq > 0, runs.outside.is_(False)
        )
        found = await self.read(lambda connection: connection.execute(query).all())
        return [OpenRun(row.id, row.host) for row in found]

    async def due(self, now: str) -> list[str]:
        return await self._ids(select(worker_runs.c.id).where(worker_runs.c.wake_at <= now))

    async def known_runs(self) -> set[str]:
        return set(await self._ids(select(worker_runs.c.id)))

    async def buried(self) -> set[str]:
        return set(await self._ids(select(tombstones.c.worker_id)))

    async def half_deleted(self) -> list[str]:
        buried = select(tombstones.c.worker_id)
        rows = select(worker_runs.c.id).where(worker_runs.c.id.in_(buried))
        return await self._ids(rows.union(select(dispatch_keys.c.run_id).where(dispatch_keys.c.run_id.in_(buried))))

    async def expired(self, before: str, *, since: str = "", limit: int) -> list[tuple[str, str]]:
        runs = worker_runs.c
        old = select(runs.id, runs.completed_at).where(runs.completed_at < before, runs.completed_at >= since)
        query = old.where(runs.id.not_in(select(pins.c.worker_id))).order_by(runs.completed_at, runs.num).limit(limit)
        rows = await self.read(lambda connection: connection.execute(query).all())
        return [(str(run_id), str(ended)) for run_id, ended in rows]

    async def place(self) -> int:
        query = select(settings.c.value).where(settings.c.name == _PLACE)
        return int(await self.read(lambda connection: connection.execute(query).scalar()) or 0)

    # Writing.

    async def apply(self, changes: Sequence[Change], *, place: int | None = None) -> None:
        def job(connection: Connection) -> None:
            apply(connection, changes)
            if place is not None:
                added = upsert(settings).values(name=_PLACE, value=str(place))
                connection.execute(added.on_conflict_do_update(set_={"value": str(place)}))

        await self._write(job)

    async def pin(self, run_id: str, *, pinned: bool) -> bool:
        def job(connection: Connection) -> bool:
            if connection.execute(select(worker_runs.c.num).where(worker_runs.c.id == run_id)).first() is None:
                return False
            if pinned:
                connection.execute(upsert(pins).values(worker_id=run_id).on_conflict_do_nothing())
            else:
                connection.execute(delete(pins).where(pins.c.worker_id == run_id))
            self.intake.add(pin_line(run_id, pinned=pinned))
            return True

        return await self._write(job)

    async def bury(self, run_id: str) -> None:
        def job(connection: Connection) -> None:
            connection.execute(upsert(tombstones).values(worker_id=run_id).on_conflict_do_nothing())
            # The tombstone may be lost with the database. Then the intake must not bring the run back.
            self.intake.add_deleted(run_id)

        await self._write(job)

    async def delete(self, run_id: str) -> None:
        def job(connection: Connection) -> None:
            # Timeline, archive and search go with it, by cascade and trigger.
            connection.execute(delete(worker_runs).where(worker_runs.c.id == run_id))
            connection.execute(delete(pins).where(pins.c.worker_id == run_id))

        await self._write(job)

    async def drop_archive(self, run_id: str) -> None:
        def job(connection: Connection) -> None:
            connection.execute(delete(worker_transcripts).where(worker_transcripts.c.worker_id == run_id))
            connection.execute(update(worker_runs).where(worker_runs.c.id == run_id).values(has_transcript=False))

        await self._write(job)

    async def take_back(self, run_id: str, last_seq: int) -> None:
        runs = worker_runs.c
        await self._execute(delete(worker_runs).where(runs.id == run_id, runs.last_seq > last_seq))

    async def clear_views(self) -> None:
        def job(connection: Connection) -> None:
            connection.execute(delete(worker_runs))
            connection.execute(delete(settings).where(settings.c.name == _PLACE))

        await self._write(job)

    async def _execute(self, statement: Any) -> None:
        await self._write(lambda connection: connection.execute(statement).close())

    def failure(self) -> ShopfloorError | None:
        return self._health.failure()

    async def check(self) -> None:
        def job(connection: Connection) -> None:
            found = str(connection.execute(text("PRAGMA quick_check(1)")).scalar())
            if found != "ok":
                raise damaged(found)

        await self.read(job)

    async def compact(self) -> None:
        def work() -> None:
            # Not in a transaction, so past SQLAlchemy, which begins one: SQLite itself keeps others out meanwhile.
            pooled = self._engine.raw_connection()
            try:
                for statement in (
                    "INSERT INTO search_pieces(search_pieces) VALUES ('optimize')",
                    "INSERT INTO search_trigrams(search_trigrams) VALUES ('optimize')",
                    "VACUUM",
                    "PRAGMA wal_checkpoint(TRUNCATE)",
                ):
                    pooled.cursor().execute(statement)
            finally:
                pooled.close()

        try:
            await anyio.to_thread.run_sync(work, limiter=self._readers)
        except sqlite3.DatabaseError as error:
            raise readable(error) from error

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await anyio.to_thread.run_sync(self.writer.close)
            self.intake.close()
            self._engine.dispose()


def _with_answers(connection: Connection, items: list[RunItem]) -> list[RunItem]:
    """The same runs, each with the calls of it that somebody has answered and whose answer no log has yet."""
    waiting = [item.row.id for item in items if item.row.awaits]
    if not waiting:
        return items
    answered: dict[str, list[str]] = {}
    for run_id, order_id in connection.execute(queries.answers(waiting)):
        answered.setdefault(run_id, []).append(order_id.removeprefix(ANSWER))
    return [msgspec.structs.replace(item, answered=tuple(answered.get(item.row.id, ()))) for item in items]
