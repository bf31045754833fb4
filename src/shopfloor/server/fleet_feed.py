"""Delivery of fleet events to subscribers: stored events first, then live ones, without loss or repetition.

Each new event is read and filtered once for all subscribers. A subscriber that is behind, because it resumes or reads
slowly, reads the stored events itself until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import anyio
import msgspec

from shopfloor.engine import tolerate_temporary_errors
from shopfloor.errors import TooManySubscriptions
from shopfloor.log import now
from shopfloor.ports import Bus, FleetEventPage, FleetEvents, FleetFilter, StoredFleetEvent
from shopfloor.server.limits import (
    FLEET_ANCESTORS,
    FLEET_PAGE_EVENTS,
    FLEET_POLL_SECONDS,
    FLEET_SUBSCRIBER_EVENTS,
    FLEET_SUBSCRIPTIONS_MAX,
)
from shopfloor.views import FleetEvent, encode_fleet_event

T = TypeVar("T")
GAP: Final = "gap"
"""The type of the marker for events that are no longer stored. It is no fleet event."""
_ALL: Final = FleetFilter()
_encode = msgspec.json.Encoder().encode


class FeedItem:
    """An event for subscribers, or a gap. Each of its encodings is made once for all subscribers."""

    __slots__ = ("_encodings", "body", "cursor", "is_gap", "is_stored")

    def __init__(self, cursor: int, body: bytes, *, is_stored: bool = True, is_gap: bool = False) -> None:
        self.cursor = cursor
        """Where a subscriber resumes that has received this item."""
        self.body = body
        self.is_stored = is_stored
        self.is_gap = is_gap
        self._encodings: dict[object, Any] = {}

    def encoded(self, key: object, encode: Callable[[FeedItem], T]) -> T:
        """Return what `encode` returns for this item, from the first call with this key."""
        if (known := self._encodings.get(key)) is None:
            known = self._encodings[key] = encode(self)
        return known


def _gap_item(after: int, page: FleetEventPage) -> FeedItem:
    body = _encode({"type": GAP, "payload": {"lastEventId": str(after)}, "timestamp": now()})
    return FeedItem(page.events[0].cursor - 1 if page.events else page.cursor, body, is_gap=True)


class _Subscriber:
    """The items that one subscriber has not received yet, limited by a buffer."""

    def __init__(self, joined_at: int) -> None:
        self.joined_at = joined_at
        """The cursor after which all matching items are put into the buffer."""
        self.is_behind = False
        """Whether items had no room in the buffer, so that the subscriber has to read them."""
        self.missed_after = 0
        """The cursor after which items had no room."""
        self._pending: list[FeedItem] = []
        self._waiter: asyncio.Future[None] | None = None

    def push(self, items: Sequence[FeedItem], after: int) -> None:
        """Buffer the matching items after a cursor, if there is room."""
        if self.is_behind:
            return
        if len(self._pending) + len(items) > FLEET_SUBSCRIBER_EVENTS:
            self.fall_behind(after)
        else:
            self._pending += items
            self._wake()

    def fall_behind(self, after: int) -> None:
        """Have the subscriber read the items after this cursor."""
        self.is_behind, self.missed_after = True, after
        self._wake()

    def rejoin(self, cursor: int) -> None:
        """Fill the buffer again, with the items after this cursor."""
        self.joined_at, self.is_behind = cursor, False

    async def take(self) -> list[FeedItem]:
        """Wait for items and return them; an empty list if the subscriber is behind."""
        while not self._pending and not self.is_behind:
            # A plain future: waking a thousand subscribers has to be cheap.
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        items, self._pending = self._pending, []
        return items

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class FleetFeed:
    """The fleet events of a storage, for the subscribers of one server."""

    def __init__(self, events: FleetEvents, bus: Bus) -> None:
        self.events = events
        self._bus = bus
        self._groups: dict[FleetFilter, dict[_Subscriber, None]] = {}
        self._cursor = 0
        """The cursor up to which events were delivered; 0 without subscribers."""
        self._ancestors: dict[str | None, tuple[str, ...]] = {}
        self.subscriptions = 0
        """How many subscriptions there are."""
        self._has_subscribers = anyio.Event()

    async def run(self) -> None:
        """Deliver events until cancelled. Without subscribers nothing is read.

        Retries while the store cannot be read; nothing is lost, the store has it all.
        """
        while True:
            await self._has_subscribers.wait()
            with self._bus.subscribe_fleet() as live:
                while self._groups:
                    with tolerate_temporary_errors("cannot read fleet events"):
                        await self._deliver(live.drain())
                    await live.wait(FLEET_POLL_SECONDS)
            self._has_subscribers = anyio.Event()
            self._cursor = 0

    async def follow(self, wanted: FleetFilter, after: int | None = None) -> AsyncGenerator[list[FeedItem]]:
        """Yield the matching events after a cursor in batches, without end; without a cursor from the next event on.

        A cursor that is too old yields a gap first, then what is stored. Raises `TooManySubscriptions`.
        """
        async with self._subscribe(wanted) as subscriber:
            cursor = subscriber.joined_at if after is None else after
            subscriber.is_behind = after is not None
            # The first batch is empty: from now on the subscriber loses nothing.
            yield []
            while True:
                items = await subscriber.take()
                # A reader may know a newer cursor than this feed, from another server or from a page of events.
                if items := [item for item in items if item.cursor > cursor or not item.is_stored]:
                    cursor = max(cursor, items[-1].cursor)
                    yield items
                elif subscriber.is_behind:
                    # The buffer is empty, so everything up to `missed_after` was yielded.
                    subscriber.rejoin(self._cursor)
                    cursor, is_complete = max(cursor, subscriber.missed_after), False
                    while not is_complete:
                        items, cursor = await self._read(wanted, cursor, subscriber.joined_at)
                        yield items
                        is_complete = cursor >= subscriber.joined_at

    async def _read(self, wanted: FleetFilter, after: int, until: int) -> tuple[list[FeedItem], int]:
        """Return the next stored events after one cursor and up to another, and the cursor to continue at."""
        page = await self.events.read(wanted, after=after, until=until, limit=FLEET_PAGE_EVENTS)
        items = [FeedItem(event.cursor, event.body) for event in page.events]
        return [_gap_item(after, page), *items] if page.has_gap else items, page.cursor

    @asynccontextmanager
    async def _subscribe(self, wanted: FleetFilter) -> AsyncGenerator[_Subscriber]:
        if self.subscriptions >= FLEET_SUBSCRIPTIONS_MAX:
            raise TooManySubscriptions(
                f"this server has {FLEET_SUBSCRIPTIONS_MAX:,} subscriptions to fleet events, and accepts no more",
                hint="close some, or try again later",
            )
        self.subscriptions += 1
        try:
            if not self._cursor:
                newest = await self.events.cursor()
                self._cursor = self._cursor or newest
            # Without waiting in between: the feed delivers everything after this cursor to the subscriber.
            subscriber = _Subscriber(self._cursor)
            group = self._groups.setdefault(wanted, {})
            group[subscriber] = None
            self._has_subscribers.set()
            try:
                yield subscriber
            finally:
                del group[subscriber]
                if not group and self._groups.get(wanted) is group:
                    del self._groups[wanted]
        finally:
            self.subscriptions -= 1

    async def _deliver(self, heartbeats: list[FleetEvent]) -> None:
        """Read the new events and give them to the subscribers, then the heartbeats."""
        while True:
            page = await self.events.read(_ALL, after=self._cursor, limit=FLEET_PAGE_EVENTS)
            if any(wanted.tree for wanted in self._groups):
                await self._load_ancestors(page.events)
            # Without waiting in between: a subscriber that joins now gets either all of these events or none.
            after, self._cursor = self._cursor, page.cursor
            if page.has_gap:
                # Events were deleted before this feed has read them: each subscriber finds the gap itself.
                for subscriber in self._subscribers():
                    subscriber.fall_behind(after)
            self._dispatch([(event, FeedItem(event.cursor, event.body)) for event in page.events], after)
            if len(page.events) < FLEET_PAGE_EVENTS:
                break
        self._dispatch([self._heartbeat(event) for event in heartbeats], self._cursor)

    def _subscribers(self) -> list[_Subscriber]:
        return [subscriber for group in self._groups.values() for subscriber in group]

    def _heartbeat(self, event: FleetEvent) -> tuple[StoredFleetEvent, FeedItem]:
        """Return a heartbeat with the last stored cursor, so that a subscriber resumes there."""
        body = encode_fleet_event(event)
        stored = StoredFleetEvent(self._cursor, event.stream, event.run_id, event.provider, body)
        return stored, FeedItem(self._cursor, body, is_stored=False)

    def _dispatch(self, events: list[tuple[StoredFleetEvent, FeedItem]], after: int) -> None:
        if not events:
            return
        for wanted, group in self._groups.items():
            items = [item for event, item in events if wanted.matches(event, self._ancestors.get(event.run_id, ()))]
            if items:
                for subscriber in group:
                    subscriber.push(items, after)

    async def _load_ancestors(self, events: list[StoredFleetEvent]) -> None:
        run_ids = {event.run_id for event in events if event.run_id is not None}
        unknown = run_ids - self._ancestors.keys()
        if len(self._ancestors) + len(unknown) > FLEET_ANCESTORS:
            self._ancestors.clear()
            unknown = run_ids
        if unknown:
            found = await self.events.ancestors(unknown)
            self._ancestors |= {run_id: found.get(run_id, ()) for run_id in unknown}
