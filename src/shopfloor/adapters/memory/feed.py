"""What keeps views up to date asks of logs in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shopfloor.adapters.memory.storage import MemoryStorage, StoredLog
from shopfloor.limits import JOURNAL_PAGE_EVENTS
from shopfloor.log import Reset, decode
from shopfloor.ports import LogNews


class MemoryLogFeed:
    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    async def run_ids(self, known: Collection[str] = ()) -> list[str]:
        with self._storage.lock:
            logs = [(run_id, stored.entries[0]) for run_id, stored in self._storage.logs.items() if stored.entries]
        began = [(decode(first.raw, first.type).timestamp, run_id) for run_id, first in logs if run_id not in known]
        return [run_id for _, run_id in sorted(began)]

    async def news(self, places: Mapping[str, int], *, limit: int) -> dict[str, LogNews]:
        news: dict[str, LogNews] = {}
        left = limit
        for run_id, seq in places.items():
            if left <= 0:
                break
            with self._storage.lock:
                news[run_id] = _news(self._storage.find(run_id), seq)
            left -= len(news[run_id].entries)
        return news

    async def opened(self, after: int) -> tuple[list[str], int]:
        storage = self._storage
        with storage.lock:
            mark = storage.forgotten + len(storage.opened)
            # A mark that is not from this storage says nothing: all of it is news.
            known = after - storage.forgotten if storage.forgotten <= after <= mark else 0
            return storage.opened[known:], mark

    async def forget_opened(self, mark: int) -> int:
        storage = self._storage
        with storage.lock:
            if mark == storage.forgotten + len(storage.opened):
                storage.forgotten = mark
                storage.opened.clear()
        return mark


def _news(stored: StoredLog | None, seq: int) -> LogNews:
    if stored is None:
        return LogNews(is_missing=True)
    if stored.last_seq < seq:
        return LogNews(reset=Reset(stored.last_seq), is_written=stored.is_written)
    return LogNews(entries=stored.after(seq, JOURNAL_PAGE_EVENTS), is_written=stored.is_written)
