"""A storage on this machine: an adapter for each of its ports, and the services of the API."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from shopfloor.adapters.local import (
    LocalAudit,
    LocalBlobs,
    LocalBus,
    LocalHost,
    LocalHosts,
    LocalLogFeed,
    LocalLogReader,
    LocalLogs,
    LocalProcesses,
    LocalTokens,
)
from shopfloor.engine import StoragePorts
from shopfloor.limits import CLIENT_WAIT_SECONDS, EXECUTE_GRACE_SECONDS, PROVIDER_CHECK_SECONDS
from shopfloor.log import Delta, Masking
from shopfloor.ports import (
    Bus,
    FleetEvents,
    Hooks,
    HostRegistry,
    Logs,
    Offers,
    Processes,
    Projects,
    ProviderHealth,
    Queue,
    SendNotification,
    Store,
    Tokens,
    Watchers,
)
from shopfloor.record import Durability, Storage
from shopfloor.version import __version__
from shopfloor.wiring.providers import find_providers, stop_probes
from shopfloor.wiring.settings import low_water_bytes, seconds_setting

if TYPE_CHECKING:
    from shopfloor.engine import Ingest, RunEngine
    from shopfloor.fleet import ProviderMonitor
    from shopfloor.server import AccessControl, Services

# Modules that only a server or a list needs are imported where they are used, so that a single run starts fast.


class CommandPorts(msgspec.Struct, frozen=True):
    """The ports for recording a command without an engine."""

    host: str
    logs: Logs
    processes: Processes


@contextmanager
def local_command_ports(
    storage: Storage, *, durability: Durability = Durability.GROUP, mask: Masking | None = None
) -> Generator[CommandPorts]:
    """Yield the ports for recording a command in this process, which executes only runs of its own host."""
    with LocalHost(storage, dedicated=True) as host:
        logs = LocalLogs(storage, durability=durability, mask=mask, low_water=low_water_bytes())
        yield CommandPorts(host.id, logs, LocalProcesses(host))


class StorageBackend(StoragePorts, frozen=True, kw_only=True):
    """An adapter for each port of a storage, and the ingest that keeps its rows up to date."""

    storage: Storage
    """The folder on this machine with the workers, the list of projects and the locks of hosts."""
    bus: Bus
    tokens: Tokens
    watchers: Watchers
    fleet_events: FleetEvents
    host_registry: HostRegistry
    hooks: Hooks
    ingest: Ingest

    @property
    def access(self) -> AccessControl:
        """The access control over the storage's tokens."""
        from shopfloor.server import AccessControl

        return AccessControl(self.tokens)

    def provider_monitor(self, host: str | None = None) -> ProviderMonitor:
        """Return the checks of this machine's providers. `host` is the host that this process is, if it is one."""
        from shopfloor.fleet import ProviderMonitor

        interval_seconds = seconds_setting(
            "SHOPFLOOR_PROVIDER_CHECK", os.environ.get("SHOPFLOOR_PROVIDER_CHECK"), PROVIDER_CHECK_SECONDS
        )
        return ProviderMonitor(
            self.provider_health,
            self.bus,
            self.hosts,
            find_providers,
            host=host,
            interval_seconds=interval_seconds,
            stop_probes=stop_probes,
        )

    def services(
        self,
        engine: RunEngine | None = None,
        *,
        monitor: ProviderMonitor | None = None,
        offers: Offers = tuple,
        send_notification: SendNotification | None = None,
        allowed_hosts: tuple[str, ...] = (),
    ) -> Services:
        """Return what the HTTP API needs. Without `engine`, the API is read-only, and `offers` are those of hosts.

        `monitor` are the running checks of providers, if this process checks them. `send_notification` tests hooks.
        """
        from shopfloor.adapters.local import NotificationSender
        from shopfloor.engine import delete_run
        from shopfloor.fleet import HostDirectory
        from shopfloor.server import PAGE_FOLDER, FleetFeed, Services

        async def delete(run_id: str, *, force: bool) -> list[str]:
            return await delete_run(self, run_id, force=force, plugins=engine.plugins if engine else None)

        return Services(
            store=self.store,
            logs=self.reader,
            changes=self.ingest,
            access=self.access,
            watchers=self.watchers,
            version=__version__,
            audit=self.audit,
            blobs=self.blobs,
            delete_run=delete,
            run_service=engine.service if engine else None,
            queue=self.queue,
            offers=engine.offers if engine else offers,
            providers=monitor or self.provider_monitor(engine.host_id if engine else None),
            plugins=engine.plugins.all if engine else None,
            fleet=FleetFeed(self.fleet_events, self.bus),
            hooks=self.hooks,
            send_notification=send_notification or NotificationSender(),
            hosts=HostDirectory(self.host_registry, self.hosts, self.store),
            page_folder=PAGE_FOLDER,
            allowed_hosts=allowed_hosts,
            execute_grace_seconds=seconds_setting(
                "SHOPFLOOR_EXECUTE_GRACE", os.environ.get("SHOPFLOOR_EXECUTE_GRACE"), EXECUTE_GRACE_SECONDS
            ),
            client_wait_seconds=seconds_setting(
                "SHOPFLOOR_CLIENT_WAIT", os.environ.get("SHOPFLOOR_CLIENT_WAIT"), CLIENT_WAIT_SECONDS
            ),
        )


