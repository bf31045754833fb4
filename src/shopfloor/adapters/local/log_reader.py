"""Logs in files, as anybody may read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from shopfloor.adapters.local.bus import LocalBus
from shopfloor.adapters.log_followers import follow
from shopfloor.errors import FileMissing, InvalidEvent, RunNotFound, StorageError
from shopfloor.limits import FEED_KNOWN_LOGS, FOLLOW_FALLBACK_POLL_SECONDS, READ_CHUNK_BYTES
from shopfloor.log import Delta, Entry, Reset, decode
from shopfloor.ports import Bus, LogCopy, LogUpdate
from shopfloor.record import (
    Cursor,
    Problem,
    ReadCache,
    Storage,
    complete_bytes,
    has_active_host,
    is_locked,
    last_entry,
    read,
)


class LocalLogReader:
    def __init__(
        self,
        storage: Storage,
        *,
        bus: Bus | None = None,
        poll_seconds: float = FOLLOW_FALLBACK_POLL_SECONDS,
    ) -> None:
        self._storage = storage
        self._bus = bus or LocalBus()
        self._look_seconds = poll_seconds
        """How soon a follower that nobody wakes reads the log again."""
        self._shared = ReadCache()

    def _path(self, run_id: str) -> Path | None:
        path = self._storage.log_path(run_id)
        return path if path.exists() else None

    async def page(self, run_id: str, *, after: int = 0, before: int | None = None, limit: int) -> list[Entry] | None:
        # A log may be deleted while it is read.
        with suppress(FileMissing):
            return await self._page(self._storage.log_path(run_id), after, before, limit)
        return None

    async def _page(self, path: Path, after: int, before: int | None, limit: int) -> list[Entry]:
        if before is not None and not after:
            # The page above `before` is the last of what stands before it.
            last = last_entry(path)
            if limit == 1 and last is not None and last.seq < before:
                return [last]
            after = max(0, min(before, last.seq + 1 if last else 0) - 1 - limit)
        wanted = partial(read, path, after=after, before=before, limit=limit, on_problem=_pass_on)
        # A single event is read sooner than a thread is woken, and is asked for of every open run.
        return list(wanted()) if limit == 1 else await anyio.to_thread.run_sync(lambda: list(wanted()))

    async def has_log(self, run_id: str) -> bool:
        return self._path(run_id) is not None

    async def has_writer(self, run_id: str) -> bool:
        return is_locked(self._storage.log_path(run_id))

    async def has_active_host(self, run_id: str, host: str | None) -> bool:
        return has_active_host(self._storage.log_path(run_id), host)

    async def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        with self._cursor(run_id, after) as cursor:
            while items := await anyio.to_thread.run_sync(cursor.poll):
                entries = [item for item in items if isinstance(item, Entry)]
                if len(entries) < len(items):
                    # It ends before that place.
                    return
                yield entries

    async def copy(self, run_id: str) -> LogCopy | None:
        path = self._storage.log_path(run_id)
        with suppress(FileMissing):
            return LocalLogCopy(path, await anyio.to_thread.run_sync(complete_bytes, path))
        return None

    def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, wait_for_writer: bool = False
    ) -> AsyncGenerator[list[Entry | Reset | Delta]]:
        poll_seconds = self._look_seconds
        return follow(
            self,
            self._bus,
            run_id,
            after=after,
            deltas=deltas,
            wait_for_writer=wait_for_writer,
            poll_seconds=poll_seconds,
        )

    @contextmanager
    def cursor(self, run_id: str, after: int) -> Generator[LocalLogCursor]:
        with self._cursor(run_id, after, self._shared) as cursor:
            yield LocalLogCursor(cursor)

    def _cursor(self, run_id: str, after: int, read_cache: ReadCache | None = None) -> Cursor:
        try:
            return Cursor(self._storage.log_path(run_id), after, on_problem=_pass_on, read_cache=read_cache)
        except FileMissing as error:
            raise RunNotFound(f"there is no log of a run {run_id}") from error


class LocalLogCursor:
    """A place in a file, for whoever follows it."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.advance = cursor.advance

    @property
    def seq(self) -> int:
        return self._cursor.seq

    async def read(self) -> list[Entry | Reset]:
        return self._cursor.poll()


class LocalLogCopy:
    """The first bytes of a file, which is only ever appended to."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size

    async def chunks(self) -> AsyncIterator[bytes]:
        # A log that is deleted meanwhile has no bytes left.
        with suppress(FileNotFoundError):
            async with await anyio.open_file(self._path, "rb") as file:
                left = self.size
                while left and (piece := await file.read(min(left, READ_CHUNK_BYTES))):
                    left -= len(piece)
                    yield piece


def _pass_on(problem: Problem) -> None:
    """What is not understood is passed on as it is; whoever shows it says so."""


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
                first = next(read(self._storage.log_path(run_id), limit=1, on_problem=_ignore), None)
                if first is not None:
                    began.append((decode(first.raw, first.type).timestamp, run_id))
            except (FileMissing, StorageError, InvalidEvent):
                # No file, deleted meanwhile, or not ours to read: that is no reason to leave out the others.
                continue
        return [run_id for _, run_id in sorted(began)]

    async def updates(self, places: Mapping[str, int], *, limit: int) -> dict[str, LogUpdate]:
        return await anyio.to_thread.run_sync(self._news, places, limit)

    def _news(self, places: Mapping[str, int], limit: int) -> dict[str, LogUpdate]:
        updates: dict[str, LogUpdate] = {}
        events = 0
        for run_id, seq in places.items():
            try:
                updates[run_id] = found = self._news_of(run_id, seq)
            except FileNotFoundError:
                self._sizes.pop(run_id, None)
                updates[run_id] = LogUpdate(is_missing=True)
                continue
            except (OSError, FileMissing, StorageError):
                # Deleted meanwhile, or not to be read just now: the next look may go better.
                continue
            events += len(found.entries)
            if events >= limit:
                break
        return updates

    def _news_of(self, run_id: str, seq: int) -> LogUpdate:
        path = self._storage.log_path(run_id)
        size = path.stat().st_size
        # Asked before reading: what was written before the writer left is still read.
        has_writer = is_locked(path)
        if self._sizes.get(run_id) == (seq, size):
            return LogUpdate(has_writer=has_writer)
        with Cursor(path, seq, on_problem=_ignore) as cursor:
            items = cursor.poll()
            # Past lines that are no events, however many there are.
            while items and not any(map(_is_event, reversed(items))) and (more := cursor.poll()):
                items = more
        if items and isinstance(items[0], Reset):
            return LogUpdate(reset=items[0], has_writer=has_writer)
        if not items:
            if len(self._sizes) >= FEED_KNOWN_LOGS:
                self._sizes.clear()
            self._sizes[run_id] = (seq, size)
        return LogUpdate(entries=[item for item in items if isinstance(item, Entry)], has_writer=has_writer)

    async def opened_logs(self, after: int) -> tuple[list[str], int]:
        return self._storage.announced_since(after)

    async def forget_opened_logs(self, feed_position: int) -> int:
        return self._storage.truncate_announcements(feed_position)


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
