"""Logs in files, as anybody may read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from shopfloor.adapters.local.live import Ear, Live
from shopfloor.errors import InvalidEvent, RunNotFound
from shopfloor.limits import FOLLOW_FASTEST_SECONDS, FOLLOW_SLOWEST_SECONDS, READ_CHUNK_BYTES
from shopfloor.log import AssistantMessage, Delta, Entry, Reset, RunCompleted, covers_pieces, decode
from shopfloor.ports import LogCopy
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
        live: Live | None = None,
        fastest_seconds: float = FOLLOW_FASTEST_SECONDS,
        slowest_seconds: float = FOLLOW_SLOWEST_SECONDS,
    ) -> None:
        self._storage = storage
        self._live = live or Live()
        self._looks = fastest_seconds, slowest_seconds
        """How soon a follower whom nobody wakes looks again: at first, and at the latest."""
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
        path = self._path(run_id)
        if path is None:
            raise RunNotFound(f"there is no log of a run {run_id}")
        with Cursor(path, after, report=_pass_on) as cursor:
            while items := await anyio.to_thread.run_sync(cursor.poll):
                entries = [item for item in items if isinstance(item, Entry)]
                if len(entries) < len(items):
                    # It ends before that place.
                    return
                yield entries

    async def copy(self, run_id: str) -> LogCopy | None:
        path = self._path(run_id)
        if path is None:
            return None
        return LocalCopy(path, await anyio.to_thread.run_sync(whole_bytes, path))

    async def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, patient: bool = False
    ) -> AsyncIterator[list[Entry | Reset | Delta]]:
        # Listening before looking: what comes in between is heard.
        with self._live.listen(run_id, deltas=deltas) as ear:
            pace = _Pace(*self._looks)
            while (path := self._path(run_id)) is None:
                if not patient:
                    raise RunNotFound(f"there is no run {run_id}")
                yield []
                await pace.rest(ear)
                ear.look()
            if _has_ended_by(path, after):
                return
            with Cursor(path, after, report=_pass_on, shared=self._shared) as cursor:
                while True:
                    ear.look()
                    # Asked before reading: what was written before the writer went away is still given.
                    over = not path.exists() if patient else not is_locked(path)
                    entries = cursor.poll()
                    # After reading: a piece of a message that was read is here already, and can be left out.
                    pieces = _pieces(ear, cursor.seq, entries)
                    yield cast("list[Entry | Reset | Delta]", entries)
                    last = entries[-1] if entries else None
                    if isinstance(last, Entry) and last.type == RunCompleted.event_type:
                        return
                    if pieces:
                        yield pieces
                    if entries or pieces:
                        # A long log is read in one go, but not at everybody else's cost.
                        pace = _Pace(*self._looks)
                        await anyio.lowlevel.checkpoint()
                    elif over:
                        return
                    else:
                        await pace.rest(ear)


class LocalCopy:
    """The first bytes of a file, which is only ever appended to."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size

    async def pieces(self) -> AsyncIterator[bytes]:
        async with await anyio.open_file(self._path, "rb") as file:
            left = self.size
            while left and (piece := await file.read(min(left, READ_CHUNK_BYTES))):
                left -= len(piece)
                yield piece


class _Pace:
    """How soon to look again: others may write the log, and they do not wake us."""

    def __init__(self, fastest: float, slowest: float) -> None:
        self._pause = fastest
        self._slowest = slowest

    async def rest(self, ear: Ear) -> None:
        await ear.wait(self._pause)
        self._pause = min(self._pause * 1.5, self._slowest)


def _pieces(ear: Ear, given: int, entries: Sequence[Entry | Reset]) -> list[Entry | Reset | Delta]:
    """What of messages that are being made can be given once these entries are."""
    if not ear.has_deltas():
        return []
    whole: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, Reset):
            ear.drop()
        elif entry.type == AssistantMessage.event_type:
            with suppress(InvalidEvent):
                message = decode(entry.raw).payload
                if isinstance(message, AssistantMessage) and covers_pieces(message):
                    whole[message.message_id or ""] = entry.seq
    return [*ear.take(given, whole)]


def _has_ended_by(path: Path, after: int) -> bool:
    last = last_entry(path)
    return last is not None and last.type == RunCompleted.event_type and last.seq <= after


def _pass_on(problem: Problem) -> None:
    """What is not understood is passed on as it is; whoever shows it says so."""
