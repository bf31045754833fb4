"""This process as a host of the fleet: its registration, status, heartbeats and drain, and the events of each."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from shopfloor.engine import StoragePorts, outcome_of, tolerate_temporary_errors
from shopfloor.fleet import host_events
from shopfloor.fleet.directory import SHUTDOWN, live_offers
from shopfloor.fleet.host_events import QueuePlace, TaskOutcome
from shopfloor.fleet.limits import (
    ESTIMATE_CACHE_SECONDS,
    ESTIMATE_RUNS,
    ESTIMATES_CACHED,
    HOST_CPU_HISTORY,
    HOST_EVENT_BATCH_SECONDS,
    HOST_EVENTS_PENDING,
    HOST_FIRST_HEARTBEAT_SECONDS,
    HOST_PROVIDER_SEARCH_SECONDS,
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
from shopfloor.views import FleetEvent, HostStatus, UsageTotal

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


class AttemptStart(msgspec.Struct, frozen=True):
    """An attempt of this process that has started."""

    run_id: str
    at: str
    first: RunStarted


class AttemptEnd(msgspec.Struct, frozen=True):
    """An attempt of this process that is over."""

    run_id: str
    at: str
    outcome: TaskOutcome | None
    """None if the run was suspended or handed over."""
    provider: str | None


def match_next_runs(changes: Sequence[AttemptStart | AttemptEnd], queued: Sequence[str]) -> dict[int, QueuePlace]:
    """Return the run that follows each run that has ended, by the index of its end in `changes`.

    The runs that started afterwards come first, then those of `queued`, each once.
    """
    found: dict[int, QueuePlace] = {}
    ended: deque[int] = deque()
    for index, change in enumerate(changes):
        if isinstance(change, AttemptStart):
            if ended:
                found[ended.popleft()] = QueuePlace(change.run_id, 1)
        elif change.outcome is not None:
            ended.append(index)
    places = [QueuePlace(run_id, position) for position, run_id in enumerate(queued, 1)]
    return {**found, **dict(zip(ended, places, strict=False))}


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
        self,
        host_id: str,
        ports: HostPorts,
        engine: RunEngine,
        facts: HostFacts,
        *,
        heartbeat_seconds: float,
        usable_providers: Callable[[], tuple[str, ...] | None] = lambda: None,
    ) -> None:
        """Create the host. `usable_providers` returns what the last check has found; None before the first one."""
        self._ports = ports
        self._usable_providers = usable_providers
        self._scheduler = engine.scheduler
        self._record = HostRecord(
            id=host_id, facts=facts, status="starting", started_at=now(), heartbeat_seconds=heartbeat_seconds
        )
        self._estimates = Estimates(ports.storage.store)
        self._runs: dict[str, AttemptStart] = {}
        """The attempts of this process that are not over, in the order of their start."""
        self._assigned: dict[str, HostRun] = {}
        """The runs with a stored or pending `worker.task_assigned` whose `worker.task_completed` has to follow."""
        self._changes: list[AttemptStart | AttemptEnd] = []
        """The starts and ends of attempts that no event has reported yet."""
        self._has_changes = anyio.Event()
        self._events: list[FleetEvent] = []
        """Events that are not stored yet."""
        self._report_lock = anyio.Lock()
        self._store_lock = anyio.Lock()
        self._stored: HostRecord | None = None
        """The record as it was stored last."""
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

    def attempt_started(self, run_id: str, first: RunStarted) -> None:
        self._runs[run_id] = started = AttemptStart(run_id, now(), first)
        self._add_change(started)

    def attempt_ended(self, run_id: str, outcome: RunCompleted | None, spent: UsageTotal) -> None:
        started = self._runs.pop(run_id, None)
        if started is None:
            return
        ended = None
        if outcome is not None:
            is_completed = outcome.status == "completed"
            ended = TaskOutcome(is_completed=is_completed, duration_ms=outcome.duration_ms, spent=spent)
        self._add_change(AttemptEnd(run_id, now(), ended, host_events.provider_of_run(started.first)))

    def _add_change(self, change: AttemptStart | AttemptEnd) -> None:
        self._changes.append(change)
        self._has_changes.set()

    # Called by the process.

    async def run(self, find_usable_providers: Callable[[], tuple[str, ...]] = tuple) -> None:
        """Register this host and report about it until cancelled.

        `find_usable_providers` is a quick search before the registration, until the first check has ended. It blocks,
        and is called in a thread.
        """
        facts = replace(
            self._record.facts,
            resources=await _retry(self._ports.machine.measure_resources),
            capabilities=await self._search(find_usable_providers),
        )
        self._record = replace(self._record, facts=facts)
        self._update_providers()
        self._events.append(host_events.registered(self._record))
        # A run that has started meanwhile is part of the first report.
        self._change_status("idle", self._record.started_at)
        self._is_registered = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report_forever)
            tasks.start_soon(self._send_heartbeats)
            tasks.start_soon(self._watch_forever)

    async def _search(self, find_usable_providers: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        with anyio.move_on_after(HOST_PROVIDER_SEARCH_SECONDS):
            try:
                return await anyio.to_thread.run_sync(find_usable_providers, abandon_on_cancel=True)
            except Exception as error:  # noqa: BLE001 - files of others are read: the host registers in any case
                _log.warning("cannot find the providers: %s: %s", type(error).__name__, error)
        return ()

    async def refresh_other_offers(self) -> None:
        """Read what the other hosts offer. Call it before this process decides where a run can be executed."""
        await self._update_other_offers(await self._ports.registry.all())

    async def _update_other_offers(self, records: Sequence[HostRecord]) -> None:
        others = [record for record in records if record.id != self.id]
        self.other_offers = await live_offers(others, self._ports.storage.hosts)

    async def drain(self, request: DrainRequest) -> None:
        """Claim no more runs, as if a user had requested it."""
        with tolerate_temporary_errors("cannot store that this host is draining"):
            await self._ports.registry.request_drain(self.id, request)
        await self._apply_drain(request)

    async def hand_over(self) -> None:
        """Interrupt all runs, so that other hosts resume them."""
        await self._scheduler.hand_over()

    async def record_stop(self) -> None:
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
            # The rows may be behind the logs.
            reader = self._ports.storage.reader
            self.orphans = [run for run in record.loss.orphans if await outcome_of(reader, run) is None]
            if self.orphans and await self._has_successor():
                return
            new_hosts: dict[str, str | None] = dict.fromkeys(self.orphans)
            await registry.mark_offline(self.id, at, host_events.offline_events(record, at, new_hosts))
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
                await self._has_changes.wait()
            self._has_changes = anyio.Event()
            # Wait a little, so that events of many short runs share a transaction.
            await anyio.sleep(HOST_EVENT_BATCH_SECONDS)

    async def _report(self) -> None:
        """Turn what has happened into events, and store them with the record if it has changed."""
        async with self._report_lock:
            # Removed after the queries: if one of them fails, the next report has these changes.
            changes = self._changes[:]
            self._add_events(changes, await self._find_next_runs(changes), await self._estimate(changes))
            del self._changes[: len(changes)]
            if not self._changes:
                # Otherwise a run has ended or started meanwhile, and the next report changes the status after it.
                self._change_status(self._working_status(), now())
            self._update_providers()
        if self._events or self._record != self._stored:
            await self._store_record()

    def _update_providers(self) -> None:
        """Update the record by what is installed now, and by the last check of the providers."""
        facts, providers = self._record.facts, self._offer().providers
        offered = None if providers is None else tuple(sorted(providers))
        usable = self._usable_providers()
        if usable is not None and usable != facts.capabilities:
            facts = replace(facts, capabilities=usable)
        self._record = replace(self._record, facts=facts, offered=offered)

    async def _find_next_runs(self, changes: Sequence[AttemptStart | AttemptEnd]) -> dict[int, QueuePlace]:
        ended = sum(isinstance(change, AttemptEnd) for change in changes)
        if not ended:
            return {}
        is_claiming = self._drain is None
        queued = await self._ports.storage.queue.next_unclaimed(self._offer(), limit=ended) if is_claiming else []
        return match_next_runs(changes, queued)

    async def _estimate(self, changes: Sequence[AttemptStart | AttemptEnd]) -> dict[str, float | None]:
        names = {change.first.name for change in changes if isinstance(change, AttemptStart)}
        return {name: await self._estimates.seconds(name) for name in names}

    def _add_events(
        self,
        changes: Sequence[AttemptStart | AttemptEnd],
        next_runs: dict[int, QueuePlace],
        estimates: dict[str, float | None],
    ) -> None:
        for index, change in enumerate(changes):
            match change:
                case AttemptStart(run_id, at, first):
                    self._assigned[run_id] = HostRun(run_id=run_id, started_at=at, worker=first.name, progress=None)
                    self._change_status("busy", at, run=run_id)
                    event = host_events.task_assigned(
                        self.id, at, run_id, first, estimated_seconds=estimates[first.name]
                    )
                case AttemptEnd(run_id, at, outcome, provider):
                    self._assigned.pop(run_id, None)
                    if outcome is None:
                        continue
                    next_run = next_runs.get(index)
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
            record, events = self._record, self._events[:]
            await self._ports.registry.save(record, events)
            self._stored = record
            # Events that were added meanwhile stay.
            del self._events[: len(events)]
        if events:
            self._ports.bus.notify_fleet()

    # Heartbeats.

    async def _send_heartbeats(self) -> None:
        await anyio.sleep(min(HOST_FIRST_HEARTBEAT_SECONDS, self._record.heartbeat_seconds))
        while True:
            with tolerate_temporary_errors("cannot store the heartbeat of this host"):
                await self._send_heartbeat()
            await anyio.sleep(self._record.heartbeat_seconds)

    async def _send_heartbeat(self) -> None:
        metrics = await _retry(self._ports.machine.measure)
        measured = () if metrics.cpu_percent is None else (metrics.cpu_percent,)
        await self._report()
        for item in await self._ports.storage.store.get_runs(list(self._assigned)):
            if (run := self._assigned.get(item.row.id)) is not None:
                self._assigned[item.row.id] = replace(run, progress=item.row.progress.fraction)
        self._record = replace(
            self._record,
            heartbeat_at=now(),
            metrics=metrics,
            cpu_history=(*self._record.cpu_history, *measured)[-HOST_CPU_HISTORY:],
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
        elif self._drain is not None and self._drain.reason == SHUTDOWN:
            # Final, also if the record was read before the request was stored, or the request could not be stored.
            if own.drain != self._drain:
                await self._ports.registry.request_drain(self.id, self._drain)
        elif own.drain != self._drain:
            await self._apply_drain(own.drain)
        await self._hand_over_if_due()
        await self._update_other_offers(records)
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
