"""Fleet events in SQLite, in chunks, which take less time to store than a row for each event (ADR 31)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shopfloor.adapters.limits import FLEET_CHUNK_BYTES, FLEET_TRIM_PARTS
from shopfloor.adapters.sqlite.queries import placeholders
from shopfloor.ports import FleetEventPage, FleetFilter, StoredFleetEvent
from shopfloor.views import EventStream, FleetEvent, encode_fleet_event

if TYPE_CHECKING:
    from shopfloor.adapters.sqlite.store import SqliteStore

_INSERT: Final = "INSERT INTO fleet_events (last, first, stream, provider, run_id, events) VALUES (?, ?, ?, ?, ?, ?)"
_COLUMNS: Final = "last, first, stream, provider, run_id, events"
_CURSORS: Final = "SELECT last, trimmed FROM fleet_cursor"
_TREE: Final = (
    "WITH RECURSIVE tree(id) AS (SELECT ? UNION SELECT worker_runs.id FROM worker_runs JOIN tree"
    " ON worker_runs.parent_run_id = tree.id) SELECT id FROM tree"
)
_ANCESTORS: Final = (
    "WITH RECURSIVE up(id, above, depth) AS (SELECT id, parent_run_id, 1 FROM worker_runs WHERE id IN {ids}"
    " UNION SELECT up.id, worker_runs.parent_run_id, depth + 1 FROM up JOIN worker_runs ON worker_runs.id = up.above)"
    " SELECT id, above FROM up WHERE above IS NOT NULL ORDER BY depth"
)

Row = tuple[int, int, EventStream, str | None, str | None, bytes]


def insert_fleet_events(connection: Connection, events: Sequence[FleetEvent], kept: int) -> int:
    """Store events after the newest cursor, delete the oldest if there are more than `kept`, and return the cursor."""
    newest: int = connection.execute(_CURSORS).fetchone()[0]
    if not events:
        return newest
    rows = list(_chunks(events, newest))
    last = newest + len(events)
    connection.execute("UPDATE fleet_cursor SET last = ?", (last,))
    connection.executemany(_INSERT, rows)
    # Not after each insert, so that deleting costs little.
    part = max(1, kept // FLEET_TRIM_PARTS)
    if last // part != newest // part:
        _trim(connection, last - kept)
    return last


def _trim(connection: Connection, until: int) -> None:
    """Delete the events up to the cursor `until`."""
    if connection.execute("UPDATE fleet_cursor SET trimmed = ? WHERE trimmed < ?", (until, until)).rowcount:
        connection.execute("DELETE FROM fleet_events WHERE last <= ?", (until,))


def _chunks(events: Iterable[FleetEvent], newest: int) -> Iterator[Row]:
    """Yield the rows of events: consecutive events with the same stream, provider and run share a row."""
    first = newest + 1
    for (stream, provider, run_id), group in groupby(events, _chunk_key):
        lines: list[bytes] = []
        size = 0
        for event in group:
            body = encode_fleet_event(event)
            if lines and size + len(body) > FLEET_CHUNK_BYTES:
                yield first + len(lines) - 1, first, stream, provider, run_id, b"\n".join(lines)
                first, lines, size = first + len(lines), [], 0
            lines.append(body)
            size += len(body)
        yield first + len(lines) - 1, first, stream, provider, run_id, b"\n".join(lines)
        first += len(lines)


def _chunk_key(event: FleetEvent) -> tuple[EventStream, str | None, str | None]:
    return event.stream, event.provider, event.run_id


def _events_of(row: Row, wanted: FleetFilter) -> list[StoredFleetEvent]:
    """Return the events of a row that matches; of the filter, only the type differs within a row."""
    _, first, stream, provider, run_id, events = row
    # JSON has no line breaks between or inside its values, so each line is an event.
    found = [
        StoredFleetEvent(cursor, stream, run_id, provider, body)
        for cursor, body in enumerate(events.split(b"\n"), first)
    ]
    return found if wanted.type is None else [event for event in found if event.type == wanted.type]


class SqliteFleetEvents:
    """Implements `FleetEvents` in the database of a store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def append(self, events: Sequence[FleetEvent]) -> int:
        kept = self._store.fleet_events_kept
        return await self._store.write(lambda connection: insert_fleet_events(connection, events, kept))

    async def read(self, wanted: FleetFilter, *, after: int, limit: int, until: int | None = None) -> FleetEventPage:
        return await self._store.read(lambda connection: _read(connection, wanted, after, until, limit))

    async def newest(self, wanted: FleetFilter, *, limit: int) -> FleetEventPage:
        return await self._store.read(lambda connection: _newest(connection, wanted, limit))

    async def cursor(self) -> int:
        return await self._store.read(lambda connection: connection.execute(_CURSORS).fetchone()[0])

    async def ancestors(self, run_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        ids = [*run_ids]

        def job(connection: Connection) -> dict[str, tuple[str, ...]]:
            found: dict[str, tuple[str, ...]] = {}
            for run_id, above in connection.execute(_ANCESTORS.format(ids=placeholders(ids)), ids):
                found[run_id] = (*found.get(run_id, ()), above)
            return found

        return await self._store.read(job)


def _read(connection: Connection, wanted: FleetFilter, after: int, until: int | None, limit: int) -> FleetEventPage:
    newest, trimmed = connection.execute(_CURSORS).fetchone()
    has_gap = after != 0 and not trimmed <= after <= newest
    after = trimmed if has_gap or not after else after
    end = newest if until is None else min(until, newest)
    conditions, parameters = _conditions(wanted)
    query = f"SELECT {_COLUMNS} FROM fleet_events WHERE last > ? AND first <= ?{conditions} ORDER BY last LIMIT ?"
    events: list[StoredFleetEvent] = []
    # Each row has at least one event, except those outside of the range.
    for row in connection.execute(query, (after, end, *parameters, _row_limit(wanted, limit + 2))):
        events += [event for event in _events_of(row, wanted) if after < event.cursor <= end]
        if len(events) >= limit:
            return FleetEventPage(events[:limit], events[limit - 1].cursor, has_gap)
    return FleetEventPage(events, max(after, end), has_gap)


def _newest(connection: Connection, wanted: FleetFilter, limit: int) -> FleetEventPage:
    newest, _ = connection.execute(_CURSORS).fetchone()
    conditions, parameters = _conditions(wanted)
    events: list[StoredFleetEvent] = []
    query = f"SELECT {_COLUMNS} FROM fleet_events WHERE last > 0{conditions} ORDER BY last DESC LIMIT ?"
    for row in connection.execute(query, (*parameters, _row_limit(wanted, limit))):
        events = _events_of(row, wanted) + events
        if len(events) >= limit:
            break
    return FleetEventPage(events[-limit:], newest)


def _row_limit(wanted: FleetFilter, rows: int) -> int:
    """Return how many rows have enough events; without a limit (-1) if a row may have no event of the type."""
    return rows if wanted.type is None else -1


def _conditions(wanted: FleetFilter) -> tuple[str, list[Any]]:
    text, parameters = "", list[Any]()
    for column, value in (("stream", wanted.stream), ("provider", wanted.provider)):
        if value is not None:
            text += f" AND {column} = ?"
            parameters.append(value)
    if wanted.type is not None:
        # Excludes most rows without such an event. Those that only mention the type are excluded event by event.
        text += " AND instr(events, ?)"
        parameters.append(msgspec.json.encode(wanted.type))
    if wanted.run_id is not None:
        text += f" AND run_id IN ({_TREE})" if wanted.tree else " AND run_id = ?"
        parameters.append(wanted.run_id)
    return text, parameters
