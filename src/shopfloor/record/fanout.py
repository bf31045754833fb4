"""Fan-out of live events to many subscribers, none of which can block the writer.

Each subscription has a buffer. While the buffer is full, new events are dropped for that subscriber and counted.
The next drain returns a `Gap` in their place, which the subscriber can read back from the log by `seq`.
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

from shopfloor.limits import DROP_WARNING_SECONDS, FOLLOWER_DELTAS, SUBSCRIBER_EVENTS
from shopfloor.log import Delta, Entry, Gap

_log = logging.getLogger("shopfloor.record")

UNKNOWN_SEQ = -1
"""The `last_seq` of a fan-out that does not know the length of the log yet."""


class SubscriberStats(msgspec.Struct, frozen=True):
    """Counters of one subscription."""

    name: str
    capacity: int
    pending: int
    delivered: int
    dropped: int


if TYPE_CHECKING:
    import asyncio


class Waiter:
    """The wait of one task, which any thread can wake. Not for two tasks at once."""

    def __init__(self) -> None:
        self.is_queued = False
        """Whether this waiter is in the queue that `wake_all` empties."""
        self.loop_and_thread: tuple[asyncio.AbstractEventLoop, int] | None = None
        self.future: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: tuple[asyncio.AbstractEventLoop, float] | None = None
        """The loop and the deadline of the running timer. The timer is not cancelled: most waits end long before it."""

    async def wait(self, seconds: float | None, waiters: deque[Waiter], is_ready: Callable[[], bool]) -> None:
        """Return at the next `wake_all` of these waiters, after `seconds`, or immediately if `is_ready()`."""
        import asyncio  # imported here: a process that only reads files does not load asyncio

        loop = asyncio.get_running_loop()
        self.future, self.loop_and_thread = future, _ = loop.create_future(), (loop, threading.get_ident())
        # Queued once, however often the wait times out and starts again.
        if not self.is_queued:
            self.is_queued = True
            waiters.append(self)
        # Queue before this check, so that a concurrent wake-up is not lost.
        if is_ready():
            return
        if seconds is not None:
            self._deadline = loop.time() + seconds
            if self._timer is None or self._timer[0] is not loop or self._timer[1] > self._deadline:
                self._start_timer(loop)
        await future

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = (loop, self._deadline)
        loop.call_later(max(self._deadline - loop.time(), 0), self._check_time, self._timer)

    def _check_time(self, timer: tuple[asyncio.AbstractEventLoop, float]) -> None:
        if timer is not self._timer:
            return
        self._timer = None
        if self.future is None or self.future.done():
            return
        if timer[0].time() < self._deadline:
            self._start_timer(timer[0])
        else:
            self.future.set_result(None)


def wake_all(waiters: deque[Waiter]) -> None:
    """Wake all waiters and empty the queue. Callable from any thread."""
    # One call per loop for all of its waiters: that call costs more than everything else here.
    futures: dict[tuple[asyncio.AbstractEventLoop, int], list[asyncio.Future[None]]] = {}
    with contextlib.suppress(IndexError):
        while True:
            waiter = waiters.popleft()
            waiter.is_queued = False
            if waiter.loop_and_thread is not None and waiter.future is not None:
                futures.setdefault(waiter.loop_and_thread, []).append(waiter.future)
    this_thread = threading.get_ident()
    for (loop, thread), loop_futures in futures.items():
        # A closed loop raises RuntimeError; it has no waiters left to wake.
        with contextlib.suppress(RuntimeError):
            # From the loop's own thread `call_soon` suffices, which saves two system calls.
            (loop.call_soon if thread == this_thread else loop.call_soon_threadsafe)(_finish, loop_futures)


class FanOut:
    """Delivery of each event to every subscription. `publish` takes constant time per subscription and never waits.

    `publish` takes no lock: there is one publisher at a time, `append` and `del` of a list are atomic, and a
    subscription finds its gaps by comparing the `seq` of its entries with `last_seq`.
    """

    def __init__(self, last_seq: int = 0) -> None:
        self.last_seq = last_seq
        """The `seq` of the newest event that was offered to every subscription."""
        self.waiters: deque[Waiter] = deque()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._lock = threading.Lock()
        self._closed = False
        self._subscribed_count = 0
        self._pushes: tuple[Callable[[Entry], None], ...] = ()
        self._room_until = last_seq
        """The `seq` up to which every buffer is known to have room, so that none needs to be checked."""

    def subscribe(
        self, name: str | None = None, capacity: int = SUBSCRIBER_EVENTS, *, deltas: bool = False
    ) -> Subscription:
        """Subscribe from the next event on. The caller must prevent a concurrent `publish`."""
        with self._lock:
            self._subscribed_count += 1
            max_deltas = FOLLOWER_DELTAS if deltas else 0
            subscription = Subscription(self, name or f"subscriber-{self._subscribed_count}", capacity, max_deltas)
            subscription.ended = self._closed
            self._subscriptions = (*self._subscriptions, subscription)
            self._pushes = (*self._pushes, subscription.push)
            self._room_until = self.last_seq
        return subscription

    def __len__(self) -> int:
        return len(self._subscriptions)

    def publish(self, entry: Entry) -> None:
        """Add the entry to every buffer that has room, and wake the subscribers."""
        seq = entry.seq
        if seq <= self._room_until:
            for push in self._pushes:
                push(entry)
        else:
            self._offer(entry)
        self.last_seq = seq
        if self.waiters:
            wake_all(self.waiters)

    def _offer(self, entry: Entry) -> None:
        """Check each buffer, and compute for how many events no check is needed: readers only make more room."""
        room = sys.maxsize
        for subscription in self._subscriptions:
            remaining = subscription.capacity - len(subscription.pending)
            if remaining > 0:
                subscription.push(entry)
            else:
                subscription.drop()
            room = min(room, max(remaining - 1, 0))
        self._room_until = entry.seq + room

    def publish_delta(self, delta: Delta) -> None:
        """Add the delta to every buffer that has room; drop it silently for the others."""
        for subscription in self._subscriptions:
            if len(subscription.deltas) < subscription.max_deltas:
                subscription.deltas.append(delta)
        if self.waiters:
            wake_all(self.waiters)

    def notify(self) -> None:
        """Make every subscriber read the log."""
        for subscription in self._subscriptions:
            subscription.notified = True
        if self.waiters:
            wake_all(self.waiters)

    def restart(self, last_seq: int) -> None:
        """Continue after the event `last_seq`.

        The events published so far do not lead up to `last_seq`, so subscribers read the log.
        """
        is_known, self.last_seq, self._room_until = self.last_seq != UNKNOWN_SEQ, last_seq, last_seq
        for subscription in self._subscriptions:
            subscription.restart(last_seq)
            subscription.notified = subscription.notified or is_known

    def stats(self) -> list[SubscriberStats]:
        return [subscription.stats() for subscription in self._subscriptions]

    def remove(self, subscription: Subscription) -> None:
        """End one subscription. Calling twice is fine."""
        with self._lock:
            subscription.ended = True
            subscription.closed_at_seq = self.last_seq
            self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)
            self._pushes = tuple(other.push for other in self._subscriptions)
        wake_all(self.waiters)

    def close(self) -> None:
        """End every subscription as soon as it is drained. Calling twice is fine."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription.ended = True
        wake_all(self.waiters)


