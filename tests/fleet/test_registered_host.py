"""This process as a host: what it reports about itself and its runs, and how it drains."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.contract.test_host_registry import FACTS
from tests.contract.view_changes import run
from tests.engine.harness import MemoryEngineHarness, RunningEngine
from tests.fleet.document_schema import check_event

from shopfloor.adapters.local import LocalMachine
from shopfloor.adapters.memory import MemoryHosts, MemoryStorage
from shopfloor.fleet import SHUTDOWN, HostPorts, RegisteredHost, live_offers
from shopfloor.fleet.host_events import QueuePlace, TaskOutcome, task_completed
from shopfloor.fleet.hosts import AttemptEnd, AttemptStart, match_next_runs
from shopfloor.log import Cost, Requirements, RunStarted, Usage
from shopfloor.ports import DrainRequest, FleetFilter, HostRecord
from shopfloor.record import Storage
from shopfloor.views import UsageTotal

pytestmark = pytest.mark.anyio
HOLDING = """
input: {GO: {}}
steps:
  Hold: {block: command, command: 'until test -e "{{GO}}"; do sleep 0.02; done'}
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Host:
    """A registered host on an engine in memory."""

    def __init__(self, running: RunningEngine, registered: RegisteredHost) -> None:
        self.running = running
        self.registered = registered
        self.backend = running.backend

    async def record(self) -> HostRecord:
        with anyio.fail_after(10):
            while (record := await self.backend.host_registry.find(self.registered.id)) is None:
                await anyio.sleep(0.01)
        return record

    async def wait_until(self, condition: Callable[[HostRecord], bool]) -> HostRecord:
        with anyio.fail_after(10):
            while not condition(record := await self.record()):
                await anyio.sleep(0.02)
        return record

    async def events(self, event_type: str) -> list[dict[str, Any]]:
        page = await self.backend.fleet_events.read(FleetFilter(stream="worker"), after=0, limit=1_000)
        found = [json.loads(event.body) for event in page.events]
        for event in found:
            check_event(event)
        return [event["payload"] for event in found if event["type"] == event_type]


@asynccontextmanager
async def open_host(harness: MemoryEngineHarness, tmp_path: Path, **options: Any) -> AsyncGenerator[Host]:
    async with harness.open(slots=1) as running:
        backend = running.backend
        ports = HostPorts(
            storage=backend, registry=backend.host_registry, bus=backend.bus, machine=LocalMachine(tmp_path)
        )
        facts = replace(FACTS, capabilities=(), labels={})
        host_id = running.engine.host_id
        registered = RegisteredHost(host_id, ports, running.engine, facts, heartbeat_seconds=30, **options)
        yield Host(running, registered)


