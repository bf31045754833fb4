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

from shopfloor.limits import DROP_WARNING_SECONDS, FOLLOWER_DELTAS, SUBSCRIBER_EVENTS
from shopfloor.log import Delta, Entry, Gap

_log = logging.getLogger("shopfloor.record")

UNKNOWN_SEQ = -1
"""The `last` of a fan-out that nobody has told how long the log is."""


class SubscriberStats(msgspec.Struct, frozen=True):
    name: str
    capacity: int
    pending: int
    delivered: int
    dropped: int


if TYPE_CHECKING:
    import asyncio


class Waiter:
    """A task that waits for news, and can be woken from any thread. Not for two tasks at once."""

    def __init__(self) -> None:
        self.is_queued = False
        """Whether it is in the list of whoever will wake it."""
        self.loop_and_thread: tuple[asyncio.AbstractEventLoop, int] | None = None
        self.future: asyncio.Future[None] | None = None
        self._until = 0.0
        self._timer: tuple[asyncio.AbstractEventLoop, float] | None = None
        """Where a timer runs, and until when. It is left running, since most waits end long before it."""

    async def wait(self, seconds: float | None, waiters: deque[Waiter], is_ready: Callable[[], bool]) -> None:
        """Return at the next `wake_all` of these sleepers, or after that many seconds."""
        import asyncio  # a subscriber that waits has loaded it; a process that only reads files need not

        loop = asyncio.get_running_loop()
        self.future, self.loop_and_thread = future, _ = loop.create_future(), (loop, threading.get_ident())
        # Listed once, however often it gives up waiting and starts again.
        if not self.is_queued:
            self.is_queued = True
            waiters.append(self)
        # Listed before this check, so that news that comes in between is not slept through.
        if is_ready():
            return
        if seconds is not None:
            self._until = loop.time() + seconds
            if self._timer is None or self._timer[0] is not loop or self._timer[1] > self._until:
                self._start_timer(loop)
        await future

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = (loop, self._until)
        loop.call_later(max(self._until - loop.time(), 0), self._check_time, self._timer)

    def _check_time(self, timer: tuple[asyncio.AbstractEventLoop, float]) -> None:
        if timer is not self._timer:
            return
        self._timer = None
        if self.future is None or self.future.done():
            return
        if timer[0].time() < self._until:
            self._start_timer(timer[0])
        else:
            self.future.set_result(None)


def wake_all(waiters: deque[Waiter]) -> None:
    """Wake them all, from any thread."""
    # One call per loop, however many sleep in it: that call costs more than all else here.
    futures: dict[tuple[asyncio.AbstractEventLoop, int], list[asyncio.Future[None]]] = {}
    with contextlib.suppress(IndexError):
        while True:
            sleeper = waiters.popleft()
            sleeper.is_queued = False
            if sleeper.loop_and_thread is not None and sleeper.future is not None:
                futures.setdefault(sleeper.loop_and_thread, []).append(sleeper.future)
    here = threading.get_ident()
    for (loop, thread), sleeping in futures.items():
        # A loop that is closed has no subscribers left to wake.
        with contextlib.suppress(RuntimeError):
            # In the loop's own thread there is nobody to rouse, which saves two system calls.
            (loop.call_soon if thread == here else loop.call_soon_threadsafe)(_finish, sleeping)