def find_later_runs(storage: Storage, run_id: str) -> list[tuple[str, str]]:
    """Return the runs based on a run, newest first, each with its kind; none if the database cannot be read.

    For commands that show a log without starting an engine.
    """
    from shopfloor.adapters.sqlite import find_later_runs as find_in_database

    return [(later.run_id, later.kind) for later in find_in_database(storage.database, run_id)]


@asynccontextmanager
async def local_backend(
    storage: Storage, *, is_server: bool = False, mask: Masking | None = None
) -> AsyncGenerator[StorageBackend]:
    """Yield a storage in files and SQLite. With `is_server`, other processes notify this one of what they write."""
    from shopfloor.adapters.sqlite import (
        SqliteFleetEvents,
        SqliteHooks,
        SqliteHostRegistry,
        SqliteProviderHealth,
        SqliteQueue,
        SqliteStore,
        StorageLogLookup,
    )

    store = await SqliteStore.open(storage.database)
    try:
        queue = SqliteQueue(store, StorageLogLookup(storage))
        await queue.recover()
        bus = LocalBus(storage)
        with bus.listen(storage) if is_server else nullcontext():
            fleet = (SqliteFleetEvents(store), SqliteProviderHealth(store), SqliteHostRegistry(store))
            yield _with_files(storage, store, queue, fleet=fleet, hooks=SqliteHooks(store), bus=bus, mask=mask)
    finally:
        await store.close()


def memory_backend(storage: Storage) -> StorageBackend:
    """Return a storage with rows and queue in memory, and logs in files."""
    from shopfloor.adapters.memory import (
        MemoryFleetEvents,
        MemoryHostRegistry,
        MemoryProviderHealth,
        MemoryQueue,
        MemoryStore,
    )

    store = MemoryStore()
    queue = MemoryQueue(store)
    fleet = (MemoryFleetEvents(store), MemoryProviderHealth(store), MemoryHostRegistry(store, queue))
    return _with_files(storage, store, queue, fleet=fleet, hooks=store.hooks, bus=LocalBus())


def _with_files(
    storage: Storage,
    store: Store,
    queue: Queue,
    *,
    fleet: tuple[FleetEvents, ProviderHealth, HostRegistry],
    hooks: Hooks,
    bus: Bus,
    mask: Masking | None = None,
) -> StorageBackend:
    """Return a storage whose logs, hosts, tokens and audit log are files on this machine."""
    from shopfloor.adapters.memory import MemoryWatchers
    from shopfloor.engine import Ingest

    fleet_events, provider_health, host_registry = fleet
    return StorageBackend(
        storage=storage,
        store=store,
        queue=queue,
        hosts=LocalHosts(storage),
        logs=LocalLogs(storage, mask=mask, low_water=low_water_bytes(), bus=bus),
        reader=LocalLogReader(storage, bus=bus),
        bus=bus,
        audit=LocalAudit(storage.audit),
        blobs=LocalBlobs(storage.blobs),
        tokens=LocalTokens(storage.tokens),
        watchers=MemoryWatchers(),
        fleet_events=fleet_events,
        provider_health=provider_health,
        host_registry=host_registry,
        hooks=hooks,
        ingest=Ingest(LocalLogFeed(storage), store, bus),
    )


def open_projects(storage: Storage) -> Projects:
    """Return the list of project folders of a storage."""
    from shopfloor.adapters.local import LocalProjects

    return LocalProjects(storage)


@contextmanager
def subscribe_deltas(backend: StorageBackend, run_id: str) -> Generator[Callable[[], list[Delta]]]:
    """Subscribe to the deltas of a run in this process. Each call of the yielded function returns the new ones."""
    with backend.bus.subscribe(run_id, deltas=True) as subscription:
        # Drain twice: after a notification the first drain is empty.
        yield lambda: [item for item in (*subscription.drain(), *subscription.drain()) if isinstance(item, Delta)]
