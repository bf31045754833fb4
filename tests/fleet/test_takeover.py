"""The loss of hosts, as several hosts find it at the same time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contract.test_host_registry import FACTS
from tests.contract.view_changes import run, single_change
from tests.fleet.document_schema import check_event

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.memory import (
    MemoryFleetEvents,
    MemoryHostRegistry,
    MemoryHosts,
    MemoryQueue,
    MemoryStorage,
    MemoryStore,
)
from shopfloor.fleet import HostDirectory, Takeover
from shopfloor.log import RunStarted, format_timestamp, now
from shopfloor.ports import FleetFilter, HostRecord, HostRun

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Lost:
    """A host that is gone, with a run that it left behind, and two hosts that look for lost ones."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.registry = MemoryHostRegistry(self.store, MemoryQueue(self.store))
        self.hosts = MemoryHosts(MemoryStorage())
        self.bus = InProcessBus()
        self.events = run(status=None)

    async def record(self, **more: Any) -> None:
        await self.store.apply([single_change(self.events)])
        facts = {"id": "local-1", "facts": FACTS, "status": "busy", "started_at": now(), "heartbeat_seconds": 30.0}
        await self.registry.save(HostRecord(**{**facts, **more}))

    def takeover(self, host: str, **limits: float) -> Takeover:
        return Takeover(host, self.registry, self.hosts, self.store, self.bus, **limits)

    async def sent(self, event_type: str = "worker.offline") -> list[dict[str, Any]]:
        page = await MemoryFleetEvents(self.store).read(FleetFilter(stream="worker"), after=0, limit=100)
        found = [json.loads(event.body) for event in page.events]
        for event in found:
            check_event(event)
        return [event["payload"] for event in found if event["type"] == event_type]


@pytest.fixture
def lost() -> Lost:
    return Lost()


async def test_the_runs_of_a_live_host_are_left_alone_unless_it_drains(lost: Lost) -> None:
    await lost.record()
    one = lost.takeover("local-2")
    with lost.hosts.register("local-1"):
        assert await one.check() == {"local-1"}
        await lost.hosts.set_draining("local-1", draining=True)
        assert await one.check() == set()
        assert (await lost.registry.all())[0].loss is None
    assert await one.check() == set()
    loss = (await lost.registry.all())[0].loss
    assert loss is not None
    assert loss.orphans == (lost.events[0].run_id,)


@pytest.mark.req("HO-2", "FE-35")
async def test_a_loss_is_told_once_when_the_runs_have_a_new_host(lost: Lost) -> None:
    await lost.record()
    one, other = lost.takeover("local-2"), lost.takeover("local-3")
    for takeover in (one, other, one, other):
        await takeover.check()
    assert await lost.sent() == []
    started = replace(lost.events[0], seq=2, payload=RunStarted(name="build", kind="worker", attempt=2, host="local-3"))
    await lost.store.apply([single_change([*lost.events, started])])
    for takeover in (one, other, one):
        await takeover.check()
    (told,) = await lost.sent()
    orphan = {"taskId": lost.events[0].run_id, "reassigned": True, "newWorkerId": "local-3"}
    assert (told["reason"], told["lastHeartbeat"], told["orphanedTask"]) == ("error", None, orphan)


@pytest.mark.req("FE-33", "HO-2")
async def test_a_run_that_a_host_ended_right_before_it_was_lost_is_told_as_completed_once(lost: Lost) -> None:
    lost.events = run(status="completed")
    run_id = lost.events[0].run_id
    assigned = HostRun(run_id=run_id, started_at=now(), worker="build", progress=None)
    unknown = HostRun(run_id="deleted", started_at=now(), worker="build", progress=None)
    await lost.record(runs=(assigned, unknown))
    one, other = lost.takeover("local-8"), lost.takeover("local-9")
    for takeover in (one, other, one, other):
        await takeover.check()
    (completed,) = await lost.sent("worker.task_completed")
    assert (completed["workerId"], completed["taskId"], completed["result"]["success"]) == ("local-1", run_id, True)


@pytest.mark.req("HO-2", "FE-34")
async def test_a_loss_is_told_after_a_time_even_if_nobody_takes_the_runs(lost: Lost) -> None:
    long_ago = format_timestamp(1_000_000_000_000)
    await lost.record(started_at=long_ago, heartbeat_at=long_ago)
    one = lost.takeover("local-2", notice_seconds=0)
    await one.check()
    await one.check()
    (told,) = await lost.sent()
    assert told["orphanedTasks"] == [{"taskId": lost.events[0].run_id, "reassigned": False}]
    # It had missed its heartbeats before it was found gone.
    assert (told["reason"], told["lastHeartbeat"]) == ("timeout", long_ago)


@pytest.mark.req("FE-33", "FE-35", "HO-2")
async def test_a_run_that_the_host_ended_is_no_orphan_even_if_its_row_was_behind_its_log(lost: Lost) -> None:
    ended = run(status="completed")
    lost.events = ended[:-1]
    assigned = HostRun(run_id=ended[0].run_id, started_at=now(), worker="build", progress=None)
    await lost.record(runs=(assigned,))
    one = lost.takeover("local-8")
    await one.check()
    await one.check()
    assert await lost.sent() == []
    await lost.store.apply([single_change(ended)])
    await one.check()
    (told,) = await lost.sent()
    assert "orphanedTask" not in told
    assert len(await lost.sent("worker.task_completed")) == 1


@pytest.mark.req("FE-34")
async def test_a_loss_names_the_number_of_its_runs_beside_the_list(lost: Lost) -> None:
    await lost.record()
    one = lost.takeover("local-2", notice_seconds=0)
    await one.check()
    await one.check()
    assert [told["orphanedTasksTotal"] for told in await lost.sent()] == [1]


@pytest.mark.req("HO-10")
async def test_each_host_is_listed_with_its_own_runs_however_many_others_have(
    lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shopfloor.fleet.directory.HOST_RUNS_SHOWN", 2)
    await lost.record()
    await lost.record(id="local-2")
    for second in range(5):
        first = run(status=None, second=second)[0]
        on_other = RunStarted(name="build", kind="worker", attempt=1, host="local-2")
        await lost.store.apply([single_change([replace(first, payload=on_other)])])
    with lost.hosts.register("local-1"), lost.hosts.register("local-2"):
        one, other = await HostDirectory(lost.registry, lost.hosts, lost.store).list()
    assert (one.slots_used, len(one.runs)) == (1, 1)
    assert (other.slots_used, len(other.runs)) == (5, 2)
