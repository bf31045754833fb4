"""Logs in memory, as anybody may read them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio.lowlevel

from shopfloor.adapters.memory.storage import MemoryStorage
from shopfloor.errors import RunNotFound
from shopfloor.limits import JOURNAL_PAGE_EVENTS
from shopfloor.log import Entry
from shopfloor.ports import LogCopy


class MemoryLogReader:
    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

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


class MemoryCopy:
    """The bytes of a log at one moment, a line at a time."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self.size = sum(len(entry.raw) + 1 for entry in entries)

    async def pieces(self) -> AsyncIterator[bytes]:
        for entry in self._entries:
            yield entry.raw + b"\n"
