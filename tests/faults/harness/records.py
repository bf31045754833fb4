"""The logs and the rows of a storage, read from outside of the server."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from shopfloor.errors import ShopfloorError
from shopfloor.log import Event, RunCompleted, RunStarted, decode
from shopfloor.record import Storage, last_entry, read

VIEWS = {
    "worker_runs": "SELECT * FROM worker_runs ORDER BY id",
    "worker_events": "SELECT worker_id, event_type, data, created_at, seq, n FROM worker_events ORDER BY worker_id, seq, n",
    "worker_transcripts": "SELECT * FROM worker_transcripts ORDER BY worker_id",
    "run_counts": "SELECT * FROM run_counts WHERE n != 0 ORDER BY agent_id, status, worker_type, channel_id, name, roots",
}
"""The tables that `rebuild` has to restore exactly."""
_NOT_OF_THE_LOG = frozenset({"num"})


class EndedRuns:
    """The runs whose logs have an outcome. Each log is read again until it has one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._ended: set[str] = set()

    def ids(self) -> set[str]:
        for path in log_paths(self._storage):
            if path.stem not in self._ended and has_outcome(path):
                self._ended.add(path.stem)
        return self._ended


def log_paths(storage: Storage) -> list[Path]:
    return sorted(storage.transcripts.glob("*.jsonl"))


def has_outcome(path: Path) -> bool:
    with contextlib.suppress(ShopfloorError, OSError):
        last = last_entry(path)
        return last is not None and last.type == RunCompleted.event_type
    return False


def events_of(path: Path) -> list[Event]:
    return [decode(entry.raw) for entry in read(path, on_problem=lambda problem: None)]


def key_of(events: list[Event]) -> str | None:
    """Return the key of a run of the load from the input in its first event."""
    first = events[0].payload if events else None
    run_input = first.input if isinstance(first, RunStarted) else None
    return run_input.get("KEY") if run_input else None


def outcome_of(events: list[Event]) -> RunCompleted | None:
    last = events[-1].payload if events else None
    return last if isinstance(last, RunCompleted) else None


def views_of(storage: Storage) -> dict[str, list[dict[str, Any]]]:
    """Return every row of the views."""
    database = sqlite3.connect(f"file:{storage.database}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    try:
        return {
            table: [{name: row[name] for name in row.keys() if name not in _NOT_OF_THE_LOG} for row in found]  # noqa: SIM118
            for table, query in VIEWS.items()
            for found in [database.execute(query).fetchall()]
        }
    finally:
        database.close()
