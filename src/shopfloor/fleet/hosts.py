"""This process as a host of the fleet: its registration, status, heartbeats and drain, and the events of each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from shopfloor.engine import StoragePorts, tolerate_temporary_errors
from shopfloor.fleet import host_events
from shopfloor.fleet.directory import SHUTDOWN, live_offers
from shopfloor.fleet.limits import (
    ESTIMATE_CACHE_SECONDS,
    ESTIMATE_RUNS,
    ESTIMATES_CACHED,
    HOST_CPU_HISTORY,
    HOST_EVENT_BATCH_SECONDS,
    HOST_EVENTS_PENDING,
    HOST_FIRST_HEARTBEAT_SECONDS,
    HOST_STATUS_SECONDS,
)
from shopfloor.limits import HOST_CHECK_SECONDS
from shopfloor.log import RunCompleted, RunStarted, now
from shopfloor.ports import (
    Bus,
    DrainRequest,
    HostFacts,
    HostMetrics,
    HostOffer,
    HostRecord,
    HostRegistry,
    HostResources,
    HostRun,
    Store,
)
from shopfloor.views import FleetEvent, HostStatus

if TYPE_CHECKING:
    from shopfloor.engine import RunEngine

T = TypeVar("T")
_log = logging.getLogger("shopfloor.fleet")


class Machine(Protocol):
    """The machine of this host. Its methods block."""

    def measure_resources(self) -> HostResources: ...

    def measure(self) -> HostMetrics: ...


class HostPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of a host."""

    storage: StoragePorts
    registry: HostRegistry
    bus: Bus
    machine: Machine


class _Started(msgspec.Struct, frozen=True):
    run_id: str
    at: str
    first: RunStarted


class _Left(msgspec.Struct, frozen=True):
    run_id: str
    at: str
    outcome: RunCompleted | None
    """None if the run was suspended or handed over."""
    provider: str | None


async def _retry(function: Callable[[], T]) -> T:
    """Call a function that blocks in a thread, again while the process is short of memory, threads or descriptors."""
    while True:
        try:
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
        except (OSError, MemoryError, ImportError, RuntimeError) as error:
            _log.warning("cannot measure this machine: %s: %s", type(error).__name__, error)
        await anyio.sleep(HOST_CHECK_SECONDS)


