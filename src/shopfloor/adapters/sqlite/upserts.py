"""Changes to the views, many at once: each table is written in one go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

import msgspec

from shopfloor.adapters.sqlite.queries import placeholders
from shopfloor.adapters.sqlite.rows import RUN_COLUMNS, run_column_values
from shopfloor.adapters.sqlite.search import UPSERT_PIECE, UPSERT_TASK, task_text
from shopfloor.ports import ViewUpdate

_encode = msgspec.json.Encoder().encode
_ROWS: Final = 500
"""How many rows one statement inserts: a bound for its parameters, and for what SQLite keeps of it."""

_BURIED: Final = "SELECT worker_id FROM tombstones WHERE worker_id IN "
_KNOWN: Final = "SELECT id, last_seq FROM worker_runs WHERE id IN "
_UNFOLD: Final = "DELETE FROM worker_folds WHERE worker_id IN "

Rows = list[tuple[Any, ...]]


class _Insert:
    """Rows of a table, many at a time: after each statement the driver waits until the other threads let it go on."""

    def __init__(self, table: str, columns: Sequence[str], conflict: str = "") -> None:
        self._into = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        self._values = placeholders(columns)
        self._conflict = conflict

    def run(self, connection: Connection, rows: Rows) -> None:
        for first in range(0, len(rows), _ROWS):
            some = rows[first : first + _ROWS]
            text = f"{self._into}{', '.join([self._values] * len(some))}{self._conflict}"
            connection.execute(text, tuple(chain.from_iterable(some)))


_NEW_VALUES: Final = {name: f"excluded.{name}" for name in RUN_COLUMNS} | {
    "event_count": "worker_runs.event_count + excluded.event_count",
    "has_transcript": "worker_runs.has_transcript OR excluded.has_transcript",
}


def _replaced(table: str, key: str, column: str) -> _Insert:
    """A row by its key; where it is there already, the column gets its new value, unless that is none at all."""
    value = f"coalesce(excluded.{column}, {table}.{column})"
    return _Insert(table, (key, column), f" ON CONFLICT ({key}) DO UPDATE SET {column} = {value}")


_RUN = _Insert(
    "worker_runs",
    RUN_COLUMNS,
    f" ON CONFLICT (id) DO UPDATE SET {', '.join([f'{name} = {value}' for name, value in _NEW_VALUES.items()])}",
)
_CHANNEL = _replaced("channels", "id", "name")
_TOLD = _Insert("worker_events", ("worker_id", "event_type", "data", "created_at", "seq", "n"))
_ARCHIVE = _replaced("worker_transcripts", "worker_id", "transcript")
_FOLD = _replaced("worker_folds", "worker_id", "state")


class _Searched(NamedTuple):
    tasks: Rows
    pieces: Rows


def apply(connection: Connection, changes: Sequence[ViewUpdate]) -> None:
    if not changes:
        return
    ids = [change.row.id for change in changes]
    deleted_run_ids = {run_id for (run_id,) in connection.execute(f"{_BURIED}{placeholders(ids)}", ids)}
    known: dict[str, int] = dict(connection.execute(f"{_KNOWN}{placeholders(ids)}", ids).fetchall())
    # In this order: the others refer to runs.
    rows: dict[_Insert, Rows] = {statement: [] for statement in (_RUN, _CHANNEL, _TOLD, _ARCHIVE, _FOLD)}
    searched = _Searched([], [])
    for change in changes:
        run_id, last_seq = change.row.id, known.get(change.row.id)
        if run_id not in deleted_run_ids and (last_seq is None or last_seq < change.row.last_seq):
            known[run_id] = change.row.last_seq
            _gather(rows, change, last_seq)
            _gather_search(searched, change, last_seq)
    for statement, parameters in rows.items():
        statement.run(connection, parameters)
    connection.executemany(UPSERT_TASK, searched.tasks)
    connection.executemany(UPSERT_PIECE, searched.pieces)
    if folded := [change.row.id for change in changes if change.row.is_ended]:
        connection.execute(f"{_UNFOLD}{placeholders(folded)}", folded)


def _gather(rows: dict[_Insert, Rows], change: ViewUpdate, last_seq: int | None) -> None:
    """The rows of a change to a run that is there up to `last_seq`, or not yet."""
    row = change.row
    # Two processes may have folded the same events: what the row is past is there already.
    told = [told for told in change.timeline if last_seq is None or told.seq > last_seq]
    rows[_RUN].append(run_column_values(row, len(told), change.archive is not None, change.search_stopped_at))
    if last_seq is None and row.channel_id is not None:
        rows[_CHANNEL].append((row.channel_id, row.channel_name))
    rows[_TOLD] += [
        (row.id, one.event_type, _encode(one.data).decode(), one.created_at, one.seq, one.n) for one in told
    ]
    if change.archive is not None:
        rows[_ARCHIVE].append((row.id, change.archive))
    if not row.is_ended:
        rows[_FOLD].append((row.id, change.state))


def _gather_search(searched: _Searched, change: ViewUpdate, last_seq: int | None) -> None:
    row = change.row
    if not last_seq or row.is_ended:
        searched.tasks.append((row.id, task_text(row.task)))
    searched.pieces.extend((row.id, piece.number, piece.text) for piece in change.search)
