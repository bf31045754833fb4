"""What the files of a storage have that its views do not have yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import anyio.to_thread

from shopfloor.errors import FileMissing, InvalidEvent, StorageError
from shopfloor.limits import FEED_SIZES
from shopfloor.log import Entry, Reset, decode
from shopfloor.ports import LogNews
from shopfloor.record import Cursor, Problem, Storage, is_locked, read


class LocalLogFeed:
    """Holds no file open: there may be thousands of logs that have not ended."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sizes: dict[str, tuple[int, int]] = {}
        """The `seq` that a log was read up to, and how large the file was when there was nothing more in it."""

    async def run_ids(self, known: Collection[str] = ()) -> list[str]:
        return await anyio.to_thread.run_sync(self._oldest_first, known)

    def _oldest_first(self, known: Collection[str]) -> list[str]:
        began: list[tuple[str, str]] = []
        for run_id in set(self._storage.run_ids()).difference(known):
            try:
                first = next(read(self._storage.log_path(run_id), limit=1, report=_ignore), None)
                if first is not None:
                    began.append((decode(first.raw, first.type).timestamp, run_id))
            except (FileMissing, StorageError, InvalidEvent):
                # No file, deleted meanwhile, or not ours to read: that is no reason to leave out the others.
                continue
        return [run_id for _, run_id in sorted(began)]

    async def news(self, places: Mapping[str, int], *, limit: int) -> dict[str, LogNews]:
        return await anyio.to_thread.run_sync(self._news, places, limit)

    def _news(self, places: Mapping[str, int], limit: int) -> dict[str, LogNews]:
        news: dict[str, LogNews] = {}
        events = 0
        for run_id, seq in places.items():
            try:
                news[run_id] = found = self._news_of(run_id, seq)
            except FileNotFoundError:
                self._sizes.pop(run_id, None)
                news[run_id] = LogNews(is_missing=True)
                continue
            except (OSError, FileMissing, StorageError):
                # Deleted meanwhile, or not to be read just now: the next look may go better.
                continue
            events += len(found.entries)
            if events >= limit:
                break
        return news

    def _news_of(self, run_id: str, seq: int) -> LogNews:
        path = self._storage.log_path(run_id)
        size = path.stat().st_size
        # Asked before reading: what was written before the writer left is still read.
        is_written = is_locked(path)
        if self._sizes.get(run_id) == (seq, size):
            return LogNews(is_written=is_written)
        with Cursor(path, seq, report=_ignore) as cursor:
            items = cursor.poll()
            # Past lines that are no events, however many there are.
            while items and not any(map(_is_event, reversed(items))) and (more := cursor.poll()):
                items = more
        if items and isinstance(items[0], Reset):
            return LogNews(reset=items[0], is_written=is_written)
        if not items:
            if len(self._sizes) >= FEED_SIZES:
                self._sizes.clear()
            self._sizes[run_id] = (seq, size)
        return LogNews(entries=[item for item in items if isinstance(item, Entry)], is_written=is_written)

    async def opened(self, after: int) -> tuple[list[str], int]:
        return self._storage.announced(after)

    async def forget_opened(self, mark: int) -> int:
        return self._storage.forget_announced(mark)


def _is_event(item: Entry | Reset) -> bool:
    if isinstance(item, Reset):
        return True
    try:
        decode(item.raw, item.type)
    except InvalidEvent:
        return False
    return True


def _ignore(problem: Problem) -> None:
    """Said where a log is shown, not where its rows are made."""
