"""Live events to many readers, none of whom can hold up the writer.

A subscriber has a buffer of its own. When it is full, the newest events are dropped for that subscriber and counted;
once it drains, it is told the gap, which it can read back from the log by `seq`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, cast

import msgspec

from shopfloor.limits import DROP_WARNING_SECONDS, SUBSCRIBER_EVENTS
from shopfloor.log import Entry, Gap

_log = logging.getLogger("shopfloor.record")


class SubscriberStats(msgspec.Struct, frozen=True):
    name: str
    capacity: int
    pending: int
    delivered: int
    dropped: int


if TYPE_CHECKING:
    import asyncio

    _Sleeper = tuple[asyncio.AbstractEventLoop, int, asyncio.Future[None]]


class FanOut:
    """Hands each event to every subscriber. `publish` costs a step per subscriber and never waits.

    It takes no lock either: there is one publisher at a time, a list's `append` and `del` are atomic, and a
    subscriber finds its gaps by itself, from the numbers of what it got and of what was published.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last
        """The newest event that every subscriber has been offered."""
        self._subscriptions: tuple[Subscription, ...] = ()
        self._sleepers: deque[_Sleeper] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._made = 0
        self._pushes: tuple[Callable[[Entry], None], ...] = ()
        self._room_until = last
        """Up to which event no buffer needs to be looked at, because each has room for them all."""

    def subscribe(self, name: str | None = None, capacity: int = SUBSCRIBER_EVENTS) -> Subscription:
        """Events from the next one on. The caller keeps the publisher out meanwhile."""
        with self._lock:
            self._made += 1
            subscription = Subscription(self, name or f"subscriber-{self._made}", capacity)
            subscription.ended = self._closed
            self._subscriptions = (*self._subscriptions, subscription)
            self._pushes = (*self._pushes, subscription.push)
            self._room_until = self.last
        return subscription

    def publish(self, entry: Entry) -> None:
        seq = entry.seq
        if seq <= self._room_until:
            for push in self._pushes:
                push(entry)
        else:
            self._offer(entry)
        self.last = seq
        if self._sleepers:
            self._wake()

    def _offer(self, entry: Entry) -> None:
        """Looks at each buffer, and finds for how many events nobody needs to look again: readers only make room."""
        room = sys.maxsize
        for subscription in self._subscriptions:
            left = subscription.capacity - len(subscription.pending)
            if left > 0:
                subscription.push(entry)
            else:
                subscription.drop()
            room = min(room, max(left - 1, 0))
        self._room_until = entry.seq + room

    def sleep(self) -> asyncio.Future[None]:
        """A future that is done at the next event or at the end."""
        import asyncio  # whoever sleeps has loaded it; whoever only reads files need not

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._sleepers.append((loop, threading.get_ident(), future))
        return future

    def _wake(self) -> None:
        # One call per loop, however many sleep in it: that call costs more than all else here.
        futures: dict[tuple[asyncio.AbstractEventLoop, int], list[asyncio.Future[None]]] = {}
        with contextlib.suppress(IndexError):
            while True:
                loop, thread, future = self._sleepers.popleft()
                futures.setdefault((loop, thread), []).append(future)
        here = threading.get_ident()
        for (loop, thread), sleeping in futures.items():
            # A loop that is closed has no subscribers left to wake.
            with contextlib.suppress(RuntimeError):
                # In the loop's own thread there is nobody to rouse, which saves two system calls.
                (loop.call_soon if thread == here else loop.call_soon_threadsafe)(_finish, sleeping)

    def stats(self) -> list[SubscriberStats]:
        return [subscription.stats() for subscription in self._subscriptions]

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            subscription.ended = True
            subscription.closed_at = self.last
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)
            self._pushes = tuple(one.push for one in self._subscriptions)
        self._wake()

    def close(self) -> None:
        """Ends every subscription, once it has been drained. Twice is fine."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription.ended = True
        self._wake()


class Subscription:
    """One subscriber's buffer, for one reader. `async for` gives entries and gaps; `drain()` what is pending."""

    def __init__(self, fanout: FanOut, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.pending: list[Entry] = []
        self.push = self.pending.append
        self.ended = False
        self.closed_at: int | None = None
        self._fanout = fanout
        self._seen = fanout.last
        self._delivered = 0
        self._dropped = 0
        self._warned_at = -DROP_WARNING_SECONDS

    def drop(self) -> None:
        """Counts an event that there is no room for."""
        self._dropped += 1
        now = time.monotonic()
        if now - self._warned_at >= DROP_WARNING_SECONDS:
            self._warned_at = now
            _log.warning("subscriber %s is slow: %d events dropped so far (the log has them)", self.name, self._dropped)

    def drain(self) -> list[Entry | Gap]:
        """What is pending, oldest first, with the gaps where something was dropped. Never waits."""
        # Read before the buffer: all up to here has been offered, so what is not in the buffer was dropped.
        offered = self._fanout.last if self.closed_at is None else self.closed_at
        entries = self.pending[:]
        del self.pending[: len(entries)]
        self._delivered += len(entries)
        seen, self._seen = self._seen, max(offered, entries[-1].seq if entries else 0)
        if self._seen - seen == len(entries):
            return cast("list[Entry | Gap]", entries)
        return list(_with_gaps(entries, seen, self._seen))

    async def batch(self) -> list[Entry | Gap]:
        """Waits until something is pending and gives all of it; an empty list is the end."""
        while True:
            ended = self.ended
            if (items := self.drain()) or ended:
                return items
            # To bed before the second look, so that nothing that comes in between is slept through.
            wake = self._fanout.sleep()
            if not self.pending and not self.ended:
                await wake

    async def __aiter__(self) -> AsyncIterator[Entry | Gap]:
        while items := await self.batch():
            for item in items:
                yield item

    def stats(self) -> SubscriberStats:
        return SubscriberStats(self.name, self.capacity, len(self.pending), self._delivered, self._dropped)

    def close(self) -> None:
        """No more events. Twice is fine."""
        self._fanout.remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _with_gaps(entries: list[Entry], seen: int, until: int) -> Iterator[Entry | Gap]:
    for entry in entries:
        if entry.seq > seen + 1:
            yield Gap(seen + 1, entry.seq - 1)
        yield entry
        seen = entry.seq
    if seen < until:
        yield Gap(seen + 1, until)


def _finish(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