class Estimates:
    """The expected duration of a worker's next run: the median of its last completed runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, float | None]] = {}

    async def seconds(self, worker: str) -> float | None:
        """Return the estimate in seconds; None if no run of this worker has completed."""
        known = self._known.get(worker)
        if known is None or known[0] < time.monotonic() - ESTIMATE_CACHE_SECONDS:
            import statistics

            durations = await self._store.recent_durations(worker, limit=ESTIMATE_RUNS)
            if len(self._known) >= ESTIMATES_CACHED:
                self._known.clear()
            estimate = round(statistics.median(durations) / 1000, 3) if durations else None
            known = self._known[worker] = (time.monotonic(), estimate)
        return known[1]


class RegisteredHost:
    """This process as a host. Implements `RunObserver`: the engine tells it which runs it executes.

    The record that it stores is its own; only it changes its status.
    """

    def __init__(
        self, host_id: str, ports: HostPorts, engine: RunEngine, facts: HostFacts, *, heartbeat_seconds: float
    ) -> None:
        self._ports = ports
        self._scheduler = engine.scheduler
        self._record = HostRecord(
            id=host_id, facts=facts, status="starting", started_at=now(), heartbeat_seconds=heartbeat_seconds
        )
        self._estimates = Estimates(ports.storage.store)
        self._runs: dict[str, _Started] = {}
        """The attempts of this process that are not over, in the order of their start."""
        self._assigned: dict[str, HostRun] = {}
        """The runs with a stored or pending `worker.task_assigned` whose `worker.task_completed` has to follow."""
        self._news: list[_Started | _Left] = []
        self._has_news = anyio.Event()
        self._events: list[FleetEvent] = []
        """Events that are not stored yet."""
        self._report_lock = anyio.Lock()
        self._store_lock = anyio.Lock()
        self._is_registered = False
        self._drain: DrainRequest | None = None
        self._is_handed_over = False
        self.other_offers: list[HostOffer] = []
        """What the other hosts offer to queued runs, by the last look at the registry."""
        self._offer = engine.offer
        self.orphans: Sequence[str] = ()
        """The open runs that this host left behind when it stopped."""
        self._seen: dict[str, str | None] = {}
        """The last heartbeats of other hosts that were passed on."""
        engine.scheduler.set_observer(self)

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def facts(self) -> HostFacts:
        """What this host reports about itself; its capabilities may change."""
        return self._record.facts

    @property
    def is_idle(self) -> bool:
        """Whether this process has no run."""
        return not self._scheduler.is_busy

    # Called by the engine.

    def run_started(self, run_id: str, first: RunStarted) -> None:
        self._runs[run_id] = started = _Started(run_id, now(), first)
        self._add_news(started)

    def run_left(self, run_id: str, outcome: RunCompleted | None) -> None:
        started = self._runs.pop(run_id, None)
        if started is not None:
            self._add_news(_Left(run_id, now(), outcome, host_events.provider_of_run(started.first)))

    def _add_news(self, news: _Started | _Left) -> None:
        self._news.append(news)
        self._has_news.set()

    # Called by the process.

    async def run(self, find_capabilities: Sequence[Callable[[], tuple[str, ...]]] = ()) -> None:
        """Register this host and report about it until cancelled.

        `find_capabilities` return the usable providers, the fastest first; the first one before the registration.
        They block, and are called in a thread.
        """
        quick, slow = find_capabilities[:1], find_capabilities[1:]
        facts = replace(self._record.facts, resources=await _retry(self._ports.machine.measure_resources))
        for find in quick:
            facts = replace(facts, capabilities=await _retry(find))
        self._record = replace(self._record, facts=facts)
        self._events.append(host_events.registered(self._record))
        # A run that has started meanwhile is part of the first report.
        self._change_status("idle", self._record.started_at)
        self._is_registered = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report_forever)
            tasks.start_soon(self._beat_forever)
            tasks.start_soon(self._watch_forever)
            for find in slow:
                facts = replace(self._record.facts, capabilities=await _retry(find))
                # Stored with the next event or heartbeat.
                self._record = replace(self._record, facts=facts)

    async def drain(self, request: DrainRequest) -> None:
        """Claim no more runs, as if a user had requested it."""
        with tolerate_temporary_errors("cannot store that this host is draining"):
            await self._ports.registry.request_drain(self.id, request)
        await self._apply_drain(request)

    async def hand_over(self) -> None:
        """Interrupt all runs, so that other hosts resume them."""
        await self._scheduler.hand_over()

    async def leave(self) -> None:
        """Record that this host stops, after it has stopped its runs. Never raises.

        The event `worker.offline` is stored by the hosts that take over its runs, or else here.
        """
        if not self._is_registered:
            return
        with anyio.CancelScope(shield=True), tolerate_temporary_errors("cannot record that this host stops"):
            await self._report()
            registry, at = self._ports.registry, now()
            await registry.record_loss(self.id, at=at, reason=SHUTDOWN)
            record = await registry.find(self.id)
            if record is None or record.loss is None:
                return
            self.orphans = record.loss.orphans
            if self.orphans and await self._has_successor():
                return
            takers: dict[str, str | None] = dict.fromkeys(self.orphans)
            await registry.mark_offline(self.id, at, host_events.offline_events(record, at, takers))
            self._ports.bus.notify_fleet()

    async def _has_successor(self) -> bool:
        hosts = self._ports.storage.hosts
        others = [record.id for record in await self._ports.registry.all() if record.id != self.id]
        return any([await hosts.is_accepting(other) for other in others])

    # Status and events.

    async def _report_forever(self) -> None:
        while True:
            with tolerate_temporary_errors("cannot store the events of this host"):
                await self._report()
            with anyio.move_on_after(HOST_STATUS_SECONDS):
                await self._has_news.wait()
            self._has_news = anyio.Event()
            # Wait a little, so that events of many short runs share a transaction.
            await anyio.sleep(HOST_EVENT_BATCH_SECONDS)

    async def _report(self) -> None:
        """Turn what has happened into events, and store them with the record."""
        async with self._report_lock:
            # Removed after the queries: if one of them fails, the next report has this news.
            news = self._news[:]
            self._add_events(news, await self._find_next_runs(news), await self._estimate(news))
            del self._news[: len(news)]
            if not self._news:
                # Otherwise a run has ended or started meanwhile, and the next report changes the status after it.
                self._change_status(self._working_status(), now())
        if self._events:
            await self._store_record()

    async def _find_next_runs(self, news: Sequence[_Started | _Left]) -> dict[str, str | None]:
        """Return the run that followed each run that has ended, or will follow it."""
        if not any(isinstance(item, _Left) for item in news):
            return {}
        following = await self._ports.storage.queue.next_unclaimed(self._offer())
        found: dict[str, str | None] = {}
        for item in reversed(news):
            if isinstance(item, _Left):
                found[item.run_id] = following
            else:
                following = item.run_id
        return found

    async def _estimate(self, news: Sequence[_Started | _Left]) -> dict[str, float | None]:
        names = {item.first.name for item in news if isinstance(item, _Started)}
        return {name: await self._estimates.seconds(name) for name in names}

    def _add_events(
        self, news: Sequence[_Started | _Left], next_runs: dict[str, str | None], estimates: dict[str, float | None]
    ) -> None:
        for item in news:
            match item:
                case _Started(run_id, at, first):
                    self._assigned[run_id] = HostRun(run_id=run_id, started_at=at, worker=first.name, progress=None)
                    self._change_status("busy", at, run=run_id)
                    event = host_events.task_assigned(
                        self.id, at, run_id, first, estimated_seconds=estimates[first.name]
                    )
                case _Left(run_id, at, outcome, provider):
                    self._assigned.pop(run_id, None)
                    if outcome is None:
                        continue
                    next_run = next_runs[run_id]
                    event = host_events.task_completed(self.id, at, run_id, outcome, provider, next_run=next_run)
            self._events.append(event)
        # Stored with the events: if this host is lost, others send what is missing of these runs.
        self._record = replace(self._record, runs=tuple(self._assigned.values()))

    def _working_status(self) -> HostStatus:
        return "busy" if self._scheduler.is_executing else "idle"

    def _change_status(self, status: HostStatus, at: str, *, run: str | None = None, reason: str | None = None) -> None:
        status = "draining" if self._drain is not None else status
        if status != self._record.status:
            previous = self._record.status
            self._events.append(host_events.status_changed(self.id, at, previous, status, reason=reason, run=run))
            self._record = replace(self._record, status=status)

    async def _store_record(self) -> None:
        async with self._store_lock:
            if (dropped := len(self._events) - HOST_EVENTS_PENDING) > 0:
                _log.warning("%d events of this host could not be stored and are dropped", dropped)
                del self._events[:dropped]
            events = self._events[:]
            await self._ports.registry.save(self._record, events)
            # Events that were added meanwhile stay.
            del self._events[: len(events)]
        if events:
            self._ports.bus.notify_fleet()

    # Heartbeats.

    async def _beat_forever(self) -> None:
        await anyio.sleep(min(HOST_FIRST_HEARTBEAT_SECONDS, self._record.heartbeat_seconds))
        while True:
            with tolerate_temporary_errors("cannot store the heartbeat of this host"):
                await self._beat()
            await anyio.sleep(self._record.heartbeat_seconds)

    async def _beat(self) -> None:
        metrics = await _retry(self._ports.machine.measure)
        await self._report()
        for item in await self._ports.storage.store.get_runs(list(self._assigned)):
            if (run := self._assigned.get(item.row.id)) is not None:
                self._assigned[item.row.id] = replace(run, progress=item.row.progress.fraction)
        self._record = replace(
            self._record,
            heartbeat_at=now(),
            metrics=metrics,
            cpu_history=(*self._record.cpu_history, metrics.cpu_percent)[-HOST_CPU_HISTORY:],
            runs=tuple(self._assigned.values()),
        )
        await self._store_record()
        if (event := host_events.heartbeat(self._record)) is not None:
            self._ports.bus.publish_heartbeat(event)

    # What others request of this host, and their heartbeats.

    async def _watch_forever(self) -> None:
        while True:
            with tolerate_temporary_errors("cannot read the records of hosts"):
                await self._watch(await self._ports.registry.all())
            await anyio.sleep(HOST_CHECK_SECONDS)

    async def _watch(self, records: Sequence[HostRecord]) -> None:
        own = next((record for record in records if record.id == self.id), None)
        if own is None:
            # The database was lost and created again.
            await self._store_record()
        elif own.drain != self._drain:
            await self._apply_drain(own.drain)
        await self._hand_over_if_due()
        others = [record for record in records if record.id != self.id]
        self.other_offers = await live_offers(others, self._ports.storage.hosts)
        seen = {record.id: record.heartbeat_at for record in records if record.id != self.id}
        for record in records:
            # The heartbeats of other processes reach the subscribers of this one through the registry.
            is_new = record.id in self._seen and self._seen[record.id] != record.heartbeat_at
            if record.id != self.id and is_new and (event := host_events.heartbeat(record)) is not None:
                self._ports.bus.publish_heartbeat(event)
        self._seen = seen

    async def _apply_drain(self, request: DrainRequest | None) -> None:
        previous, self._drain, self._is_handed_over = self._drain, request, False
        hosts = self._ports.storage.hosts
        if request is not None and previous is None:
            # In this order: no run may be resumed by this host once others may resume it.
            self._scheduler.drain()
            await hosts.set_draining(self.id, draining=True)
        elif request is None:
            await hosts.set_draining(self.id, draining=False)
            await self._scheduler.undrain()
        reason = request.reason if request is not None else "undrained"
        self._change_status(self._working_status(), now(), reason=reason)
        await self._store_record()

    async def _hand_over_if_due(self) -> None:
        if self._drain is None or self._drain.deadline is None or self._is_handed_over:
            return
        if now() >= self._drain.deadline:
            self._is_handed_over = True
            await self._scheduler.hand_over()
