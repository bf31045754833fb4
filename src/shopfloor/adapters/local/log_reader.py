"""Readers of logs in files: `LocalLogReader` for pages and followers, `LocalLogFeed` for the ingestion into views."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from shopfloor.adapters.limits import FEED_KNOWN_LOGS, FOLLOW_FALLBACK_POLL_SECONDS
from shopfloor.adapters.local.bus import LocalBus
from shopfloor.adapters.log_followers import follow
from shopfloor.errors import FileMissing, InvalidEvent, RunNotFound, StorageError
from shopfloor.limits import READ_CHUNK_BYTES
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
    """Implements `LogReader` with the files of a storage."""

    def __init__(
        self,
        storage: Storage,
        *,
        bus: Bus | None = None,
        poll_seconds: float = FOLLOW_FALLBACK_POLL_SECONDS,
    ) -> None:
        self._storage = storage
        self._bus = bus or LocalBus()
        self._poll_seconds = poll_seconds
        """How long a follower waits for a notification before it reads the log again."""
        self._read_cache = ReadCache()

    def _existing_path(self, run_id: str) -> Path | None:
        path = self._storage.log_path(run_id)
        return path if path.exists() else None

    async def page(self, run_id: str, *, after: int = 0, before: int | None = None, limit: int) -> list[Entry] | None:
        # A log may be deleted while it is read.
        with suppress(FileMissing):
            return await self._page(self._storage.log_path(run_id), after, before, limit)
        return None

    async def _page(self, path: Path, after: int, before: int | None, limit: int) -> list[Entry]:
        if before is not None and not after:
            # Without `after`, the page consists of the last events before `before`.
            last = last_entry(path)
            if limit == 1 and last is not None and last.seq < before:
                return [last]
            after = max(0, min(before, last.seq + 1 if last else 0) - 1 - limit)
        read_page = partial(read, path, after=after, before=before, limit=limit, on_problem=_ignore)
        # Reading a single event, which is done for every open run, takes less time than a thread hand-over.
        return list(read_page()) if limit == 1 else await anyio.to_thread.run_sync(lambda: list(read_page()))

    async def has_log(self, run_id: str) -> bool:
        return self._existing_path(run_id) is not None

    async def has_writer(self, run_id: str) -> bool:
        return is_locked(self._storage.log_path(run_id))

    async def has_active_host(self, run_id: str, host: str | None) -> bool:
        return has_active_host(self._storage.log_path(run_id), host)

    async def without_host(self, hosts: Mapping[str, str | None]) -> set[str]:
        def work() -> set[str]:
            log_path = self._storage.log_path
            return {run_id for run_id, host in hosts.items() if not has_active_host(log_path(run_id), host)}

        return await anyio.to_thread.run_sync(work) if hosts else set()

    async def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        with self._cursor(run_id, after) as cursor:
            while items := await anyio.to_thread.run_sync(cursor.poll):
                entries = [item for item in items if isinstance(item, Entry)]
                if len(entries) < len(items):
                    # The log was truncated before the cursor.
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
    def cursor(self, run_id: str, after: int) -> Generator[LocalLogCursor]:
        with self._cursor(run_id, after, self._read_cache) as cursor:
            yield LocalLogCursor(cursor)

    def _cursor(self, run_id: str, after: int, read_cache: ReadCache | None = None) -> Cursor:
        try:
            return Cursor(self._storage.log_path(run_id), after, on_problem=_ignore, read_cache=read_cache)
        except FileMissing as error:
            raise RunNotFound(f"there is no log of run {run_id}") from error


class LocalLogCursor:
    """Implements `LogCursor` with a cursor of a file."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.advance = cursor.advance

    @property
    def seq(self) -> int:
        return self._cursor.seq

    async def read(self) -> list[Entry | Reset]:
        return self._cursor.poll()


class LocalLogCopy:
    """Implements `LogCopy`: the first `size` bytes of a file, which is only ever appended to."""

    def __init__(self, path: Path, size: int) -> None:
        self._existing_path = path
        self.size = size

    async def chunks(self) -> AsyncIterator[bytes]:
        # The log may be deleted meanwhile; then the copy ends early.
        with suppress(FileNotFoundError):
            async with await anyio.open_file(self._existing_path, "rb") as file:
                left = self.size
                while left and (chunk := await file.read(min(left, READ_CHUNK_BYTES))):
                    left -= len(chunk)
                    yield chunk


class LocalLogFeed:
    """Implements `LogFeed`. Keeps no file open: there may be thousands of open logs."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sizes: dict[str, tuple[int, int]] = {}
        """The last `seq` read of a log, and the size of the file when there were no more events."""

    async def run_ids(self, known: Collection[str] = ()) -> list[str]:
        return await anyio.to_thread.run_sync(self._run_ids_oldest_first, known)

    def _run_ids_oldest_first(self, known: Collection[str]) -> list[str]:
        started: list[tuple[str, str]] = []
        for run_id in set(self._storage.run_ids()).difference(known):
            try:
                first = next(read(self._storage.log_path(run_id), limit=1, on_problem=_ignore), None)
                if first is not None:
                    started.append((decode(first.raw, first.type).timestamp, run_id))
            except (FileMissing, StorageError, InvalidEvent):
                # Not a regular file, deleted meanwhile, or not readable by us: list the other runs all the same.
                continue
        return [run_id for _, run_id in sorted(started)]

    async def updates(self, places: Mapping[str, int], *, limit: int) -> dict[str, LogUpdate]:
        return await anyio.to_thread.run_sync(self._read_updates, places, limit)

    def _read_updates(self, places: Mapping[str, int], limit: int) -> dict[str, LogUpdate]:
        updates: dict[str, LogUpdate] = {}
        events = 0
        for run_id, seq in places.items():
            try:
                updates[run_id] = found = self._read_update(run_id, seq)
            except FileNotFoundError:
                self._sizes.pop(run_id, None)
                updates[run_id] = LogUpdate(is_missing=True)
                continue
            except (OSError, FileMissing, StorageError):
                # Deleted meanwhile, or not readable now: the next poll tries again.
                continue
            events += len(found.entries)
            if events >= limit:
                break
        return updates

    def _read_update(self, run_id: str, seq: int) -> LogUpdate:
        path = self._storage.log_path(run_id)
        size = path.stat().st_size
        # Checked before reading, so that events written before the writer ended are still read.
        has_writer = is_locked(path)
        if self._sizes.get(run_id) == (seq, size):
            return LogUpdate(has_writer=has_writer)
        with Cursor(path, seq, on_problem=_ignore) as cursor:
            items = cursor.poll()
            # Skip lines that are not events, however many there are.
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
    """Discard the problem: it is reported where a log is displayed, not where it is read for other purposes."""
