"""Logs in memory: writers, readers, and the feed for the ingestion into views."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

import anyio.lowlevel

from shopfloor.adapters.limits import FOLLOW_FALLBACK_POLL_SECONDS
from shopfloor.adapters.log_followers import follow
from shopfloor.adapters.memory.storage import MemoryStorage, StoredLog
from shopfloor.errors import LogClosed, RunNotFound, StorageError
from shopfloor.limits import REPLAY_PAGE_EVENTS
from shopfloor.log import (
    TIMESTAMP,
    Delta,
    Entry,
    Line,
    Masking,
    Payload,
    Reset,
    apply_mask,
    check,
    check_next,
    decode,
    encode,
    event_time,
    log_busy,
    now,
    validate_run_id,
)
from shopfloor.ports import Bus, LogCopy, LogUpdate


class MemoryLog:
    """Implements `Log`: one run's log, open for writing."""

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
        self._parent_run_id = last.parent_run_id if last else parent_run_id and validate_run_id(parent_run_id)
        self._newest_timestamp = last.timestamp if last and TIMESTAMP.fullmatch(last.timestamp) else ""

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
            payload = apply_mask(self.mask, payload)
        check(payload, path, iteration, child_run_id)
        with self._storage.lock:
            self._check_open()
            check_next(self.run_id, self.seq, payload, has_ended=self._stored.has_ended)
            timestamp, payload = event_time(self._newest_timestamp, now(), at, payload)
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
            self._newest_timestamp = timestamp
            self._bus.publish(self.run_id, entry)
        return entry

    def _check_open(self) -> None:
        if self.is_closed:
            raise LogClosed(f"the log of {self.run_id} is closed")
        if self._storage.logs.get(self.run_id) is not self._stored:
            raise StorageError(f"cannot write the log of {self.run_id}: it was deleted")

    async def make_durable(self) -> None:
        """Do nothing: memory is always as durable as it can be."""

    def publish_delta(self, delta: Delta) -> None:
        # A secret split over deltas cannot be recognized. So with masking, viewers get the text from the log only.
        if self.mask is None:
            self._bus.publish_delta(self.run_id, delta)


class MemoryLogs:
    """Implements `Logs`."""

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
            stored = storage.logs.setdefault(validate_run_id(run_id), StoredLog())
            if stored.has_writer:
                raise log_busy(run_id)
            log = MemoryLog(storage, stored, self._bus, run_id, parent_run_id=parent_run_id, mask=self._mask)
            stored.has_writer = True
            storage.opened_logs.append(run_id)
        if log.seq:
            # The log may have been truncated since its last entry was published.
            self._bus.notify(run_id)
        try:
            yield log
        finally:
            with storage.lock:
                log.is_closed, stored.has_writer = True, False
            # After an outcome, followers know that the writer has ended.
            if not stored.has_ended:
                self._bus.notify(run_id)

    async def delete(self, run_id: str) -> None:
        with self._storage.lock:
            self._storage.logs.pop(validate_run_id(run_id), None)

    async def announce_deletion(self, run_id: str) -> None:
        with self._storage.lock:
            self._storage.opened_logs.append(validate_run_id(run_id))
        self._bus.notify(run_id)

    def headroom_bytes(self) -> int:
        return sys.maxsize


