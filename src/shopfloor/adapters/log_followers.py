"""Following a log: what it holds, and then what is published of it, for every adapter that has logs and a bus."""

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
    """A place in one log."""

    @property
    def seq(self) -> int:
        """Of the event before it."""
        ...

    async def read(self) -> list[Entry | Reset]:
        """Give the next events of the log, about a chunk of them, and move behind them; none for now: empty.

        `[Reset]` where the log ends before this place, which is at that end then.
        """
        ...

    def advance(self, entry: Entry) -> None:
        """Move behind an event that was published: the one with the next `seq`."""
        ...


class LogSource(Protocol):
    """What `follow` asks of an adapter's logs; all but `cursor` is of the port `LogReader`."""

    async def has_log(self, run_id: str) -> bool: ...

    async def has_writer(self, run_id: str) -> bool: ...

    async def page(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int
    ) -> list[Entry] | None: ...

    def cursor(self, run_id: str, after: int) -> AbstractContextManager[LogCursor]:
        """The place after the event `after`."""
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
    """`LogReader.follow`. Every `poll_seconds` without news the log is read, in case nobody has told of an event."""
    # Subscribed before reading: what comes in between is published.
    with bus.subscribe(run_id, deltas=deltas) as live:
        async for nothing in _until_there(
            logs, live, run_id, wait_for_writer=wait_for_writer, poll_seconds=poll_seconds
        ):
            yield nothing
        if await _has_ended_by(logs, run_id, after):
            return
        with logs.cursor(run_id, after) as cursor:
            published: deque[Entry | Gap | Delta] = deque()
            must_read = True
            while True:
                if batch := _take(cursor, published):
                    yield batch
                    if _ends(batch):
                        return
                if not must_read and not published:
                    await live.wait(poll_seconds)
                    published.extend(live.drain())
                    must_read = not published
                    continue
                # Asked before reading: what was written before the writer left is still given.
                is_over = must_read and await _is_over(logs, run_id, wait_for_writer=wait_for_writer)
                must_read, has_read = False, False
                while entries := await _read(cursor, live, published):
                    has_read = True
                    yield entries
                    if _ends(entries):
                        return
                if is_over:
                    return
                if not has_read:
                    yield []
                    # What was published and is not in the log any more is nobody's.
                    published.clear()


async def _read(
    cursor: LogCursor, live: Subscription, published: deque[Entry | Gap | Delta]
) -> list[Entry | Reset | Delta]:
    """Read on in the log."""
    # A long log is read in one go, but not at everybody else's cost.
    await anyio.lowlevel.checkpoint()
    entries = await cursor.read()
    if entries and isinstance(entries[0], Reset):
        # What was published of the part that is lost goes with it; what came since is in the log. Twice: after a
        # notification the first is empty.
        published.clear()
        live.drain()
        live.drain()
    return cast("list[Entry | Reset | Delta]", entries)


async def _until_there(
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
    return bool(last) and last[0].seq <= after and _ends(last)


def _take(cursor: LogCursor, published: deque[Entry | Gap | Delta]) -> list[Entry | Reset | Delta]:
    """Take what continues at this place, and drop what is behind it. What is left first lies ahead, in the log.

    A delta continues where no event came after it: its message may be among those that did.
    """
    taken: list[Entry | Reset | Delta] = []
    while published:
        item = published[0]
        if isinstance(item, Entry):
            if item.seq > cursor.seq + 1:
                break
            if item.seq == cursor.seq + 1:
                cursor.advance(item)
                taken.append(item)
        elif isinstance(item, Delta):
            if item.after > cursor.seq:
                break
            if item.after == cursor.seq:
                taken.append(item)
        elif item.last > cursor.seq:
            break
        published.popleft()
    return taken


def _ends(batch: Sequence[Entry | Reset | Delta]) -> bool:
    last = batch[-1]
    return isinstance(last, Entry) and last.type == RunCompleted.event_type