class FanOut:
    """Hands each event to every subscriber. `publish` costs a step per subscriber and never waits.

    It takes no lock either: there is one publisher at a time, a list's `append` and `del` are atomic, and a
    subscriber finds its gaps by itself, from the numbers of what it got and of what was published.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last
        """The newest event that every subscriber has been offered."""
        self.waiters: deque[Waiter] = deque()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._lock = threading.Lock()
        self._closed = False
        self._made = 0
        self._pushes: tuple[Callable[[Entry], None], ...] = ()
        self._room_until = last
        """Up to which event no buffer needs to be looked at, because each has room for them all."""

    def subscribe(
        self, name: str | None = None, capacity: int = SUBSCRIBER_EVENTS, *, deltas: bool = False
    ) -> Subscription:
        """Events from the next one on. The caller keeps the publisher out meanwhile."""
        with self._lock:
            self._made += 1
            max_deltas = FOLLOWER_DELTAS if deltas else 0
            subscription = Subscription(self, name or f"subscriber-{self._made}", capacity, max_deltas)
            subscription.ended = self._closed
            self._subscriptions = (*self._subscriptions, subscription)
            self._pushes = (*self._pushes, subscription.push)
            self._room_until = self.last
        return subscription

    def __len__(self) -> int:
        return len(self._subscriptions)

    def publish(self, entry: Entry) -> None:
        seq = entry.seq
        if seq <= self._room_until:
            for push in self._pushes:
                push(entry)
        else:
            self._offer(entry)
        self.last = seq
        if self.waiters:
            wake_all(self.waiters)

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

    def publish_delta(self, delta: Delta) -> None:
        for subscription in self._subscriptions:
            if len(subscription.deltas) < subscription.max_deltas:
                subscription.deltas.append(delta)
        if self.waiters:
            wake_all(self.waiters)

    def notify(self) -> None:
        """Have every subscriber look at the log."""
        for subscription in self._subscriptions:
            subscription.notified = True
        if self.waiters:
            wake_all(self.waiters)

    def restart(self, last: int) -> None:
        """Continue after the event `last`. What was published does not lead there, so subscribers look at the log."""
        is_known, self.last, self._room_until = self.last != UNKNOWN_SEQ, last, last
        for subscription in self._subscriptions:
            subscription.restart(last)
            subscription.notified = subscription.notified or is_known

    def stats(self) -> list[SubscriberStats]:
        return [subscription.stats() for subscription in self._subscriptions]

    def remove(self, subscription: Subscription) -> None:
        with self._lock:
            subscription.ended = True
            subscription.closed_at = self.last
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)
            self._pushes = tuple(one.push for one in self._subscriptions)
        wake_all(self.waiters)

    def close(self) -> None:
        """Ends every subscription, once it has been drained. Twice is fine."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription.ended = True
        wake_all(self.waiters)


class Subscription:
    """One subscriber's buffer, for one reader. `async for` gives entries and gaps; `drain()` what is pending."""

    def __init__(self, fanout: FanOut, name: str, capacity: int, max_deltas: int = 0) -> None:
        self.name = name
        self.capacity = capacity
        self.pending: list[Entry] = []
        self.push = self.pending.append
        self.max_deltas = max_deltas
        self.deltas: list[Delta] = []
        self.notified = False
        self.ended = False
        self.closed_at: int | None = None
        self._fanout = fanout
        self._seen = fanout.last
        self._delivered = 0
        self._dropped = 0
        self._warned_at = -DROP_WARNING_SECONDS
        self._sleeper = Waiter()

    def drop(self) -> None:
        """Counts an event that there is no room for."""
        self._dropped += 1
        now = time.monotonic()
        if now - self._warned_at >= DROP_WARNING_SECONDS:
            self._warned_at = now
            _log.warning("subscriber %s is slow: %d events dropped so far (the log has them)", self.name, self._dropped)

    def restart(self, last: int) -> None:
        del self.pending[:]
        self._seen = last

    def drain(self) -> list[Entry | Gap | Delta]:
        """What is pending, oldest first, with the gaps where something was dropped. Never waits.

        An empty list, once, after `notify`: what is pending comes with the next call.
        """
        if self.notified:
            self.notified = False
            return []
        # Read before the buffer: all up to here has been offered, so what is not in the buffer was dropped.
        offered = self._fanout.last if self.closed_at is None else self.closed_at
        entries = self.pending[:]
        del self.pending[: len(entries)]
        self._delivered += len(entries)
        seen, self._seen = self._seen, max(offered, entries[-1].seq if entries else UNKNOWN_SEQ)
        whole = self._seen - seen == len(entries)
        items = cast("list[Entry | Gap]", entries) if whole else list(_with_gaps(entries, seen, self._seen))
        if not self.deltas:
            return cast("list[Entry | Gap | Delta]", items)
        # After the events: a delta of a message whose event was taken here is taken here, too.
        deltas = self.deltas[:]
        del self.deltas[: len(deltas)]
        return list(_with_deltas(items, deltas))

    def _has_news(self) -> bool:
        return bool(self.pending or self.notified or self.deltas or self.ended or self._seen != self._fanout.last)

    async def wait(self, seconds: float | None = None) -> None:
        """Return when something was published or notified since the last `drain`, or after that many seconds."""
        if not self._has_news():
            await self._sleeper.wait(seconds, self._fanout.waiters, self._has_news)

    async def batch(self) -> list[Entry | Gap | Delta]:
        """Waits until something is pending and gives all of it; an empty list is the end."""
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


def _with_deltas(items: list[Entry | Gap], deltas: list[Delta]) -> Iterator[Entry | Gap | Delta]:
    """Each delta after the event that it follows, and before the next."""
    left = deque(deltas)
    for item in items:
        first = item.first if isinstance(item, Gap) else item.seq
        while left and left[0].after < first:
            yield left.popleft()
        yield item
    yield from left


def _finish(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
