"""Logs in files, as anybody may read them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from shopfloor.errors import RunNotFound
from shopfloor.limits import FOLLOW_FASTEST_SECONDS, FOLLOW_SLOWEST_SECONDS
from shopfloor.log import Entry, RunCompleted
from shopfloor.record import Cursor, Problem, Reset, SharedReads, Storage, is_locked, last_entry, read


class LocalLogReader:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._shared = SharedReads()

    def _path(self, run_id: str) -> Path | None:
        path = self._storage.log_path(run_id)
        return path if path.exists() else None

    async def page(self, run_id: str, *, after: int = 0, before: int | None = None, limit: int) -> list[Entry] | None:
        path = self._path(run_id)
        if path is None:
            return None
        if before is not None and not after:
            # The page above `before` is the last of what stands before it.
            last = last_entry(path)
            after = max(0, min(before, last.seq + 1 if last else 0) - 1 - limit)
        return await anyio.to_thread.run_sync(
            lambda: list(read(path, after=after, before=before, limit=limit, report=_pass_on))
        )

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry | Reset]]:
        path = self._path(run_id)
        if path is None:
            raise RunNotFound(f"there is no run {run_id}")
        if _has_ended_by(path, after):
            return
        pause = FOLLOW_FASTEST_SECONDS
        with Cursor(path, after, report=_pass_on, shared=self._shared) as cursor:
            while True:
                # Asked before reading: what was written before the writer went away is still given.
                over = not is_locked(path)
                entries = cursor.poll()
                yield entries
                last = entries[-1] if entries else None
                if isinstance(last, Entry) and last.type == RunCompleted.event_type:
                    return
                if entries:
                    # A long log is read in one go, but not at everybody else's cost.
                    pause = FOLLOW_FASTEST_SECONDS
                    await anyio.lowlevel.checkpoint()
                elif over:
                    return
                else:
                    await anyio.sleep(pause)
                    pause = min(pause * 1.5, FOLLOW_SLOWEST_SECONDS)


def _has_ended_by(path: Path, after: int) -> bool:
    last = last_entry(path)
    return last is not None and last.type == RunCompleted.event_type and last.seq <= after


def _pass_on(problem: Problem) -> None:
    """What is not understood is passed on as it is; whoever shows it says so."""
