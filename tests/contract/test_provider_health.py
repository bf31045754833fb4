"""The contract of the port `ProviderHealth`, for every adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest
from tests.contract.storages import StorageUnderTest
from tests.contract.test_queue import dispatch
from tests.contract.view_changes import ViewBuilder, run

from shopfloor.errors import ProviderDisabled
from shopfloor.log import Requirements, StepCompleted, StepStarted
from shopfloor.ports import (
    AnnouncedStatus,
    DisabledBy,
    FleetEvents,
    FleetFilter,
    HostOffer,
    ProviderHealth,
    ProviderRecord,
    Queue,
    Records,
    Store,
    ViewUpdate,
    require_enabled,
)
from shopfloor.views import FleetEvent, ObservedLimit, ProviderObservation

pytestmark = pytest.mark.anyio
Opened = tuple[Store, Queue, FleetEvents, ProviderHealth]
DISABLED = DisabledBy(by="ada", at="2026-02-23T10:30:00.000Z", reason="the key leaked")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def opened(storage_under_test: StorageUnderTest) -> AsyncIterator[Opened]:
    async with storage_under_test.providers() as opened:
        yield opened


@pytest.fixture
def store(opened: Opened) -> Store:
    return opened[0]


@pytest.fixture
def queue(opened: Opened) -> Queue:
    return opened[1]


@pytest.fixture
def fleet(opened: Opened) -> FleetEvents:
    return opened[2]


@pytest.fixture
def health(opened: Opened) -> ProviderHealth:
    return opened[3]


def event(name: str) -> FleetEvent:
    payload = {"providerId": name, "name": name, "reason": "disabled"}
    return FleetEvent(type="provider.unavailable", payload=payload, timestamp="2026-02-23T10:30:00.000Z", provider=name)


def announce_once(records: Records) -> tuple[list[ProviderRecord], list[FleetEvent]]:
    """Announce that codex is disabled, unless that was announced."""
    record = records.get("codex") or ProviderRecord(name="codex")
    after = AnnouncedStatus("disabled", "disabled")
    if record.announced == after:
        return [], []
    return [msgspec.structs.replace(record, disabled=DISABLED, announced=after)], [event("codex")]


async def stored_events(fleet: FleetEvents) -> list[Any]:
    page = await fleet.read(FleetFilter(stream="provider"), after=0, limit=100)
    return [msgspec.json.decode(stored.body)["payload"]["providerId"] for stored in page.events]


async def test_nothing_is_known_of_a_provider_at_first(health: ProviderHealth) -> None:
    assert dict(await health.read()) == {}
    await require_enabled(health, ["codex"])


async def test_a_change_is_stored_with_its_event_and_read_back(health: ProviderHealth, fleet: FleetEvents) -> None:
    assert await health.update(announce_once) is True
    assert (await health.read())["codex"].disabled == DISABLED
    assert await stored_events(fleet) == ["codex"]
    with pytest.raises(ProviderDisabled, match=r"codex is disabled by ada since .*: the key leaked") as raised:
        await require_enabled(health, ["claude-code", "codex"])
    assert "shopfloor providers enable codex" in str(raised.value.hint)
    await require_enabled(health, ["claude-code"])


@pytest.mark.req("FE-55")
async def test_a_host_that_does_not_know_of_it_claims_no_run_for_a_disabled_provider(
    health: ProviderHealth, queue: Queue
) -> None:
    codex = dispatch(requires=Requirements(providers=["codex"]))
    await queue.dispatch(codex)
    outdated = HostOffer(providers=frozenset({"codex"}))
    assert await queue.next_unclaimed(outdated, limit=1) == [codex.run_id]
    await health.update(announce_once)
    assert await queue.next_unclaimed(outdated, limit=1) == []
    assert await queue.claim("h", 9, outdated) == []
    await health.update(lambda records: ([msgspec.structs.replace(records["codex"], disabled=None)], []))
    assert await queue.claim("h", 9, outdated) == [codex]


async def test_of_many_that_see_a_change_one_announces_it(health: ProviderHealth, fleet: FleetEvents) -> None:
    announced: list[bool] = []

    async def announce() -> None:
        announced.append(await health.update(announce_once))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(announce)
    assert sorted(announced) == [False] * 9 + [True]
    assert await stored_events(fleet) == ["codex"]


async def test_a_change_that_fails_stores_nothing(health: ProviderHealth, fleet: FleetEvents) -> None:
    def fail(records: Records) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await health.update(fail)
    assert (dict(await health.read()), await stored_events(fleet)) == ({}, [])


def observed(at: str, **more: Any) -> ViewUpdate:
    """Return the update of a run that observed something of codex."""
    update = ViewBuilder().take(
        run("one", StepStarted(name="s", kind="agent", try_=1), StepCompleted(name="s", kind="agent", try_=1))
    )
    return msgspec.structs.replace(update, observations=[ProviderObservation(provider="codex", at=at, **more)])


def limit(name: str | None, met_at: str, current: float) -> ObservedLimit:
    return ObservedLimit(
        kind="requests", name=name, current=current, max=1.0, reset_at=None, status="rejected", met_at=met_at
    )


async def test_observations_of_runs_are_stored_with_their_rows_and_the_newest_counts(
    store: Store, health: ProviderHealth
) -> None:
    new, old = "2026-02-23T10:31:00.000Z", "2026-02-23T10:30:00.000Z"
    await health.update(announce_once)
    five_hour = limit("five_hour", new, 0.9)
    await store.apply([observed(new, failure="authentication_error", message="no", limits=(five_hour,))])
    await store.apply([observed(old, failure="provider_unreachable", limits=(limit("five_hour", old, 0.1),))])
    await store.apply([observed(old, answered=True, limits=(limit("weekly", old, 0.2),))])
    record = (await health.read())["codex"]
    assert record.failure is not None
    assert (record.failure.code, record.failure.at, record.answered_at) == ("authentication_error", new, old)
    assert set(record.limits) == {five_hour, limit("weekly", old, 0.2)}
    # What a person decided is not lost by what runs observe.
    assert record.disabled == DISABLED


async def test_what_is_known_of_providers_survives_a_rebuild(store: Store, health: ProviderHealth) -> None:
    await health.update(announce_once)
    await store.apply([observed("2026-02-23T10:30:00.000Z", answered=True)])
    before = await health.read()
    await store.clear_views()
    assert await health.read() == before
