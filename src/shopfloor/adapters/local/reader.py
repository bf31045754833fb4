"""Logs in files, as anybody may read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from shopfloor.adapters.following import follow
from shopfloor.adapters.local.bus import LocalBus
from shopfloor.errors import FileMissing, RunNotFound
from shopfloor.limits import FOLLOW_LOOK_SECONDS, READ_CHUNK_BYTES
from shopfloor.log import Delta, Entry, Reset
from shopfloor.ports import Bus, LogCopy
from shopfloor.record import (
    Cursor,
    Problem,
    SharedReads,
    Storage,
    is_attended,
    is_locked,
    last_entry,
    read,
    whole_bytes,
)


class LocalLogReader:
    def __init__(
        self,
        storage: Storage,
        *,
        bus: Bus | None = None,
        look_seconds: float = FOLLOW_LOOK_SECONDS,
    ) -> None:
        self._storage = storage
        self._bus = bus or LocalBus()
        self._look_seconds = look_seconds
        """How soon a follower that nobody wakes reads the log again."""
        self._shared = SharedReads()

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
        wanted = partial(read, path, after=after, before=before, limit=limit, report=_pass_on)
        # A single event is read sooner than a thread is woken, and is asked for of every open run.
        return list(wanted()) if limit == 1 else await anyio.to_thread.run_sync(lambda: list(wanted()))

    async def has_log(self, run_id: str) -> bool:
        return self._path(run_id) is not None

    async def is_written(self, run_id: str) -> bool:
        return is_locked(self._storage.log_path(run_id))

    async def is_attended(self, run_id: str, host: str | None) -> bool:
        return is_attended(self._storage.log_path(run_id), host)

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
            return LocalCopy(path, await anyio.to_thread.run_sync(whole_bytes, path))
        return None

    def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, patient: bool = False
    ) -> AsyncGenerator[list[Entry | Reset | Delta]]:
        look_seconds = self._look_seconds
        return follow(self, self._bus, run_id, after=after, deltas=deltas, patient=patient, look_seconds=look_seconds)

    @contextmanager
    def place(self, run_id: str, after: int) -> Generator[LocalPlace]:
        with self._cursor(run_id, after, self._shared) as cursor:
            yield LocalPlace(cursor)

    def _cursor(self, run_id: str, after: int, shared: SharedReads | None = None) -> Cursor:
        try:
            return Cursor(self._storage.log_path(run_id), after, report=_pass_on, shared=shared)
        except FileMissing as error:
            raise RunNotFound(f"there is no log of a run {run_id}") from error


class LocalPlace:
    """A place in a file, for whoever follows it."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.advance = cursor.advance

    @property
    def seq(self) -> int:
        return self._cursor.seq

    async def read(self) -> list[Entry | Reset]:
        return self._cursor.poll()


class LocalCopy:
    """The first bytes of a file, which is only ever appended to."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size

    async def pieces(self) -> AsyncIterator[bytes]:
        # A log that is deleted meanwhile has no bytes left.
        with suppress(FileNotFoundError):
            async with await anyio.open_file(self._path, "rb") as file:
                left = self.size
                while left and (piece := await file.read(min(left, READ_CHUNK_BYTES))):
                    left -= len(piece)
                    yield piece


def _pass_on(problem: Problem) -> None:
    """What is not understood is passed on as it is; whoever shows it says so."""