class MemoryLogReader:
    """Implements `LogReader`."""

    def __init__(self, storage: MemoryStorage, bus: Bus, *, poll_seconds: float = FOLLOW_FALLBACK_POLL_SECONDS) -> None:
        self._storage = storage
        self._bus = bus
        self._poll_seconds = poll_seconds
        """How long a follower waits for a notification before it reads the log again."""

    async def page(self, run_id: str, *, after: int = 0, before: int | None = None, limit: int) -> list[Entry] | None:
        stored = self._storage.find(run_id)
        if stored is None:
            return None
        end = stored.last_seq if before is None else min(stored.last_seq, before - 1)
        if before is not None and not after:
            after = max(0, end - limit)
        return stored.entries[after : max(after, min(end, after + limit))]

    async def has_log(self, run_id: str) -> bool:
        return self._storage.find(run_id) is not None

    async def has_writer(self, run_id: str) -> bool:
        stored = self._storage.find(run_id)
        return stored is not None and stored.has_writer

    async def has_active_host(self, run_id: str, host: str | None) -> bool:
        return await self.has_writer(run_id) or self._is_accepting(host)

    async def without_host(self, hosts: Mapping[str, str | None]) -> set[str]:
        return {run_id for run_id, host in hosts.items() if not await self.has_active_host(run_id, host)}

    def _is_accepting(self, host: str | None) -> bool:
        found = None if host is None else self._storage.hosts.get(host)
        return found is not None and not found.is_draining

    async def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        stored = self._storage.find(run_id)
        if stored is None:
            raise RunNotFound(f"there is no log of run {run_id}")
        while entries := stored.after(after, REPLAY_PAGE_EVENTS):
            yield entries
            after = entries[-1].seq
            await anyio.lowlevel.checkpoint()

    async def copy(self, run_id: str) -> LogCopy | None:
        stored = self._storage.find(run_id)
        return None if stored is None else MemoryLogCopy(stored.entries.copy())

    def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, wait_for_writer: bool = False
    ) -> AsyncGenerator[list[Entry | Reset | Delta]]:
        return follow(
            self,
            self._bus,
            run_id,
            after=after,
            deltas=deltas,
            wait_for_writer=wait_for_writer,
            poll_seconds=self._poll_seconds,
        )

    @contextmanager
    def cursor(self, run_id: str, after: int) -> Generator[MemoryLogCursor]:
        yield MemoryLogCursor(self._storage.find(run_id) or StoredLog(), after)


class MemoryLogCursor:
    """Implements `LogCursor`."""

    def __init__(self, stored: StoredLog, seq: int) -> None:
        self._stored = stored
        self.seq = seq

    async def read(self) -> list[Entry | Reset]:
        last = self._stored.last_seq
        if last < self.seq:
            self.seq = last
            return [Reset(last)]
        entries: list[Entry | Reset] = [*self._stored.after(self.seq, REPLAY_PAGE_EVENTS)]
        self.seq += len(entries)
        return entries

    def advance(self, entry: Entry) -> None:
        self.seq = entry.seq


class MemoryLogCopy:
    """Implements `LogCopy`: the bytes of a log at one moment, line by line."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self.size = sum(len(entry.raw) + 1 for entry in entries)

    async def chunks(self) -> AsyncIterator[bytes]:
        for entry in self._entries:
            yield entry.raw + b"\n"


class MemoryLogFeed:
    """Implements `LogFeed`."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    async def run_ids(self, known: Collection[str] = ()) -> list[str]:
        with self._storage.lock:
            logs = [(run_id, stored.entries[0]) for run_id, stored in self._storage.logs.items() if stored.entries]
        started = [(decode(first.raw, first.type).timestamp, run_id) for run_id, first in logs if run_id not in known]
        return [run_id for _, run_id in sorted(started)]

    async def updates(self, places: Mapping[str, int], *, limit: int) -> dict[str, LogUpdate]:
        updates: dict[str, LogUpdate] = {}
        remaining = limit
        for run_id, seq in places.items():
            if remaining <= 0:
                break
            with self._storage.lock:
                updates[run_id] = _read_update(self._storage.find(run_id), seq)
            remaining -= len(updates[run_id].entries)
        return updates

    async def opened_logs(self, after: int) -> tuple[list[str], int]:
        storage = self._storage
        with storage.lock:
            position = storage.forgotten + len(storage.opened_logs)
            # A feed position of another storage is meaningless: return all entries.
            offset = after - storage.forgotten if storage.forgotten <= after <= position else 0
            return storage.opened_logs[offset:], position

    async def forget_opened_logs(self, feed_position: int) -> int:
        storage = self._storage
        with storage.lock:
            if feed_position == storage.forgotten + len(storage.opened_logs):
                storage.forgotten = feed_position
                storage.opened_logs.clear()
        return feed_position


def _read_update(stored: StoredLog | None, seq: int) -> LogUpdate:
    if stored is None:
        return LogUpdate(is_missing=True)
    if stored.last_seq < seq:
        return LogUpdate(reset=Reset(stored.last_seq), has_writer=stored.has_writer)
    return LogUpdate(entries=stored.after(seq, REPLAY_PAGE_EVENTS), has_writer=stored.has_writer)
