"""The follower of a log, for every adapter with logs and a bus: reads the log first, then the published entries."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast

import anyio.lowlevel

from shopfloor.errors import RunNotFound
from shopfloor.log import Delta, Entry, Gap, Reset, RunCompleted
from shopfloor.ports import Bus, Subscription


class LogCursor(Protocol):
    """A position in one log."""

    @property
    def seq(self) -> int:
        """The `seq` of the event before the position."""
        ...

    async def read(self) -> list[Entry | Reset]:
        """Return the next events, about a chunk of them, and move behind them. Empty if there are no new events.

        Returns `[Reset]` if the log was truncated before the position, which is then at the end of the log.
        """
        ...

    def advance(self, entry: Entry) -> None:
        """Move behind the next event, which was published."""
        ...


class LogSource(Protocol):
    """The logs of an adapter, for `follow`. All methods but `cursor` belong to the port `LogReader`."""

    async def has_log(self, run_id: str) -> bool: ...

    async def has_writer(self, run_id: str) -> bool: ...

    async def page(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int
    ) -> list[Entry] | None: ...

    def cursor(self, run_id: str, after: int) -> AbstractContextManager[LogCursor]:
        """Return a cursor behind the event `after`."""
        ...


async def follow(
    logs: LogSource,
    bus: Bus,
    run_id: str,
    *,
    after: int = 0,
    deltas: bool = False,
    wait_for_writer: bool = False,
    poll_seconds: float,
) -> AsyncGenerator[list[Entry | Reset | Delta]]:
    """Implement `LogReader.follow`. Reads the log after `poll_seconds` of silence, in case a notification is lost."""
    # Subscribe before reading, so that no event between the two is missed.
    with bus.subscribe(run_id, deltas=deltas) as live:
        async for empty in _wait_for_log(
            logs, live, run_id, wait_for_writer=wait_for_writer, poll_seconds=poll_seconds
        ):
            yield empty
        if await _has_ended_by(logs, run_id, after):
            return
        with logs.cursor(run_id, after) as cursor:
            published: deque[Entry | Gap | Delta] = deque()
            must_read = True
            while True:
                if batch := _take_next(cursor, published):
                    yield batch
                    if _has_outcome(batch):
                        return
                if not must_read and not published:
                    await live.wait(poll_seconds)
                    published.extend(live.drain())
                    must_read = not published
                    continue
                # Checked before reading, so that events written before the writer ended are still returned.
                is_over = must_read and await _is_over(logs, run_id, wait_for_writer=wait_for_writer)
                must_read, has_read = False, False
                while entries := await _read(cursor, live, published):
                    has_read = True
                    yield entries
                    if _has_outcome(entries):
                        return
                if is_over:
                    return
                if not has_read:
                    yield []
                    # Entries that were published but are no longer in the log are not valid.
                    published.clear()


async def _read(
    cursor: LogCursor, live: Subscription, published: deque[Entry | Gap | Delta]
) -> list[Entry | Reset | Delta]:
    """Read the next events of the log."""
    # Let other tasks run between the chunks of a long log.
    await anyio.lowlevel.checkpoint()
    entries = await cursor.read()
    if entries and isinstance(entries[0], Reset):
        # Discard the published entries of the part that was truncated; later ones are in the log. Drain twice: after
        # a notification the first call returns an empty list.
        published.clear()
        live.drain()
        live.drain()
    return cast("list[Entry | Reset | Delta]", entries)


async def _wait_for_log(
    logs: LogSource, live: Subscription, run_id: str, *, wait_for_writer: bool, poll_seconds: float
) -> AsyncGenerator[list[Entry | Reset | Delta]]:
    while not await logs.has_log(run_id):
        if not wait_for_writer:
            raise RunNotFound(f"there is no run {run_id}")
        yield []
        await live.wait(poll_seconds)
        live.drain()


async def _is_over(logs: LogSource, run_id: str, *, wait_for_writer: bool) -> bool:
    return not (await logs.has_log(run_id) if wait_for_writer else await logs.has_writer(run_id))


async def _has_ended_by(logs: LogSource, run_id: str, after: int) -> bool:
    last = await logs.page(run_id, before=sys.maxsize, limit=1)
    return bool(last) and last[0].seq <= after and _has_outcome(last)


def _take_next(cursor: LogCursor, published: deque[Entry | Gap | Delta]) -> list[Entry | Reset | Delta]:
    """Take the published items that continue at the cursor, and drop those behind it.

    The first remaining item is ahead of the cursor: the log has the events before it. A delta continues at the cursor
    only if no event came after it, since that event may be the complete message.
    """
    batch: list[Entry | Reset | Delta] = []
    while published:
        item = published[0]
        if isinstance(item, Entry):
            if item.seq > cursor.seq + 1:
                break
            if item.seq == cursor.seq + 1:
                cursor.advance(item)
                batch.append(item)
        elif isinstance(item, Delta):
            if item.after > cursor.seq:
                break
            if item.after == cursor.seq:
                batch.append(item)
        elif item.last > cursor.seq:
            break
        published.popleft()
    return batch


def _has_outcome(batch: Sequence[Entry | Reset | Delta]) -> bool:
    last = batch[-1]
    return isinstance(last, Entry) and last.type == RunCompleted.event_type
