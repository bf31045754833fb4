"""Logs in memory."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from shopfloor.adapters.memory.storage import MemoryStorage, StoredLog
from shopfloor.errors import LogClosed, StorageError
from shopfloor.log import (
    TIMESTAMP,
    Delta,
    Entry,
    Line,
    Masking,
    Payload,
    check,
    check_next,
    checked_run_id,
    decode,
    encode,
    event_time,
    log_busy,
    masked,
    now,
)
from shopfloor.ports import Bus


class MemoryLog:
    """One run's log, open for writing."""

    is_durable = True

    def __init__(
        self,
        storage: MemoryStorage,
        stored: StoredLog,
        bus: Bus,
        run_id: str,
        *,
        parent_run_id: str | None,
        mask: Masking | None,
    ) -> None:
        self.run_id = run_id
        self.mask = mask
        self.is_closed = False
        self._storage = storage
        self._stored = stored
        self._bus = bus
        last = decode(stored.entries[-1].raw) if stored.entries else None
        self._parent_run_id = last.parent_run_id if last else parent_run_id and checked_run_id(parent_run_id)
        self._newest = last.timestamp if last and TIMESTAMP.fullmatch(last.timestamp) else ""

    @property
    def seq(self) -> int:
        return self._stored.last_seq

    async def append(
        self,
        payload: Payload,
        *,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        return self._append(payload, path, iteration, child_run_id, at)

    def append_now(self, payload: Payload) -> Entry:
        return self._append(payload)

    def _append(
        self,
        payload: Payload,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        if self.mask is not None:
            payload = masked(self.mask, payload)
        check(payload, path, iteration, child_run_id)
        with self._storage.lock:
            self._check_open()
            check_next(self.run_id, self.seq, payload, has_ended=self._stored.has_ended)
            timestamp, payload = event_time(self._newest, now(), at, payload)
            line = Line(
                seq=self.seq + 1,
                run_id=self.run_id,
                parent_run_id=self._parent_run_id,
                child_run_id=child_run_id,
                type=payload.event_type,
                path=path,
                iteration=iteration,
                timestamp=timestamp,
                payload=payload,
            )
            entry = Entry(line.seq, line.type, encode(line))
            self._stored.entries.append(entry)
            self._newest = timestamp
            self._bus.publish(self.run_id, entry)
        return entry

    def _check_open(self) -> None:
        if self.is_closed:
            raise LogClosed(f"the log of {self.run_id} is closed")
        if self._storage.logs.get(self.run_id) is not self._stored:
            raise StorageError(f"cannot write the log of {self.run_id}: it was deleted")

    async def make_durable(self) -> None:
        """Nothing to do: what was appended is as safe as memory can be."""

    def publish_delta(self, delta: Delta) -> None:
        # A piece can hold a part of a secret, which no mask finds: where something is masked, only the log tells.
        if self.mask is None:
            self._bus.publish_delta(self.run_id, delta)


class MemoryLogs:
    def __init__(self, storage: MemoryStorage, bus: Bus, *, mask: Masking | None = None) -> None:
        self._storage = storage
        self._bus = bus
        self._mask = mask

    @property
    def masks(self) -> bool:
        return self._mask is not None

    @asynccontextmanager
    async def open(self, run_id: str, *, parent_run_id: str | None = None) -> AsyncGenerator[MemoryLog]:
        storage = self._storage
        with storage.lock:
            stored = storage.logs.setdefault(checked_run_id(run_id), StoredLog())
            if stored.is_written:
                raise log_busy(run_id)
            log = MemoryLog(storage, stored, self._bus, run_id, parent_run_id=parent_run_id, mask=self._mask)
            stored.is_written = True
            storage.opened.append(run_id)
        if log.seq:
            # It may have lost its end since the last event was published.
            self._bus.notify(run_id)
        try:
            yield log
        finally:
            with storage.lock:
                log.is_closed, stored.is_written = True, False
            # The outcome says by itself that the writer is gone.
            if not stored.has_ended:
                self._bus.notify(run_id)

    async def delete(self, run_id: str) -> None:
        with self._storage.lock:
            self._storage.logs.pop(checked_run_id(run_id), None)

    async def announce_deletion(self, run_id: str) -> None:
        with self._storage.lock:
            self._storage.opened.append(checked_run_id(run_id))
        self._bus.notify(run_id)

    def room(self) -> int:
        return sys.maxsize
