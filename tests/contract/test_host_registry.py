"""The contract of the port `HostRegistry`, and of the queries that hosts need, for every adapter."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contract.storages import StorageUnderTest
from tests.contract.test_queue import dispatch
from tests.contract.view_changes import at, run, single_change

from shopfloor.adapters.sqlite import SqliteHostRegistry, SqliteStore
from shopfloor.errors import ConflictError
from shopfloor.log import CallStarted, Event, Requirements, RunCompleted, RunStarted, new_run_id
from shopfloor.ports import (
    DrainRequest,
    FleetEvents,
    FleetFilter,
    HostFacts,
    HostLocation,
    HostLoss,
    HostMetrics,
    HostOffer,
    HostRecord,
    HostRegistry,
    HostResources,
    HostRun,
    Queue,
    QueuedRun,
    RunFilter,
    Store,
)
from shopfloor.views import FleetEvent

pytestmark = pytest.mark.anyio

Opened = tuple[Store, Queue, FleetEvents, HostRegistry]
FACTS = HostFacts(
    hostname="desk",
    type="local",
    version="1",
    location=HostLocation(type="ec2", instance_id="i-0123456789abcdef0"),
    resources=HostResources(cpu_cores=4, memory_mb=8000, disk_gb=100),
    slots=8,
    capabilities=("codex",),
    labels={"gpu": "yes"},
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def opened(storage_under_test: StorageUnderTest) -> AsyncIterator[Opened]:
    async with storage_under_test.registry() as opened:
        yield opened


def record(host: str = "local-1", **more: Any) -> HostRecord:
    return HostRecord(id=host, facts=FACTS, status="idle", started_at=at(0), heartbeat_seconds=30, **more)


def event(number: int) -> FleetEvent:
    payload = {"workerId": f"host-{number}", "previous": "idle", "current": "busy"}
    return FleetEvent(type="worker.status_changed", payload=payload, timestamp=at(number))


async def stored(events: FleetEvents) -> list[bytes]:
    return [item.body for item in (await events.read(FleetFilter(stream="worker"), after=0, limit=100)).events]


async def test_a_record_is_read_as_it_was_saved_and_in_the_order_of_registration(opened: Opened) -> None:
    _, _, _, registry = opened
    metrics = HostMetrics(cpu_percent=1.5, memory_percent=2, disk_percent=3, uptime_seconds=4)
    runs = (HostRun(run_id=new_run_id(), started_at=at(2), worker="build"),)
    first = record("b", heartbeat_at=at(3), metrics=metrics, cpu_history=(1.5,), runs=runs)
    await registry.save(first)
    await registry.save(record("a"))
    await registry.save(replace(first, status="busy"))
    assert await registry.all() == [replace(first, status="busy"), record("a")]
    assert await registry.find("b") == replace(first, status="busy")
    assert await registry.find("c") is None


async def test_saving_a_record_keeps_what_others_have_stored_about_the_host(opened: Opened) -> None:
    _, _, _, registry = opened
    await registry.save(record())
    request = DrainRequest(reason="requested", deadline=at(9))
    assert await registry.request_drain("local-1", request)
    await registry.save(record(heartbeat_at=at(4)))
    assert await registry.find("local-1") == record(heartbeat_at=at(4), drain=request)
    assert await registry.request_drain("local-1", None)
    assert await registry.find("local-1") == record(heartbeat_at=at(4))
    assert not await registry.request_drain("local-2", request)


async def test_a_loss_is_recorded_once_with_the_runs_that_the_host_left_behind(opened: Opened) -> None:
    store, queue, _, registry = opened
    running, ended, other = run(status=None), run(), run(status=None)
    other = [replace(each, payload=replace(each.payload, host="local-2")) for each in other]
    await store.apply([single_change(events) for events in (running, ended, other)])
    claimed = await queue.dispatch(dispatch(), host="local-1")
    await queue.dispatch(dispatch())
    await registry.save(record())
    assert await registry.record_loss("local-1", at=at(5), reason="error")
    assert not await registry.record_loss("local-1", at=at(6), reason="timeout")
    loss = HostLoss(at=at(5), reason="error", orphans=(running[0].run_id, claimed))
    assert await registry.find("local-1") == record(loss=loss)
    assert not await registry.record_loss("local-2", at=at(6), reason="error")
    assert not await registry.request_drain("local-1", DrainRequest(reason="late"))


async def test_events_are_stored_with_the_change_and_those_of_an_offline_host_once(opened: Opened) -> None:
    _, _, events, registry = opened
    await registry.save(record(), [event(1), event(2)])
    assert await registry.mark_offline("local-1", at(7), [event(3)])
    assert not await registry.mark_offline("local-1", at(8), [event(4)])
    assert not await registry.mark_offline("local-2", at(8), [event(5)])
    assert [b"host-%d" % number in body for number, body in enumerate(await stored(events), 1)] == [True] * 3
    assert await registry.find("local-1") == record(offline_at=at(7))


async def test_hosts_that_went_offline_long_ago_or_are_too_many_are_forgotten(opened: Opened) -> None:
    _, _, _, registry = opened
    for number in range(5):
        await registry.save(record(f"local-{number}"))
    for number in range(4):
        await registry.mark_offline(f"local-{number}", at(number), [])
    await registry.forget_offline(at(1), keep=2)
    assert [host.id for host in await registry.all()] == ["local-2", "local-3", "local-4"]


# The queries of the store and the queue


async def test_a_parent_is_overdue_when_a_sub_run_that_it_waits_for_has_ended(opened: Opened) -> None:
    store, _, _, _ = opened
    child, open_child = run(), run(status=None)

    def parent(child_run_id: str) -> list[Event]:
        started = run(status=None)
        call = CallStarted(name="child", kind="worker", try_=1)
        step = replace(started[0], seq=2, type=call.event_type, payload=call, path="Call", child_run_id=child_run_id)
        return [*started, step]

    overdue, waiting = parent(child[0].run_id), parent(open_child[0].run_id)
    await store.apply([single_change(events) for events in (child, open_child, overdue, waiting)])
    assert await store.overdue_parents() == [overdue[0].run_id]


async def test_recent_durations_are_those_of_completed_runs_of_the_worker(opened: Opened) -> None:
    store, _, _, _ = opened

    def took(ms: int, second: int, **more: Any) -> list[Event]:
        events = run(second=second, **more)
        assert isinstance(events[-1].payload, RunCompleted)
        return [*events[:-1], replace(events[-1], payload=replace(events[-1].payload, duration_ms=ms))]

    runs = [took(10, 1), took(20, 2), took(30, 3), took(40, 4, status="failed"), took(50, 5, name="other")]
    await store.apply([single_change(events) for events in runs])
    assert await store.recent_durations("build", limit=2) == [30, 20]
    assert await store.recent_durations("nothing", limit=2) == []


async def test_the_next_unclaimed_run_is_the_one_that_is_claimed_next(opened: Opened) -> None:
    _, queue, _, _ = opened
    assert await queue.next_unclaimed(HostOffer(), limit=2) == []
    first, second = await queue.dispatch(dispatch()), await queue.dispatch(dispatch())
    assert await queue.next_unclaimed(HostOffer(), limit=2) == [first, second]
    assert await queue.next_unclaimed(HostOffer(), limit=1) == [first]
    assert [queued.run_id for queued in await queue.claim("local-1", 1, HostOffer())] == [first]
    assert await queue.next_unclaimed(HostOffer(), limit=2) == [second]


async def test_the_open_runs_of_a_host_are_counted_and_listed(opened: Opened) -> None:
    store, _, _, _ = opened

    def on(host: str, status: Any) -> list[Event]:
        first, *rest = run(status=status)
        assert isinstance(first.payload, RunStarted)
        return [replace(first, payload=replace(first.payload, host=host)), *rest]

    runs = [on("a", None), on("a", "completed"), on("b", None), on("a", None)]
    await store.apply([single_change(events) for events in runs])
    on_a = RunFilter(open_on_host="a")
    page = await store.list_runs(on_a, limit=1)
    assert (page.total, {item.row.host for item in page.items}, page.next is None) == (2, {"a"}, False)
    assert (await store.count_by_status(on_a))["running"] == 2
    assert (await store.list_runs(RunFilter(open_on_host="c"), limit=1)).items == []


async def test_a_run_with_new_requirements_is_refused_when_the_queue_has_too_many(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, queue, _, _ = opened
    for adapter in ("memory", "sqlite"):
        monkeypatch.setattr(f"shopfloor.adapters.{adapter}.queue.QUEUE_GROUPS", 3)

    def zoned(zone: str) -> QueuedRun:
        return dispatch(requires=Requirements(labels={"zone": zone}))

    for queued in (dispatch(), zoned("a"), zoned("b")):
        await queue.dispatch(queued)
    refused = zoned("c")
    with pytest.raises(ConflictError, match="different requirements"):
        await queue.dispatch(refused)
    assert await queue.find(refused.run_id) is None
    # Requirements that the queue has already, no requirements, and a run that is claimed at once.
    for queued, host in ((zoned("a"), None), (dispatch(), None), (zoned("d"), "local-1")):
        assert await queue.dispatch(queued, host=host) == queued.run_id
    await queue.claim("local-1", 9, HostOffer(labels={"zone": "b"}))
    assert await queue.dispatch(refused) == refused.run_id


async def test_a_record_that_cannot_be_decoded_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shopfloor.db"
    store = await SqliteStore.open(path)
    registry = SqliteHostRegistry(store)
    for host in ("local-1", "local-2"):
        await registry.save(record(host))
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE hosts SET record = '{"id": 1}' WHERE id = 'local-1'""")
    connection.close()
    for _ in range(2):
        assert await registry.all() == [record("local-2")]
    assert await registry.find("local-1") is None
    assert [message for message in caplog.messages if "local-1" in message] == caplog.messages
    assert len(caplog.messages) == 1
    # The host itself stores it again.
    await registry.save(record("local-1"))
    assert len(await registry.all()) == 2
    await store.close()
