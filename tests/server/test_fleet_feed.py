"""The feed of fleet events: each subscriber gets each matching event once, in order, however slowly it reads."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.memory import MemoryFleetEvents, MemoryStore
from shopfloor.errors import TooManySubscriptions
from shopfloor.log import new_run_id
from shopfloor.ports import FleetEventPage, FleetFilter, ViewUpdate
from shopfloor.server import FleetFeed, fleet_feed
from shopfloor.server.limits import FLEET_SUBSCRIBER_EVENTS
from shopfloor.views import FleetEvent, RunRow

pytestmark = pytest.mark.anyio
PROVIDERS = ["claude-code", "codex", "gemini"]
ALL = FleetFilter()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Fleet:
    """A feed in memory, and the events that were appended."""

    def __init__(self, kept: int = 100_000) -> None:
        self.bus = InProcessBus()
        self.store = MemoryStore(fleet_events_kept=kept)
        self.events = MemoryFleetEvents(self.store)
        self.feed = FleetFeed(self.events, self.bus)
        self.appended: list[str] = []

    async def append(self, *providers: str, notify: bool = True) -> None:
        events = [provider_event(provider, len(self.appended) + index) for index, provider in enumerate(providers)]
        self.appended += [f"{event.provider} {event.payload['name']}" for event in events]
        await self.events.append(events)
        if notify:
            self.bus.notify_fleet()

    def expected(self, wanted: FleetFilter, first: int = 0) -> list[str]:
        return [name for name in self.appended[first:] if wanted.provider in (None, name.partition(" ")[0])]


@asynccontextmanager
async def running(fleet: Fleet) -> AsyncIterator[Fleet]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.feed.run)
        yield fleet
        tasks.cancel_scope.cancel()


def provider_event(provider: str, number: int) -> FleetEvent:
    payload = {"providerId": provider, "name": str(number), "reason": "error"}
    return FleetEvent(type="provider.unavailable", payload=payload, timestamp="", provider=provider)


def name_of(body: bytes) -> str:
    event: dict[str, Any] = msgspec.json.decode(body)
    return f"{event['payload']['providerId']} {event['payload']['name']}" if event["type"] != "gap" else "gap"


async def follow(
    fleet: Fleet, wanted: FleetFilter, count: int, after: int | None = None, pause: float = 0.0
) -> list[str]:
    """Return the first events of a subscription, which waits after each batch."""
    received: list[str] = []
    async with aclosing(fleet.feed.follow(wanted, after)) as batches:
        async for batch in batches:
            received += [name_of(item.body) for item in batch]
            if len(received) >= count:
                return received
            await anyio.sleep(pause)
    raise AssertionError("a subscription has no end")


@pytest.mark.req("FE-50")
@pytest.mark.parametrize("seed", range(8))
async def test_each_subscriber_gets_each_event_once_in_order(seed: int) -> None:
    rng = random.Random(seed)
    async with running(Fleet()) as fleet:
        filters = [ALL, *(FleetFilter(provider=provider) for provider in PROVIDERS)]
        batches = [
            [rng.choice(PROVIDERS) for _ in range(rng.choice([1, 2, 30, FLEET_SUBSCRIBER_EVENTS + 1]))]
            for _ in range(60)
        ]
        wholes = [provider for batch in batches for provider in batch]
        start = await fleet.events.cursor()
        results: list[tuple[FleetFilter, list[str]]] = []

        async def subscribe(wanted: FleetFilter, pause: float) -> None:
            count = sum(wanted.provider in (None, provider) for provider in wholes)
            results.append((wanted, await follow(fleet, wanted, count, after=start, pause=pause)))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for wanted in filters:
                    for pause in (0.0, 0.001, 0.01):
                        tasks.start_soon(subscribe, wanted, pause)
                for batch in batches:
                    await fleet.append(*batch, notify=rng.random() < 0.9)
                    await anyio.sleep(rng.choice([0, 0, 0.002]))
        assert len(results) == 12
        for wanted, received in results:
            assert received == fleet.expected(wanted)
        assert fleet.feed.subscriptions == 0


async def test_without_a_cursor_a_subscription_begins_with_the_next_event() -> None:
    async with running(Fleet()) as fleet:
        await fleet.append("codex", "codex")
        async with aclosing(fleet.feed.follow(ALL)) as batches:
            assert await anext(batches) == []
            await fleet.append("gemini")
            assert [name_of(item.body) for item in await anext(batches)] == ["gemini 2"]


async def test_a_new_subscriber_after_a_silent_time_misses_nothing() -> None:
    async with running(Fleet()) as fleet:
        await follow_one(fleet)
        # The feed rests without subscribers, while events are stored.
        await anyio.sleep(2 * fleet_feed.FLEET_POLL_SECONDS)
        await fleet.append("codex")
        await follow_one(fleet)


async def follow_one(fleet: Fleet) -> None:
    async with aclosing(fleet.feed.follow(ALL)) as batches:
        await anext(batches)
        await fleet.append("gemini")
        (item,) = await anext(batches)
        assert name_of(item.body) == fleet.appended[-1]


@pytest.mark.req("FE-44")
async def test_a_subscriber_that_falls_behind_what_is_kept_gets_a_gap() -> None:
    async with running(Fleet(kept=1_000)) as fleet:
        async with aclosing(fleet.feed.follow(ALL)) as batches:
            await anext(batches)
            await fleet.append(*["codex"] * 5_000)
            received: list[str] = []
            async for batch in batches:
                received += [name_of(item.body) for item in batch]
                if received[-1] == fleet.appended[-1]:
                    break
        assert received == ["gap", *fleet.appended[-1_000:]]


async def test_a_rare_match_after_many_other_events_is_no_gap() -> None:
    async with running(Fleet(kept=1_000)) as fleet:
        async with aclosing(fleet.feed.follow(FleetFilter(provider="gemini"))) as batches:
            await anext(batches)
            for _ in range(30):
                await fleet.append(*["codex"] * 100)
                await anyio.sleep(0.001)
            await fleet.append(*["gemini"] * (FLEET_SUBSCRIBER_EVENTS + 1))
            received: list[str] = []
            async for batch in batches:
                received += [name_of(item.body) for item in batch]
                if len(received) > FLEET_SUBSCRIBER_EVENTS:
                    break
        assert received == fleet.appended[3_000:]


@pytest.mark.req("FE-52")
async def test_subscriptions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_feed, "FLEET_SUBSCRIPTIONS_MAX", 1)
    async with running(Fleet()) as fleet, aclosing(fleet.feed.follow(ALL)) as first:
        await anext(first)
        with pytest.raises(TooManySubscriptions, match="accepts no more"):
            await anext(fleet.feed.follow(ALL))
        await first.aclose()
        await follow_one(fleet)


async def test_a_tree_is_complete_when_more_runs_were_seen_than_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_feed, "FLEET_ANCESTORS", 2)
    root, children = new_run_id(), [new_run_id() for _ in range(4)]
    fleet = Fleet()
    await fleet.store.apply(
        [ViewUpdate(row=RunRow(id=child, parent_run_id=root), state=b"", timeline=[]) for child in children]
    )
    async with running(fleet), aclosing(fleet.feed.follow(FleetFilter(run_id=root, tree=True))) as batches:
        await anext(batches)
        received: list[str] = []
        # The runs of the second page are known, but for one.
        for page in (children[:2], children[:3], children):
            await fleet.events.append([run_event(run_id) for run_id in page])
            fleet.bus.notify_fleet()
            received += [msgspec.json.decode(item.body)["payload"]["taskId"] for item in await anext(batches)]
        assert received == [*children[:2], *children[:3], *children]


def run_event(run_id: str) -> FleetEvent:
    return FleetEvent(type="agent.ready", payload={"taskId": run_id}, timestamp="", run_id=run_id)


async def test_events_are_delivered_after_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    shortages: list[Exception] = [MemoryError(), RuntimeError("can't start new thread")]
    async with running(Fleet()) as fleet, aclosing(fleet.feed.follow(ALL)) as batches:
        await anext(batches)
        read = fleet.events.read

        async def fail_first(*args: Any, **more: Any) -> FleetEventPage:
            if shortages:
                raise shortages.pop()
            return await read(*args, **more)

        monkeypatch.setattr(fleet.events, "read", fail_first)
        await fleet.append("codex")
        with anyio.fail_after(30):
            assert [name_of(item.body) for item in await anext(batches)] == ["codex 0"]
