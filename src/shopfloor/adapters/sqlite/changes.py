"""Changes to the views, many at once: each table is written in one go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, func, insert, or_, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert as upsert

from shopfloor.adapters.sqlite.database import driver
from shopfloor.adapters.sqlite.rows import columns_of
from shopfloor.adapters.sqlite.schema import (
    channels,
    tombstones,
    worker_events,
    worker_folds,
    worker_runs,
    worker_transcripts,
)
from shopfloor.adapters.sqlite.search import KEEP_PIECE, KEEP_TASK, task_text
from shopfloor.ports import Change

_encode = msgspec.json.Encoder().encode
_runs = worker_runs.c
_KEPT = [column.name for column in _runs if column.name != "num"]
"""The columns of a run that are ours to fill."""
_ROWS: Final = 500
"""How many rows one statement inserts: a bound for its parameters, and for what SQLite keeps of it."""

Rows = list[tuple[Any, ...]]


class _Insert:
    """Compiled once, and given to the driver with ready tuples: SQLAlchemy's part in each row costs as much again.

    Many rows at a time: after each statement the driver waits until the other threads let it go on.
    """

    def __init__(self, statement: Any, *columns: str) -> None:
        text = str(statement.compile(dialect=sqlite.dialect(), column_keys=columns or None))
        self._into, _, rest = text.partition(" VALUES ")
        self._values, conflict, action = rest.partition(" ON CONFLICT")
        self._conflict = conflict + action

    def run(self, connection: Connection, rows: Rows) -> None:
        for first in range(0, len(rows), _ROWS):
            some = rows[first : first + _ROWS]
            text = f"{self._into} VALUES {', '.join([self._values] * len(some))}{self._conflict}"
            connection.exec_driver_sql(text, tuple(chain.from_iterable(some)))


def _kept_run() -> Any:
    added = upsert(worker_runs)
    values: dict[str, Any] = {name: added.excluded[name] for name in _KEPT}
    values["event_count"] = _runs.event_count + values["event_count"]
    values["has_transcript"] = or_(_runs.has_transcript, values["has_transcript"])
    return added.on_conflict_do_update(index_elements=[_runs.id], set_=values)


def _replaced(table: Any, column: str) -> Any:
    """A row by its key; where it is there already, the column gets its new value, unless that is none at all."""
    added = upsert(table)
    return added.on_conflict_do_update(set_={column: func.coalesce(added.excluded[column], table.c[column])})


_RUN = _Insert(_kept_run(), *_KEPT)
_CHANNEL = _Insert(_replaced(channels, "name"))
_TOLD = _Insert(insert(worker_events), "worker_id", "event_type", "data", "created_at", "seq", "n")
_ARCHIVE = _Insert(_replaced(worker_transcripts, "transcript"))
_FOLD = _Insert(_replaced(worker_folds, "state"))


class _Searched(NamedTuple):
    tasks: Rows
    pieces: Rows


def apply(connection: Connection, changes: Sequence[Change]) -> None:
    if not changes:
        return
    ids = [change.row.id for change in changes]
    buried = set(connection.execute(select(tombstones.c.worker_id).where(tombstones.c.worker_id.in_(ids))).scalars())
    found = connection.execute(select(_runs.id, _runs.last_seq).where(_runs.id.in_(ids)))
    known: dict[str, int] = {row.id: row.last_seq for row in found}
    # In this order: the others refer to runs.
    rows: dict[_Insert, Rows] = {statement: [] for statement in (_RUN, _CHANNEL, _TOLD, _ARCHIVE, _FOLD)}
    searched = _Searched([], [])
    for change in changes:
        run_id, last_seq = change.row.id, known.get(change.row.id)
        if run_id not in buried and (last_seq is None or last_seq < change.row.last_seq):
            known[run_id] = change.row.last_seq
            _gather(rows, change, last_seq)
            _gather_search(searched, change, last_seq)
    for statement, parameters in rows.items():
        statement.run(connection, parameters)
    database = driver(connection)
    database.executemany(KEEP_TASK, searched.tasks)
    database.executemany(KEEP_PIECE, searched.pieces)
    if folded := [change.row.id for change in changes if change.row.ended]:
        connection.execute(delete(worker_folds).where(worker_folds.c.worker_id.in_(folded)))


def _gather(rows: dict[_Insert, Rows], change: Change, last_seq: int | None) -> None:
    """The rows of a change to a run that is there up to `last_seq`, or not yet."""
    row = change.row
    # Two processes may have folded the same events: what the row is past is there already.
    told = [told for told in change.timeline if last_seq is None or told.seq > last_seq]
    columns = columns_of(row) | {"event_count": len(told), "has_transcript": change.archive is not None}
    columns["search_stopped_at"] = change.search_stopped_at
    rows[_RUN].append(tuple(columns[name] for name in _KEPT))
    if last_seq is None and row.channel_id is not None:
        rows[_CHANNEL].append((row.channel_id, row.channel_name))
    rows[_TOLD] += [
        (row.id, one.event_type, _encode(one.data).decode(), one.created_at, one.seq, one.n) for one in told
    ]
    if change.archive is not None:
        rows[_ARCHIVE].append((row.id, change.archive))
    if not row.ended:
        rows[_FOLD].append((row.id, change.state))


def _gather_search(searched: _Searched, change: Change, last_seq: int | None) -> None:
    row = change.row
    if not last_seq or row.ended:
        searched.tasks.append((row.id, task_text(row.task)))
    searched.pieces.extend((row.id, piece.number, piece.text) for piece in change.search)
