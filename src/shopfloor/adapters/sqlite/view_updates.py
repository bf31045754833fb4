"""Writes the changes of views of runs: rows, timelines, archives, statistics, fleet events, deliveries, search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

import msgspec

from shopfloor.adapters.sqlite.fleet_events import insert_fleet_events
from shopfloor.adapters.sqlite.hooks import insert_deliveries
from shopfloor.adapters.sqlite.provider_health import store_observations
from shopfloor.adapters.sqlite.queries import placeholders
from shopfloor.adapters.sqlite.rows import RUN_COLUMNS, run_column_values
from shopfloor.adapters.sqlite.search import UPSERT_CHUNK, UPSERT_TASK, task_text
from shopfloor.adapters.sqlite.stats import add_stats
from shopfloor.ports import ViewUpdate
from shopfloor.views import FleetEvent, Notification, ProviderObservation

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


def apply_updates(connection: Connection, changes: Sequence[ViewUpdate], fleet_events_kept: int) -> None:
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
