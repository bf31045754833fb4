"""Logs in memory, as anybody may read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import contextmanager

import anyio.lowlevel

from shopfloor.adapters.following import follow
from shopfloor.adapters.memory.storage import MemoryStorage, StoredLog
from shopfloor.errors import RunNotFound
from shopfloor.limits import FOLLOW_LOOK_SECONDS, JOURNAL_PAGE_EVENTS
from shopfloor.log import Delta, Entry, Reset
from shopfloor.ports import Bus, LogCopy


class MemoryLogReader:
    def __init__(self, storage: MemoryStorage, bus: Bus, *, look_seconds: float = FOLLOW_LOOK_SECONDS) -> None:
        self._storage = storage
        self._bus = bus
        self._look_seconds = look_seconds
        """How soon a follower that nobody wakes reads the log again."""

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

    async def is_written(self, run_id: str) -> bool:
        stored = self._storage.find(run_id)
        return stored is not None and stored.is_written

    async def is_attended(self, run_id: str, host: str | None) -> bool:
        return await self.is_written(run_id) or host in self._storage.hosts

    async def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        stored = self._storage.find(run_id)
        if stored is None:
            raise RunNotFound(f"there is no log of a run {run_id}")
        while entries := stored.after(after, JOURNAL_PAGE_EVENTS):
            yield entries
            after = entries[-1].seq
            await anyio.lowlevel.checkpoint()

    async def copy(self, run_id: str) -> LogCopy | None:
        stored = self._storage.find(run_id)
        return None if stored is None else MemoryCopy(stored.entries.copy())

    def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, patient: bool = False
    ) -> AsyncGenerator[list[Entry | Reset | Delta]]:
        look_seconds = self._look_seconds
        return follow(self, self._bus, run_id, after=after, deltas=deltas, patient=patient, look_seconds=look_seconds)

    @contextmanager
    def place(self, run_id: str, after: int) -> Generator[MemoryPlace]:
        yield MemoryPlace(self._storage.find(run_id) or StoredLog(), after)


class MemoryPlace:
    """A place in a log, for whoever follows it."""

    def __init__(self, stored: StoredLog, seq: int) -> None:
        self._stored = stored
        self.seq = seq

    async def read(self) -> list[Entry | Reset]:
        last = self._stored.last_seq
        if last < self.seq:
            self.seq = last
            return [Reset(last)]
        entries: list[Entry | Reset] = [*self._stored.after(self.seq, JOURNAL_PAGE_EVENTS)]
        self.seq += len(entries)
        return entries

    def advance(self, entry: Entry) -> None:
        self.seq = entry.seq


class MemoryCopy:
    """The bytes of a log at one moment, a line at a time."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self.size = sum(len(entry.raw) + 1 for entry in entries)

    async def pieces(self) -> AsyncIterator[bytes]:
        for entry in self._entries:
            yield entry.raw + b"\n"
