"""The queue in SQLite, in the store's file and with the store's writing thread."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from shopfloor.adapters.sqlite.database import run_each
from shopfloor.adapters.sqlite.hooks import COUNT_KEPT_HOOKS, kept_hook_lines, restore_hook
from shopfloor.adapters.sqlite.intake import (
    EmptyLogLookup,
    IntakeLine,
    IntakeMark,
    LogLookup,
    dispatch_line,
    mark_line,
    message_line,
)
from shopfloor.adapters.sqlite.provider_health import read_records
from shopfloor.adapters.sqlite.queries import MARK_STATEMENTS, placeholders
from shopfloor.adapters.sqlite.rows import RUN_COLUMNS, run_column_values
from shopfloor.adapters.sqlite.search import UPSERT_TASK, task_text
from shopfloor.adapters.sqlite.store import SqliteStore
from shopfloor.decoding import json_decoder
from shopfloor.errors import ConflictError
from shopfloor.limits import QUEUE_GROUPS
from shopfloor.log import Requirements, RunStarted
from shopfloor.ports import (
    NO_REQUIREMENTS,
    ControlMessage,
    HostOffer,
    QueuedRun,
    QueueGroup,
    disabled_providers,
    queue_groups_exceeded,
    session_continued,
)
from shopfloor.views import queued_row

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_queued = json_decoder(QueuedRun).decode
_decode_mark = json_decoder(IntakeMark).decode
_decode_requirements = json_decoder(Requirements).decode
_decode_message = json_decoder(ControlMessage).decode

# The tables keep their old names, since files of earlier versions have them: `orders` has the control messages, and
# `dispatch_keys.asked` the hash of the request that used the idempotency key.
# Constant texts, since the driver caches prepared statements: thousands of runs a second are queued. Many rows per
# statement, since after each statement the driver has to reacquire the GIL.
_ROWS_PER_STATEMENT: Final = 20
"""The number of runs per statement: few enough for the parameter limit of any SQLite."""
_EXISTING_RUNS: Final = "SELECT id FROM worker_runs WHERE id IN "
_INSERT_RUNS: Final = f"INSERT INTO worker_runs ({', '.join(RUN_COLUMNS)}) VALUES "
_CHANNEL: Final = (
    "INSERT INTO channels (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
    " WHERE excluded.name IS NOT NULL AND name IS NOT excluded.name"
)
_INSERT_DISPATCHES: Final = "INSERT INTO dispatches (run_id, host, body, needs, rank) VALUES "
_SELECT_KEY: Final = "SELECT run_id, asked FROM dispatch_keys WHERE key = ?"
_SELECT_REPLY: Final = (
    "SELECT id FROM worker_runs WHERE based_on IS NOT NULL AND json_extract(based_on, '$.run_id') = ?"
    " AND json_extract(based_on, '$.kind') = 'reply' LIMIT 1"
)
_INSERT_KEY: Final = "INSERT INTO dispatch_keys (key, run_id, asked) VALUES (?, ?, ?)"
# Each step seeks the next group in the index, so that the runs of a group are not scanned.
_GROUPS: Final = (
    "WITH RECURSIVE found(needs) AS (SELECT min(needs) FROM dispatches WHERE host IS NULL UNION ALL"
    " SELECT (SELECT min(needs) FROM dispatches WHERE host IS NULL AND needs > found.needs) FROM found"
    " WHERE found.needs IS NOT NULL) SELECT needs FROM found WHERE needs IS NOT NULL"
)
_GROUP_COUNT: Final = f"SELECT count(*) FROM ({_GROUPS})"
_GROUP_EXISTS: Final = "SELECT 1 FROM dispatches WHERE host IS NULL AND needs = ? LIMIT 1"
_GROUP_HEAD: Final = "SELECT rank, num FROM dispatches WHERE host IS NULL AND needs = ? ORDER BY rank, num LIMIT ?"
_SELECT_NUMBERS: Final = "SELECT num, body FROM dispatches WHERE num IN "
_CLAIM: Final = "UPDATE dispatches SET host = ? WHERE num IN "
_GROUP_TOTAL: Final = "SELECT count(*), min(num) FROM dispatches WHERE host IS NULL AND needs = ?"
_CLAIM_ONE: Final = "UPDATE dispatches SET host = ? WHERE host IS ? AND run_id = ?"
_SELECT_ONE: Final = "SELECT body FROM dispatches WHERE run_id = ?"
_DELETE_STARTED: Final = "DELETE FROM dispatches WHERE run_id IN "
# Sorted in Python: with ORDER BY, SQLite would scan all queued runs.
_CLAIMED: Final = "SELECT num, run_id, host FROM dispatches WHERE host IS NOT NULL"
_RELEASE: Final = "UPDATE dispatches SET host = NULL WHERE run_id = ? AND host = ?"
_INSERT_MESSAGE: Final = "INSERT INTO orders (run_id, id, body) VALUES (?, ?, ?) ON CONFLICT (run_id, id) DO NOTHING"
_SELECT_MESSAGES: Final = "SELECT num, body FROM orders WHERE num > ? ORDER BY num"
_DELETE_MESSAGE: Final = "DELETE FROM orders WHERE num = ?"
_QUEUED: Final = "SELECT body FROM dispatches ORDER BY num"
_QUEUED_WITH_HOST: Final = "SELECT host, body FROM dispatches ORDER BY num"
_SELECT_MARK: Final = "SELECT value FROM settings WHERE name = 'intake'"
_UPSERT_MARK: Final = "INSERT OR REPLACE INTO settings (name, value) VALUES ('intake', ?)"
_COUNT: Final = (
    "SELECT (SELECT count(*) FROM dispatches) + (SELECT count(*) FROM orders)"
    f" + (SELECT count(*) FROM pins) + (SELECT count(*) FROM dismissals) + ({COUNT_KEPT_HOOKS})"
)
_ANY_RUN: Final = "SELECT 1 FROM worker_runs LIMIT 1"
_MARKED: Final = "SELECT 'pin', worker_id FROM pins UNION ALL SELECT 'dismiss', worker_id FROM dismissals"
_DELETED: Final = "SELECT worker_id FROM tombstones"
_RESTORE_DISPATCH: Final = f"{_INSERT_DISPATCHES}(?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_RESTORE_KEY: Final = f"{_INSERT_KEY} ON CONFLICT DO NOTHING"
_FORGET: Final = tuple(f"DELETE FROM {table} WHERE run_id = ?" for table in ("dispatches", "orders", "dispatch_keys"))


class SqliteQueue:
    """Implements `Queue`."""

    def __init__(self, store: SqliteStore, log_lookup: LogLookup | None = None) -> None:
        """Use the store's file; `log_lookup` is for `recover`."""
        self._log_lookup = log_lookup or EmptyLogLookup()
        # Shared with the store: a file has one writing thread, and a limited number of readers.
        self._writer = store.writer
        self._store_read = store.read
        self._intake = store.intake

    async def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        # Waits without a thread, so that any number of tasks can wait at once and share a transaction.
        return await self._writer.submit_batched(run_each, job)

    async def _write_all(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            await self._write(lambda database: database.executemany(statement, rows).close())

    async def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        return await self._store_read(job)

    async def dispatch(self, queued_run: QueuedRun, *, host: str | None = None) -> str:
        result = await self._writer.submit_batched(self._dispatch_all, _prepare(queued_run, host))
        if isinstance(result, ConflictError):
            raise result
        return result

    async def claim(self, host: str, limit: int, offer: HostOffer) -> list[QueuedRun]:
        def job(database: sqlite3.Connection) -> list[QueuedRun]:
            numbers = _claimable(database, offer, limit)
            for batch in _batches(numbers):
                database.execute(_CLAIM + placeholders(batch), (host, *batch))
            return _queued_runs(database, numbers)

        return await self._write(job)

    async def groups(self, *, limit: int) -> list[QueueGroup]:
        def job(database: sqlite3.Connection) -> list[QueueGroup]:
            return [_queue_group(database, needs, limit) for (needs,) in database.execute(_GROUPS).fetchall()]

        return await self._read(job)

    async def claim_one(self, run_id: str, host: str, *, previous_host: str | None = None) -> QueuedRun | None:
        def job(database: sqlite3.Connection) -> QueuedRun | None:
            claimed = database.execute(_CLAIM_ONE, (host, previous_host, run_id)).rowcount
            return _decode_queued(database.execute(_SELECT_ONE, (run_id,)).fetchone()[0]) if claimed else None

        return await self._write(job)

    async def find(self, run_id: str) -> QueuedRun | None:
        found = await self._read(lambda database: database.execute(_SELECT_ONE, (run_id,)).fetchone())
        return None if found is None else _decode_queued(found[0])

    async def next_unclaimed(self, offer: HostOffer, *, limit: int) -> list[str]:
        def job(database: sqlite3.Connection) -> list[str]:
            return [queued.run_id for queued in _queued_runs(database, _claimable(database, offer, limit))]

        return await self._read(job)

    async def mark_started(self, run_ids: Sequence[str]) -> None:
        def job(database: sqlite3.Connection) -> None:
            for batch in _batches(run_ids):
                database.execute(_DELETE_STARTED + placeholders(batch), batch)

        if run_ids:
            await self._write(job)

    async def claimed(self) -> list[tuple[str, str]]:
        found = await self._read(lambda database: database.execute(_CLAIMED).fetchall())
        return [(run_id, host) for _, run_id, host in sorted(found)]

    async def release(self, claims: Collection[tuple[str, str]]) -> None:
        await self._write_all(_RELEASE, list(claims))

    async def put_control_message(self, message: ControlMessage) -> bool:
        body = _encode(message)

        def job(database: sqlite3.Connection) -> bool:
            is_new = bool(database.execute(_INSERT_MESSAGE, (message.run_id, message.id, body)).rowcount)
            if is_new:
                self._intake.add(message_line(body))
            return is_new

        return await self._write(job)

    async def control_messages(self, *, after: int = 0) -> list[tuple[int, ControlMessage]]:
        return await self._read(
            lambda database: [
                (number, _decode_message(body)) for number, body in database.execute(_SELECT_MESSAGES, (after,))
            ]
        )

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        await self._write_all(_DELETE_MESSAGE, [(number,) for number in numbers])

    async def restore_queued_rows(self) -> None:
        def job(database: sqlite3.Connection) -> None:
            queued = (_decode_queued(body) for (body,) in database.execute(_QUEUED).fetchall())
            for batch in _batches([_prepare(run, None) for run in queued]):
                _insert_runs(database, batch)

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
            mark = self._imported_intake(database)
            if mark is None or self._intake.needs_rewrite or self._intake.needs_compaction(mark.size_bytes):
                return True
            is_changed = self._intake.size() != mark.size_bytes or database.execute(_COUNT).fetchone() != (mark.lines,)
            return is_idle and is_changed

        def job(database: sqlite3.Connection) -> int:
            is_known = self._imported_intake(database) is not None
            recovered = 0 if is_known else _recover(database, self._intake.lines(), self._log_lookup)
            mark = self._intake.replace(list(_live_lines(database)))
            database.execute(_UPSERT_MARK, (_encode(mark).decode(),))
            return recovered

        # Check with a read first: most of the time there is no work, and no need for the write lock.
        return await self._write(job) if await self._read(has_work) else 0

    def _imported_intake(self, database: sqlite3.Connection) -> IntakeMark | None:
        """Return the mark of the intake, or None if this database has not imported the current file."""
        found = database.execute(_SELECT_MARK).fetchone()
        mark = None if found is None else _decode_mark(found[0])
        return mark if mark is not None and mark.name == self._intake.name() else None

    def _dispatch_all(self, database: sqlite3.Connection, runs: list[_PreparedRun]) -> list[str | ConflictError]:
        results = _dispatch_all(database, runs)
        for run, result in zip(runs, results, strict=True):
            # An earlier dispatch with the same key has another run id, and is in the intake already.
            if result == run.run_id:
                self._intake.add(dispatch_line(run.body, run.host))
        return results


def _claimable(database: sqlite3.Connection, offer: HostOffer, limit: int) -> list[int]:
    """Return the numbers of the runs that a host with this offer claims next, the first one first."""
    groups = {needs: _decode_needs(needs) for (needs,) in database.execute(_GROUPS).fetchall()}
    if any(required.providers for required in groups.values()):
        offer = offer.disable(disabled_providers(read_records(database)))
    heads = [
        head
        for needs, required in groups.items()
        if offer.satisfies(required)
        for head in database.execute(_GROUP_HEAD, (needs, limit))
    ]
    return [number for _, number in sorted(heads)[:limit]]


def _recover(database: sqlite3.Connection, lines: Sequence[IntakeLine], log_lookup: LogLookup) -> int:
    """Restore what a lost database had and no log has. Return the number of restored dispatches and messages."""
    if database.execute(_ANY_RUN).fetchone() is None:
        # A new database: a key that was used before must not start a second run.
        for run in log_lookup.runs_with_idempotency_key():
            database.execute(_RESTORE_KEY, (run.started.idempotency_key, run.run_id, _hash_request(run.started)))
    deleted_run_ids = {run_id for (run_id,) in database.execute(_DELETED)}
    recovered = 0
    for line in lines:
        if line.mark is not None and line.mark[1] not in deleted_run_ids:
            mark, run_id = line.mark
            database.execute(MARK_STATEMENTS[mark], (run_id,))
        if line.hook is None or line.hook.run_id not in deleted_run_ids:
            restore_hook(database, line)
        if (entry := line.dispatch or line.message) is None or entry.run_id in deleted_run_ids or log_lookup.has(entry):
            continue
        if isinstance(entry, ControlMessage):
            recovered += database.execute(_INSERT_MESSAGE, (entry.run_id, entry.id, _encode(entry))).rowcount
            continue
        run = _prepare(entry, line.host)
        is_new = database.execute(_RESTORE_DISPATCH, run.dispatch).rowcount
        if is_new:
            _insert_runs(database, [run])
            if run.key is not None:
                database.execute(_RESTORE_KEY, (run.key, run.run_id, run.request_hash))
        recovered += is_new
    return recovered


def _live_lines(database: sqlite3.Connection) -> Iterator[bytes]:
    """Iterate over the intake lines of all that the database has and no log."""
    for host, body in database.execute(_QUEUED_WITH_HOST):
        yield dispatch_line(body, host)
    for _, body in database.execute(_SELECT_MESSAGES, (0,)):
        yield message_line(body)
    for mark, run_id in database.execute(_MARKED):
        yield mark_line(mark, run_id)
    yield from kept_hook_lines(database)


class _PreparedRun(NamedTuple):
    """A queued run with the values for its tables."""

    run_id: str
    host: str | None
    body: bytes
    row: tuple[Any, ...]
    task: str
    """The text that is indexed for search."""
    channel: tuple[str | None, str | None]
    key: str | None
    request_hash: bytes
    continued: str | None
    """The run that may have no other reply than this one."""
    needs: str
    """The requirements as text; equal requirements have the same text."""
    rank: int

    @property
    def dispatch(self) -> tuple[Any, ...]:
        """The values for `_INSERT_DISPATCHES`."""
        return self.run_id, self.host, self.body, self.needs, self.rank


def _prepare(queued: QueuedRun, host: str | None) -> _PreparedRun:
    row, key = queued_row(queued.run_id, queued.started), queued.started.idempotency_key
    return _PreparedRun(
        run_id=queued.run_id,
        host=host,
        body=_encode(queued),
        row=run_column_values(row, 0, 0, None),
        task=task_text(row.task),
        channel=(row.channel_id, row.channel_name),
        key=key,
        request_hash=b"" if key is None else _hash_request(queued.started),
        continued=queued.started.based_on.run_id if queued.is_only_reply and queued.started.based_on else None,
        needs=_encode_needs(queued.started.requires),
        rank=-queued.started.priority,
    )


def _encode_needs(required: Requirements | None) -> str:
    return "" if required is None else msgspec.json.encode(required, order="deterministic").decode()


@lru_cache(maxsize=QUEUE_GROUPS)
def _decode_needs(needs: str) -> Requirements:
    return _decode_requirements(needs) if needs else NO_REQUIREMENTS


def _queued_runs(database: sqlite3.Connection, numbers: Sequence[int]) -> list[QueuedRun]:
    """Return the queued runs with these numbers, in the same order."""
    bodies: dict[int, bytes] = {}
    for batch in _batches(numbers):
        bodies.update(database.execute(_SELECT_NUMBERS + placeholders(batch), batch))
    return [_decode_queued(bodies[number]) for number in numbers]


def _queue_group(database: sqlite3.Connection, needs: str, limit: int) -> QueueGroup:
    total, oldest = database.execute(_GROUP_TOTAL, (needs,)).fetchone()
    numbers = [number for _, number in database.execute(_GROUP_HEAD, (needs, limit))]
    *first, last = _queued_runs(database, [*numbers, oldest])
    return QueueGroup(
        requires=_decode_needs(needs) if needs else None,
        total=total,
        first=first,
        oldest_queued_at=last.started.queued_at,
    )


def _dispatch_all(database: sqlite3.Connection, runs: list[_PreparedRun]) -> list[str | ConflictError]:
    """Insert the dispatches with their rows, and return the run id of each.

    A conflict is returned, not raised: it writes nothing, so the other writes of the transaction need not be repeated.
    """
    results: list[str | ConflictError] = []
    # Runs with a key are inserted one by one: the next run may have the same key. So are replies to the same run.
    for is_single, group in groupby(runs, lambda run: (run.key, run.continued) != (None, None)):
        for batch in ([run] for run in group) if is_single else _batches(list(group)):
            previous = _previous_dispatch(database, batch[0]) if is_single else None
            results += [previous] if previous is not None else _insert_dispatches(database, batch)
    return results


def _previous_dispatch(database: sqlite3.Connection, run: _PreparedRun) -> str | ConflictError | None:
    """Return the id of the run dispatched with the same key, or the conflict with an earlier request."""
    previous = database.execute(_SELECT_KEY, (run.key,)).fetchone()
    if previous is not None:
        return _compare_requests(str(run.key), run.request_hash, previous)
    reply = database.execute(_SELECT_REPLY, (run.continued,)).fetchone() if run.continued is not None else None
    return None if reply is None else session_continued(str(run.continued), reply[0])


def _insert_dispatches(database: sqlite3.Connection, runs: list[_PreparedRun]) -> list[str | ConflictError]:
    refused = _groups_without_room(database, {run.needs: None for run in runs if run.needs and run.host is None})
    accepted = [run for run in runs if run.host is not None or run.needs not in refused]
    inserted = _insert_runs(database, accepted)
    if inserted:
        rows = [run.dispatch for run in inserted]
        database.execute(_INSERT_DISPATCHES + _row_placeholders(rows), _flatten(rows))
        keys = [(run.key, run.run_id, run.request_hash) for run in inserted if run.key is not None]
        database.executemany(_INSERT_KEY, keys)
    results = {id(run): _run_exists(run.run_id) for run in accepted} | {id(run): run.run_id for run in inserted}
    return [results.get(id(run)) or queue_groups_exceeded() for run in runs]


def _groups_without_room(database: sqlite3.Connection, groups: Iterable[str]) -> set[str]:
    """Return those of the groups that the queue neither has nor may have in addition."""
    new = [needs for needs in groups if database.execute(_GROUP_EXISTS, (needs,)).fetchone() is None]
    return set(new[max(0, QUEUE_GROUPS - database.execute(_GROUP_COUNT).fetchone()[0]) :] if new else ())


def _insert_runs(database: sqlite3.Connection, runs: list[_PreparedRun]) -> list[_PreparedRun]:
    """Insert the rows of queued runs. Return the runs that had no row yet."""
    ids = [run.run_id for run in runs]
    existing = {run_id for (run_id,) in database.execute(_EXISTING_RUNS + placeholders(ids), ids)}
    new: dict[str, _PreparedRun] = {}
    for run in runs:
        if run.run_id not in existing:
            new.setdefault(run.run_id, run)
    inserted = list(new.values())
    if inserted:
        rows = [run.row for run in inserted]
        database.execute(_INSERT_RUNS + _row_placeholders(rows), _flatten(rows))
        database.executemany(UPSERT_TASK, [(run.run_id, run.task) for run in inserted])
        for channel in {run.channel: None for run in inserted}:
            database.execute(_CHANNEL, channel)
    return inserted


def _run_exists(run_id: str) -> ConflictError:
    return ConflictError(f"run {run_id} already exists", hint="use a new id for each run")


def _batches(items: Sequence[T]) -> list[list[T]]:
    return [list(items[first : first + _ROWS_PER_STATEMENT]) for first in range(0, len(items), _ROWS_PER_STATEMENT)]


def _row_placeholders(rows: list[tuple[Any, ...]]) -> str:
    return ", ".join([placeholders(rows[0])] * len(rows))


def _flatten(rows: list[tuple[Any, ...]]) -> list[Any]:
    return list(chain.from_iterable(rows))


def _hash_request(started: RunStarted) -> bytes:
    """Return a hash of what is requested: the worker, the input, and the earlier run if there is one."""
    requested: tuple[Any, ...] = (started.name, started.input or {})
    if started.based_on is not None:
        requested += (started.based_on,)
    return hashlib.sha256(msgspec.json.encode(requested, order="deterministic")).digest()


def _compare_requests(key: str, request_hash: bytes, previous: tuple[str, bytes]) -> str | ConflictError:
    run_id, previous_hash = previous
    if request_hash == previous_hash:
        return run_id
    return ConflictError(
        f"the idempotency key {key!r} was used with another worker or input, for run {run_id}",
        hint="use a new key for each different request",
    )
