"""A storage on this machine: its logs, its store and queue, and the services of the API."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from shopfloor.adapters.local import (
    LocalBus,
    LocalHost,
    LocalHosts,
    LocalLogFeed,
    LocalLogReader,
    LocalLogs,
    LocalProcesses,
)
from shopfloor.limits import CLIENT_WAIT_SECONDS, EXECUTE_GRACE_SECONDS
from shopfloor.log import Delta, Masking
from shopfloor.ports import Bus, LogReader, Logs, Processes, Projects, Queue, Store
from shopfloor.record import Durability, Storage
from shopfloor.version import __version__
from shopfloor.wiring.access import access_control, open_audit
from shopfloor.wiring.providers import find_providers
from shopfloor.wiring.settings import low_water_bytes, seconds_setting

if TYPE_CHECKING:
    from shopfloor.engine import Ingest, RunService, StoragePorts
    from shopfloor.server import Services

# What only a server or a list needs is imported where it is needed: a bare run shall not wait for it.


class Shop(msgspec.Struct, frozen=True):
    """A host with what it works with."""

    host: str
    logs: Logs
    processes: Processes


@contextmanager
def local_shop(
    storage: Storage,
    *,
    durability: Durability = Durability.GROUP,
    mask: Masking | None = None,
    bus: Bus | None = None,
    alone: bool = True,
) -> Generator[Shop]:
    """Everything on this machine, in this process. `alone`: the process is there for this host's own runs only."""
    with LocalHost(storage, alone=alone) as host:
        logs = LocalLogs(storage, durability=durability, mask=mask, low_water=low_water_bytes(), bus=bus)
        yield Shop(host.id, logs, LocalProcesses(host))


class Office(msgspec.Struct, frozen=True):
    """The views of a storage, and what keeps them."""

    storage: Storage
    store: Store
    queue: Queue
    ingest: Ingest
    bus: Bus

    @property
    def reader(self) -> LogReader:
        """The logs, as they are written in this process or in others."""
        return LocalLogReader(self.storage, bus=self.bus)

    @property
    def ports(self) -> StoragePorts:
        """The ports to the storage. The logs are those of no host, and nothing is masked in them."""
        from shopfloor.engine import StoragePorts

        return StoragePorts(
            store=self.store,
            queue=self.queue,
            hosts=LocalHosts(self.storage),
            logs=LocalLogs(self.storage, bus=self.bus),
            reader=self.reader,
            audit=open_audit(self.storage),
        )

    def services(self, service: RunService | None = None, *, allowed_hosts: tuple[str, ...] = ()) -> Services:
        from shopfloor.adapters.memory import MemoryWatchers
        from shopfloor.engine import delete_run
        from shopfloor.server import PAGE_FOLDER, Services

        async def delete(run_id: str, *, force: bool) -> list[str]:
            return await delete_run(self.ports, run_id, force=force)

        return Services(
            store=self.store,
            logs=self.reader,
            changes=self.ingest,
            access=access_control(self.storage),
            watchers=MemoryWatchers(),
            version=__version__,
            audit=open_audit(self.storage),
            delete_run=delete,
            works=service,
            providers=find_providers,
            page=PAGE_FOLDER,
            allowed_hosts=allowed_hosts,
            execute_grace_seconds=seconds_setting(
                "SHOPFLOOR_EXECUTE_GRACE", os.environ.get("SHOPFLOOR_EXECUTE_GRACE"), EXECUTE_GRACE_SECONDS
            ),
            client_wait_seconds=seconds_setting(
                "SHOPFLOOR_CLIENT_WAIT", os.environ.get("SHOPFLOOR_CLIENT_WAIT"), CLIENT_WAIT_SECONDS
            ),
        )


@asynccontextmanager
async def local_office(storage: Storage, *, is_server: bool = False) -> AsyncGenerator[Office]:
    """The views of a storage. The one server of it is told by other processes what they write."""
    from shopfloor.adapters.sqlite import RecordedInLogs, SqliteQueue, SqliteStore
    from shopfloor.engine import Ingest

    store = await SqliteStore.open(storage.database)
    try:
        queue = SqliteQueue(store, RecordedInLogs(storage))
        await queue.recover()
        bus = LocalBus(storage)
        with bus.receiving(storage) if is_server else nullcontext():
            yield Office(storage, store, queue, Ingest(LocalLogFeed(storage), store, bus), bus)
    finally:
        await store.close()


def memory_office(storage: Storage) -> Office:
    """The same with rows and queue in this process's memory; the logs are files."""
    from shopfloor.adapters.memory import MemoryQueue, MemoryStore
    from shopfloor.engine import Ingest

    store = MemoryStore()
    bus = LocalBus()
    return Office(storage, store, MemoryQueue(store), Ingest(LocalLogFeed(storage), store, bus), bus)


def open_projects(storage: Storage) -> Projects:
    from shopfloor.adapters.local import LocalProjects

    return LocalProjects(storage)


@contextmanager
def streamed(office: Office, run_id: str) -> Generator[Callable[[], list[Delta]]]:
    """Every piece of a message that a run in this process streams from now on; each call gives the new ones."""
    with office.bus.subscribe(run_id, deltas=True) as live:
        # Twice: after a notification the first is empty.
        yield lambda: [item for item in (*live.drain(), *live.drain()) if isinstance(item, Delta)]
