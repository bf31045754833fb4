"""What logs know of what was acknowledged, for a database that was lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from shopfloor.errors import FileMissing, InvalidEvent, StorageError
from shopfloor.log import Payload, RunCompleted, RunStarted, ToolResult, UnknownPayload, decode
from shopfloor.ports import Order, QueuedRun
from shopfloor.record import Storage, read


class Recorded(Protocol):
    """What logs know of what was asked. Its methods block."""

    def has(self, entry: QueuedRun | Order) -> bool:
        """Whether the log of a run has taken this up."""
        ...

    def keyed(self) -> Iterable[QueuedRun]:
        """Every run that was dispatched with an idempotency key and has a log."""
        ...


class RecordedInLogs:
    """What the logs of a storage know."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def has(self, entry: QueuedRun | Order) -> bool:
        for payload in self._payloads(entry.run_id):
            if isinstance(entry, QueuedRun) or isinstance(payload, RunCompleted):
                return True
            if isinstance(payload, ToolResult) and payload.call_id == entry.body.get("call_id"):
                return True
        return False

    def keyed(self) -> Iterator[QueuedRun]:
        for run_id in self._storage.run_ids():
            first = next(self._payloads(run_id), None)
            if isinstance(first, RunStarted) and first.idempotency_key is not None:
                yield QueuedRun(run_id=run_id, started=first)

    def _payloads(self, run_id: str) -> Iterator[Payload | UnknownPayload]:
        """What the log of a run has, as far as it can be read; nothing where there is no log."""
        with suppress(FileMissing, InvalidEvent, StorageError):
            for entry in read(self._storage.log_path(run_id), report=lambda problem: None):
                yield decode(entry.raw).payload


class NothingRecorded:
    """For a queue that has no logs beside it."""

    def has(self, entry: QueuedRun | Order) -> bool:
        return False

    def keyed(self) -> Iterable[QueuedRun]:
        return ()