@pytest.fixture
def harness(storage: Storage, tmp_path: Path) -> MemoryEngineHarness:
    return MemoryEngineHarness(storage, tmp_path / "workers")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of programs, where this machine has `codex`. What is there is looked up each time."""
    folder = tmp_path / "programs"
    folder.mkdir()
    install(folder, "codex")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr("shopfloor.wiring.providers.PROVIDERS_REFRESH_SECONDS", 0.0)
    return folder


def install(folder: Path, program: str) -> None:
    (folder / program).write_text("#!/bin/sh\n")
    (folder / program).chmod(0o755)


@pytest.mark.req("FE-55")
async def test_other_hosts_see_the_providers_by_which_a_host_claims_also_those_installed_later(
    harness: MemoryEngineHarness, tmp_path: Path, programs: Path
) -> None:
    usable: list[tuple[str, ...]] = []
    async with (
        open_host(harness, tmp_path, usable_providers=lambda: usable[-1] if usable else None) as host,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(host.registered.run, lambda: ())
        record = await host.record()
        # Nobody is logged in, and a run that fails for that says what to do.
        assert record.facts.capabilities == ()
        (offer,) = await live_offers([record], host.backend.hosts)
        assert offer.providers == host.running.engine.offer().providers
        assert offer.satisfies(Requirements(providers=["codex"]))
        assert not offer.satisfies(Requirements(providers=["copilot"]))
        install(programs, "copilot")
        usable.append(("copilot",))
        record = await host.wait_until(lambda record: record.facts.capabilities == ("copilot",))
        (offer,) = await live_offers([record], host.backend.hosts)
        assert offer.satisfies(Requirements(providers=["copilot"]))
        tasks.cancel_scope.cancel()


async def test_a_record_of_an_earlier_version_offers_unknown_providers() -> None:
    storage = MemoryStorage()
    record = HostRecord(id="local-1", facts=FACTS, status="idle", started_at="", heartbeat_seconds=30)
    with MemoryHosts(storage).register("local-1"):
        (offer,) = await live_offers([record], MemoryHosts(storage))
    assert offer.providers is None


@pytest.mark.req("FE-55")
async def test_the_offers_of_other_hosts_are_known_before_a_host_registers(
    harness: MemoryEngineHarness, tmp_path: Path
) -> None:
    async with open_host(harness, tmp_path) as host:
        other = HostRecord(
            id="local-2", facts=FACTS, status="idle", started_at="", heartbeat_seconds=30, offered=("codex",)
        )
        await host.backend.host_registry.save(other)
        assert isinstance(host.backend.hosts, MemoryHosts)
        with host.backend.hosts.register("local-2"):
            await host.registered.refresh_other_offers()
        assert [offer.providers for offer in host.registered.other_offers] == [frozenset({"codex"})]


def fail() -> tuple[str, ...]:
    raise ValueError("a file that cannot be understood")


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_host_registers_even_if_its_providers_cannot_be_found(
    harness: MemoryEngineHarness, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shopfloor.fleet.hosts.HOST_PROVIDER_SEARCH_SECONDS", 0.1)
    released = threading.Event()

    def hang() -> tuple[str, ...]:
        released.wait()
        return ()

    async with open_host(harness, tmp_path) as host, anyio.create_task_group() as tasks:
        tasks.start_soon(host.registered.run, fail if how == "fails" else hang)
        assert (await host.record()).facts.capabilities == ()
        released.set()
        tasks.cancel_scope.cancel()


@pytest.mark.req("HO-5")
async def test_the_drain_before_a_host_stops_is_not_undone_by_a_record_that_was_read_before(
    harness: MemoryEngineHarness, tmp_path: Path
) -> None:
    async with open_host(harness, tmp_path) as host, anyio.create_task_group() as tasks:
        tasks.start_soon(host.registered.run)
        await host.record()
        request = DrainRequest(reason=SHUTDOWN)
        await host.registered.drain(request)
        # As if the request had not been stored yet.
        await host.backend.host_registry.request_drain(host.registered.id, None)
        await host.wait_until(lambda record: record.drain == request)
        assert host.running.scheduler.is_draining
        tasks.cancel_scope.cancel()


@pytest.mark.req("FE-33")
async def test_a_host_that_drains_announces_no_next_run(harness: MemoryEngineHarness, tmp_path: Path) -> None:
    go = tmp_path / "go"
    worker = harness.add_worker("holding", HOLDING)
    async with open_host(harness, tmp_path) as host, anyio.create_task_group() as tasks:
        tasks.start_soon(host.registered.run)
        await host.record()
        held = await host.running.dispatch(worker, GO=str(go))
        await host.running.wait_until(lambda: held in host.running.scheduler.live_runs)
        await host.running.dispatch(worker, GO=str(go))
        await host.registered.drain(DrainRequest(reason="requested"))
        go.touch()
        await host.running.wait_for_outcome(held)
        await host.wait_until(lambda record: not record.runs)
        (completed,) = await host.events("worker.task_completed")
        assert completed["taskId"] == held
        assert "nextTask" not in completed
        tasks.cancel_scope.cancel()


# Pure functions


def started(run_id: str) -> AttemptStart:
    return AttemptStart(run_id, "", RunStarted(name="w", kind="worker", attempt=1, host="h"))


def ended(run_id: str, *, is_suspended: bool = False) -> AttemptEnd:
    outcome = TaskOutcome(is_completed=True, duration_ms=1, spent=UsageTotal())
    return AttemptEnd(run_id, "", None if is_suspended else outcome, None)


def test_runs_that_end_together_are_each_followed_by_another_run() -> None:
    changes = [started("x"), ended("a"), ended("b"), ended("s", is_suspended=True), started("c"), ended("d")]
    assert match_next_runs(changes, ["e", "f"]) == {
        1: QueuePlace("c", 1),
        2: QueuePlace("e", 1),
        5: QueuePlace("f", 2),
    }
    assert match_next_runs(changes, []) == {1: QueuePlace("c", 1)}


@pytest.mark.req("FE-33")
@pytest.mark.parametrize(
    ("spent", "tokens", "cost"),
    [
        (UsageTotal(), None, None),
        (UsageTotal().plus(Usage(input=1, output=2), Cost(usd=0.5, source="x")), 3, 0.5),
        (UsageTotal().plus(Usage(input=1, output=2), None).plus(Usage(input=4), Cost(usd=0.5, source="x")), 7, None),
    ],
)
def test_the_cost_of_a_run_is_null_unless_all_of_its_tokens_have_a_price(
    spent: UsageTotal, tokens: int | None, cost: float | None
) -> None:
    outcome = TaskOutcome(is_completed=True, duration_ms=1, spent=spent)
    result = task_completed("h", run()[0].timestamp, "r", outcome, None).payload["result"]
    assert (result["tokensUsed"], result["cost"]) == (tokens, cost)
