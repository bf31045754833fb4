"""The queue port over SQLite, in the store's file and by the store's writing thread."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from shopfloor.adapters.sqlite.database import do_each
from shopfloor.adapters.sqlite.intake import (
    EmptyLogLookup,
    IntakeLine,
    IntakeMark,
    LogLookup,
    dispatch_line,
    message_line,
    pin_line,
)
from shopfloor.adapters.sqlite.queries import PIN, UNPIN, placeholders
from shopfloor.adapters.sqlite.rows import RUN_COLUMNS, run_column_values
from shopfloor.adapters.sqlite.search import UPSERT_TASK, task_text
from shopfloor.adapters.sqlite.store import SqliteStore
from shopfloor.decoding import json_decoder
from shopfloor.errors import ConflictError
from shopfloor.log import RunStarted
from shopfloor.ports import ControlMessage, QueuedRun
from shopfloor.views import queued_row

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_queued = json_decoder(QueuedRun).decode
_decode_mark = json_decoder(IntakeMark).decode
_decode_order = json_decoder(ControlMessage).decode

# As text for the driver, which keeps them prepared: thousands of runs a second come this way. Many rows to a statement:
# after each the driver waits until the other threads let it go on.
_ROWS: Final = 20
"""How many runs a statement takes: few enough for what any SQLite allows of parameters."""
_THERE: Final = "SELECT id FROM worker_runs WHERE id IN "
_SHOW: Final = f"INSERT INTO worker_runs ({', '.join(RUN_COLUMNS)}) VALUES "
_CHANNEL: Final = (
    "INSERT INTO channels (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
    " WHERE excluded.name IS NOT NULL AND name IS NOT excluded.name"
)
_KEEP: Final = "INSERT INTO dispatches (run_id, host, body) VALUES "
_KEY: Final = "SELECT run_id, asked FROM dispatch_keys WHERE key = ?"
_KEEP_KEY: Final = "INSERT INTO dispatch_keys (key, run_id, asked) VALUES (?, ?, ?)"
_FREE: Final = "SELECT num, body FROM dispatches WHERE host IS NULL ORDER BY num LIMIT ?"
# All that nobody has up to the last that was found: those that were found.
_CLAIM: Final = "UPDATE dispatches SET host = ? WHERE host IS NULL AND num <= ?"
_CLAIM_ONE: Final = "UPDATE dispatches SET host = ? WHERE host IS ? AND run_id = ?"
_ONE: Final = "SELECT body FROM dispatches WHERE run_id = ?"
_STARTED: Final = "DELETE FROM dispatches WHERE run_id IN "
# Ordered by us: asked to, SQLite would rather read everything that is queued.
_CLAIMED: Final = "SELECT num, run_id, host FROM dispatches WHERE host IS NOT NULL"
_RELEASE: Final = "UPDATE dispatches SET host = NULL WHERE run_id = ? AND host = ?"
_PUT: Final = "INSERT INTO orders (run_id, id, body) VALUES (?, ?, ?) ON CONFLICT (run_id, id) DO NOTHING"
_ORDERS: Final = "SELECT num, body FROM orders WHERE num > ? ORDER BY num"
_DONE: Final = "DELETE FROM orders WHERE num = ?"
_QUEUED: Final = "SELECT body FROM dispatches ORDER BY num"
_WAITING: Final = "SELECT host, body FROM dispatches ORDER BY num"
_INTAKE: Final = "SELECT value FROM settings WHERE name = 'intake'"
_KEEP_INTAKE: Final = "INSERT OR REPLACE INTO settings (name, value) VALUES ('intake', ?)"
_COUNT: Final = "SELECT (SELECT count(*) FROM dispatches) + (SELECT count(*) FROM orders) + (SELECT count(*) FROM pins)"
_ANY_RUN: Final = "SELECT 1 FROM worker_runs LIMIT 1"
_PINNED: Final = "SELECT worker_id FROM pins"
_BURIED: Final = "SELECT worker_id FROM tombstones"
_KEEP_LOST: Final = "INSERT INTO dispatches (run_id, host, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_KEEP_LOST_KEY: Final = f"{_KEEP_KEY} ON CONFLICT DO NOTHING"
_FORGET: Final = tuple(f"DELETE FROM {table} WHERE run_id = ?" for table in ("dispatches", "orders", "dispatch_keys"))


class SqliteQueue:
    def __init__(self, store: SqliteStore, recorded: LogLookup | None = None) -> None:
        self._recorded = recorded or EmptyLogLookup()
        # One file has one writing thread, and its readers are counted.
        self._writer = store.writer
        self._store_read = store.read
        self._intake = store.intake

    async def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        # Nobody holds a thread while it waits: as many as like can wait at once, and share a transaction.
        return await self._writer.submit_batched(do_each, job)

    async def _write_all(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            await self._write(lambda database: database.executemany(statement, rows).close())

    async def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        return await self._store_read(job)

    async def dispatch(self, order: QueuedRun, *, host: str | None = None) -> str:
        answer = await self._writer.submit_batched(self._take_in, _kept(order, host))
        if isinstance(answer, ConflictError):
            raise answer
        return answer

    async def claim(self, host: str, limit: int) -> list[QueuedRun]:
        def job(database: sqlite3.Connection) -> list[QueuedRun]:
            found = database.execute(_FREE, (limit,)).fetchall()
            if found:
                database.execute(_CLAIM, (host, found[-1][0]))
            return [_decode_queued(body) for _, body in found]

        return await self._write(job)

    async def claim_one(self, run_id: str, host: str, *, previous_host: str | None = None) -> QueuedRun | None:
        def job(database: sqlite3.Connection) -> QueuedRun | None:
            claimed = database.execute(_CLAIM_ONE, (host, previous_host, run_id)).rowcount
            return _decode_queued(database.execute(_ONE, (run_id,)).fetchone()[0]) if claimed else None

        return await self._write(job)

    async def find(self, run_id: str) -> QueuedRun | None:
        found = await self._read(lambda database: database.execute(_ONE, (run_id,)).fetchone())
        return None if found is None else _decode_queued(found[0])

    async def started(self, run_ids: Sequence[str]) -> None:
        def job(database: sqlite3.Connection) -> None:
            for some in _portions(run_ids):
                database.execute(_STARTED + placeholders(some), some)

        if run_ids:
            await self._write(job)

    async def claimed(self) -> list[tuple[str, str]]:
        found = await self._read(lambda database: database.execute(_CLAIMED).fetchall())
        return [(run_id, host) for _, run_id, host in sorted(found)]

    async def release(self, claims: Collection[tuple[str, str]]) -> None:
        await self._write_all(_RELEASE, list(claims))

    async def put(self, order: ControlMessage) -> bool:
        body = _encode(order)

        def job(database: sqlite3.Connection) -> bool:
            is_new = bool(database.execute(_PUT, (order.run_id, order.id, body)).rowcount)
            if is_new:
                self._intake.add(message_line(body))
            return is_new

        return await self._write(job)

    async def orders(self, *, after: int = 0) -> list[tuple[int, ControlMessage]]:
        return await self._read(
            lambda database: [(number, _decode_order(body)) for number, body in database.execute(_ORDERS, (after,))]
        )

    async def done(self, numbers: Sequence[int]) -> None:
        await self._write_all(_DONE, [(number,) for number in numbers])

    async def restore_queued_rows(self) -> None:
        def job(database: sqlite3.Connection) -> None:
            orders = (_decode_queued(body) for (body,) in database.execute(_QUEUED).fetchall())
            for some in _portions([_kept(order, None) for order in orders]):
                _show(database, some)

        await self._write(job)

    async def forget(self, run_ids: Collection[str]) -> None:
        rows = [(run_id,) for run_id in run_ids]

        def job(database: sqlite3.Connection) -> None:
            for statement in _FORGET:
                database.executemany(statement, rows)

        if rows:
            await self._write(job)

    async def recover(self, *, is_idle: bool = False) -> int:
        def has_work(database: sqlite3.Connection) -> bool:
            mark = self._known_intake(database)
            if mark is None or self._intake.needs_rewrite or self._intake.needs_compaction(mark.size_bytes):
                return True
            is_changed = self._intake.size() != mark.size_bytes or database.execute(_COUNT).fetchone() != (mark.lines,)
            return is_idle and is_changed

        def job(database: sqlite3.Connection) -> int:
            is_known = self._known_intake(database) is not None
            recovered = 0 if is_known else _recover(database, self._intake.lines(), self._recorded)
            mark = self._intake.replace(list(_live_lines(database)))
            database.execute(_KEEP_INTAKE, (_encode(mark).decode(),))
            return recovered

        # Asked first: most of the time nobody has to wait for the write lock.
        return await self._write(job) if await self._read(has_work) else 0

    def _known_intake(self, database: sqlite3.Connection) -> IntakeMark | None:
        """The mark of the intake, if it is the one that this database has taken in."""
        found = database.execute(_INTAKE).fetchone()
        mark = None if found is None else _decode_mark(found[0])
        return mark if mark is not None and mark.name == self._intake.name() else None

    def _take_in(self, database: sqlite3.Connection, orders: list[_Kept]) -> list[str | ConflictError]:
        answers = _take_in(database, orders)
        for order, answer in zip(orders, answers, strict=True):
            # Not where an earlier dispatch had the same key.
            if answer == order.run_id:
                self._intake.add(dispatch_line(order.body, order.host))
        return answers


def _recover(database: sqlite3.Connection, lines: Sequence[IntakeLine], recorded: LogLookup) -> int:
    """Keep what a lost database had and no log has; give how many dispatches and messages that is."""
    if database.execute(_ANY_RUN).fetchone() is None:
        # A new database: keys that were used must not make a second run.
        for run in recorded.keyed():
            database.execute(_KEEP_LOST_KEY, (run.started.idempotency_key, run.run_id, _digest(run.started)))
    deleted_run_ids = {run_id for (run_id,) in database.execute(_BURIED)}
    recovered = 0
    for line in lines:
        if (pin := line.pin or line.unpin) is not None and pin not in deleted_run_ids:
            database.execute(PIN if line.pin else UNPIN, (pin,))
        if (entry := line.dispatch or line.message) is None or entry.run_id in deleted_run_ids or recorded.has(entry):
            continue
        if isinstance(entry, ControlMessage):
            recovered += database.execute(_PUT, (entry.run_id, entry.id, _encode(entry))).rowcount
            continue
        kept = _kept(entry, line.host)
        is_new = database.execute(_KEEP_LOST, (kept.run_id, kept.host, kept.body)).rowcount
        if is_new:
            _show(database, [kept])
            if kept.key is not None:
                database.execute(_KEEP_LOST_KEY, (kept.key, kept.run_id, kept.asked))
        recovered += is_new
    return recovered


def _live_lines(database: sqlite3.Connection) -> Iterator[bytes]:
    """The lines of all that the database has and no log."""
    for host, body in database.execute(_WAITING):
        yield dispatch_line(body, host)
    for _, body in database.execute(_ORDERS, (0,)):
        yield message_line(body)
    for (run_id,) in database.execute(_PINNED):
        yield pin_line(run_id, pinned=True)


class _Kept(NamedTuple):
    """An order, ready to be written."""

    run_id: str
    host: str | None
    body: bytes
    row: tuple[Any, ...]
    task: str
    """As search has it."""
    channel: tuple[str | None, str | None]
    key: str | None
    asked: bytes


def _kept(order: QueuedRun, host: str | None) -> _Kept:
    row, key = queued_row(order.run_id, order.started), order.started.idempotency_key
    return _Kept(
        run_id=order.run_id,
        host=host,
        body=_encode(order),
        row=run_column_values(row, 0, 0, None),
        task=task_text(row.task),
        channel=(row.channel_id, row.channel_name),
        key=key,
        asked=b"" if key is None else _digest(order.started),
    )


def _take_in(database: sqlite3.Connection, orders: list[_Kept]) -> list[str | ConflictError]:
    """Keeps these orders and lists their runs as queued; gives each its run's id.

    A conflict is given, not raised: it writes nothing, and is no reason to begin others' writes anew.
    """
    answers: list[str | ConflictError] = []
    # Those with a key one by one: the next may have the same.
    for keyed, some in groupby(orders, lambda order: order.key is not None):
        for portion in ([one] for one in some) if keyed else _portions(list(some)):
            known = _of_key(database, portion[0]) if keyed else None
            answers += [known] if known is not None else _keep(database, portion)
    return answers


def _of_key(database: sqlite3.Connection, order: _Kept) -> str | ConflictError | None:
    """The run that was asked for under this key before."""
    known = database.execute(_KEY, (order.key,)).fetchone()
    return None if known is None else _the_same(str(order.key), order.asked, known)


def _keep(database: sqlite3.Connection, orders: list[_Kept]) -> list[str | ConflictError]:
    shown = _show(database, orders)
    if shown:
        rows = [(order.run_id, order.host, order.body) for order in shown]
        database.execute(_KEEP + _groups(rows), _flat(rows))
        keys = [(order.key, order.run_id, order.asked) for order in shown if order.key is not None]
        database.executemany(_KEEP_KEY, keys)
    new = {id(order) for order in shown}
    return [order.run_id if id(order) in new else _exists(order.run_id) for order in orders]


def _show(database: sqlite3.Connection, orders: list[_Kept]) -> list[_Kept]:
    """Lists these runs as queued; gives those that had no row yet."""
    ids = [order.run_id for order in orders]
    there = {run_id for (run_id,) in database.execute(_THERE + placeholders(ids), ids)}
    new: dict[str, _Kept] = {}
    for order in orders:
        if order.run_id not in there:
            new.setdefault(order.run_id, order)
    shown = list(new.values())
    if shown:
        rows = [order.row for order in shown]
        database.execute(_SHOW + _groups(rows), _flat(rows))
        database.executemany(UPSERT_TASK, [(order.run_id, order.task) for order in shown])
        for channel in {order.channel: None for order in shown}:
            database.execute(_CHANNEL, channel)
    return shown


def _exists(run_id: str) -> ConflictError:
    return ConflictError(f"run {run_id} already exists", hint="use a new id for each run")


def _portions(orders: Sequence[T]) -> list[list[T]]:
    return [list(orders[first : first + _ROWS]) for first in range(0, len(orders), _ROWS)]


def _groups(rows: list[tuple[Any, ...]]) -> str:
    return ", ".join([placeholders(rows[0])] * len(rows))


def _flat(rows: list[tuple[Any, ...]]) -> list[Any]:
    return list(chain.from_iterable(rows))


def _digest(started: RunStarted) -> bytes:
    """What is asked for, told apart from anything else."""
    return hashlib.sha256(msgspec.json.encode((started.name, started.input or {}), order="deterministic")).digest()


def _the_same(key: str, asked: bytes, known: tuple[str, bytes]) -> str | ConflictError:
    run_id, first = known
    if asked == first:
        return run_id
    return ConflictError(
        f"the idempotency key {key!r} was used with another worker or input, for run {run_id}",
        hint="use a new key for each different request",
    )