class Subscription:
    """The buffer of one subscriber, for one reader: iterate with `async for`, or call `drain()`."""

    def __init__(self, fanout: FanOut, name: str, capacity: int, max_deltas: int = 0) -> None:
        self.name = name
        self.capacity = capacity
        self.pending: list[Entry] = []
        self.push = self.pending.append
        self.max_deltas = max_deltas
        self.deltas: list[Delta] = []
        self.notified = False
        self.ended = False
        self.closed_at_seq: int | None = None
        self._fanout = fanout
        self._seen = fanout.last_seq
        self._delivered = 0
        self._dropped = 0
        self._warned_at = -DROP_WARNING_SECONDS
        self._waiter = Waiter()

    def drop(self) -> None:
        """Count an event that does not fit into the buffer, and log a warning from time to time."""
        self._dropped += 1
        now = time.monotonic()
        if now - self._warned_at >= DROP_WARNING_SECONDS:
            self._warned_at = now
            _log.warning("subscriber %s is slow: %d events dropped so far (the log has them)", self.name, self._dropped)

    def restart(self, last_seq: int) -> None:
        """Discard the buffer and continue after the event `last_seq`."""
        del self.pending[:]
        self._seen = last_seq

    def drain(self) -> list[Entry | Gap | Delta]:
        """Take and return all pending items, oldest first, with a `Gap` where events were dropped. Never waits.

        Returns an empty list, once, after `notify`; the next call returns the pending items.
        """
        if self.notified:
            self.notified = False
            return []
        # Read before the buffer: every event up to `offered` was offered, so one that is not in the buffer was dropped.
        offered = self._fanout.last_seq if self.closed_at_seq is None else self.closed_at_seq
        entries = self.pending[:]
        del self.pending[: len(entries)]
        self._delivered += len(entries)
        seen, self._seen = self._seen, max(offered, entries[-1].seq if entries else UNKNOWN_SEQ)
        has_no_gaps = self._seen - seen == len(entries)
        items = cast("list[Entry | Gap]", entries) if has_no_gaps else list(_with_gaps(entries, seen, self._seen))
        if not self.deltas:
            return cast("list[Entry | Gap | Delta]", items)
        # Taken after the events, so that a delta comes no later than the event of its own message.
        deltas = self.deltas[:]
        del self.deltas[: len(deltas)]
        return list(_with_deltas(items, deltas))

    def _is_ready(self) -> bool:
        return bool(self.pending or self.notified or self.deltas or self.ended or self._seen != self._fanout.last_seq)

    async def wait(self, seconds: float | None = None) -> None:
        """Return when something was published or notified since the last `drain`, or after `seconds`."""
        if not self._is_ready():
            await self._waiter.wait(seconds, self._fanout.waiters, self._is_ready)

    async def batch(self) -> list[Entry | Gap | Delta]:
        """Wait until items are pending and return all of them. An empty list means the end, or follows `notify`."""
        while True:
            ended = self.ended
            if (items := self.drain()) or ended:
                return items
            await self.wait()

    async def __aiter__(self) -> AsyncIterator[Entry | Gap | Delta]:
        while items := await self.batch():
            for item in items:
                yield item

    def stats(self) -> SubscriberStats:
        return SubscriberStats(self.name, self.capacity, len(self.pending), self._delivered, self._dropped)

    def close(self) -> None:
        """Receive no more events. Calling twice is fine."""
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


def _with_deltas(items: list[Entry | Gap], deltas: list[Delta]) -> Iterator[Entry | Gap | Delta]:
    """Merge the deltas into the items: each after the event that it follows, and before the next event."""
    remaining = deque(deltas)
    for item in items:
        first = item.first if isinstance(item, Gap) else item.seq
        while remaining and remaining[0].after < first:
            yield remaining.popleft()
        yield item
    yield from remaining


def _finish(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
