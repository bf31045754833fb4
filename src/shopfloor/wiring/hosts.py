"""Hosts on this machine: a process that executes runs and is registered, with the API (`up`) or without (`host`)."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shopfloor.adapters.local import LocalHost
from shopfloor.limits import DRAIN_SECONDS, STORAGE_CHECK_SECONDS
from shopfloor.log import format_timestamp
from shopfloor.ports import DrainRequest, HostFacts, HostResources
from shopfloor.record import Storage, require_private_folder
from shopfloor.version import __version__
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.settings import WorkerSettings
from shopfloor.wiring.storage import StorageBackend, local_backend

if TYPE_CHECKING:
    from shopfloor.engine import RunEngine
    from shopfloor.fleet import ProviderMonitor, RegisteredHost, Takeover

_UNKNOWN = HostResources(cpu_cores=0, memory_mb=0, disk_gb=0)
"""Replaced before the host registers: measuring loads a library, and must not delay the start."""
_CLOUD = ("kubernetes", "ec2")


class OpenHost(msgspec.Struct, frozen=True):
    """This process as a host: its engine, its registration, and its check of the other hosts."""

    engine: RunEngine
    registered: RegisteredHost
    takeover: Takeover
    monitor: ProviderMonitor
    """The checks of this machine's providers. The caller runs them."""


@asynccontextmanager
async def open_host(
    backend: StorageBackend, workers: WorkerSettings, *, heartbeat_seconds: float
) -> AsyncGenerator[OpenHost]:
    """Yield the engine of this process and its host, which is not registered yet.

    At the end the host is recorded as offline, if it was registered.
    """
    from shopfloor.adapters.local import LocalMachine
    from shopfloor.fleet import HostPorts, RegisteredHost, Takeover

    with LocalHost(backend.storage, dedicated=False) as own:
        machine = LocalMachine(backend.storage.root)
        location = machine.location
        facts = HostFacts(
            hostname=machine.hostname,
            type="cloud" if location.type in _CLOUD else "local",
            version=__version__,
            location=location,
            resources=_UNKNOWN,
            slots=workers.slots,
            labels=workers.labels,
        )
        ports = HostPorts(storage=backend, registry=backend.host_registry, bus=backend.bus, machine=machine)
        monitor = backend.provider_monitor(own.id)
        registered: RegisteredHost | None = None
        async with local_engine(
            backend,
            workers,
            host=own,
            shares_plugins=True,
            find_disabled=lambda: monitor.disabled,
            other_offers=lambda: registered.other_offers if registered is not None else (),
        ) as engine:
            registered = RegisteredHost(
                own.id,
                ports,
                engine,
                facts,
                heartbeat_seconds=heartbeat_seconds,
                usable_providers=lambda: monitor.usable,
            )
            takeover = Takeover(own.id, backend.host_registry, backend.hosts, backend.store, backend.bus)
            try:
                yield OpenHost(engine, registered, takeover, monitor)
            finally:
                await registered.record_stop()


async def prepare_runs(backend: StorageBackend, host: OpenHost) -> None:
    """Finish what earlier hosts left, and load the workers' code. Call it before any run is executed."""
    from shopfloor.engine import finish_deletions, requeue_abandoned

    engine = host.engine
    # Before any run is taken over or dispatched: both depend on what the other hosts have.
    await host.registered.refresh_other_offers()
    await finish_deletions(engine.ports)
    await requeue_abandoned(engine.ports, engine.resumption, excluded=await host.takeover.check())
    await backend.queue.restore_queued_rows()
    # Before any run starts: loading code may take long and must happen in the thread of the event loop.
    engine.catalog.load_code()


async def maintain_storage(
    backend: StorageBackend, host: OpenHost, *, retention_seconds: float | None = None
) -> Exception:
    """Keep the rows, take over the runs of lost hosts and apply the retention; return why the storage was lost."""
    from shopfloor.engine import maintain_until_lost, run_maintenance

    engine = host.engine
    maintenance = partial(
        run_maintenance,
        engine.ports,
        backend.ingest,
        engine.resumption,
        engine.plugins,
        retention_seconds=retention_seconds,
        check_hosts=host.takeover.check,
    )
    return await maintain_until_lost(backend.store, engine.scheduler, maintenance)


def find_usable_providers() -> tuple[str, ...]:
    """Return the providers that are installed and have credentials, without starting their programs."""
    from shopfloor.adapters.providers import API_KEYS, PROVIDER_NAMES, provider

    env, home = os.environ, Path.home()
    agents = [provider(name) for name in PROVIDER_NAMES]
    found = [agent.name for agent in agents if shutil.which(agent.program) and agent.login(env, home) is not None]
    return (*found, *(name for name, variable in API_KEYS.items() if env.get(variable)))


async def run_host(
    storage: Storage,
    *,
    workers: WorkerSettings,
    heartbeat_seconds: float,
    drain_seconds: float = DRAIN_SECONDS,
    signals: AsyncIterable[int],
    on_started: Callable[[RegisteredHost], None],
) -> None:
    """Run a host without the API, until a signal stops it (`shopfloor host`).

    SIGTERM drains: the host claims no more runs, and stops when its runs have ended or after `drain_seconds`. Any
    other signal, and a second SIGTERM, stops it at once. Runs that have not ended are resumed by other hosts.
    """
    import anyio

    require_private_folder(storage.root)
    lost: list[Exception] = []
    async with (
        local_backend(storage) as backend,
        open_host(backend, workers, heartbeat_seconds=heartbeat_seconds) as host,
    ):
        engine, registered = host.engine, host.registered
        await prepare_runs(backend, host)
        async with anyio.create_task_group() as tasks:

            async def maintain() -> None:
                lost.append(await maintain_storage(backend, host))
                tasks.cancel_scope.cancel()

            async def handle_signals() -> None:
                is_draining = False
                async for number in signals:
                    engine.scheduler.watchdog.request_stop()
                    if number != signal.SIGTERM or is_draining or not drain_seconds:
                        tasks.cancel_scope.cancel()
                    else:
                        is_draining = True
                        tasks.start_soon(drain_and_stop)

            async def drain_and_stop() -> None:
                await drain_host(registered, drain_seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(engine.scheduler.run)
            tasks.start_soon(maintain)
            tasks.start_soon(registered.run, find_usable_providers)
            tasks.start_soon(host.monitor.run)
            tasks.start_soon(handle_signals)
            on_started(registered)
        if not lost:
            # Also list what the last runs wrote while they were stopped.
            await backend.ingest.catch_up()
    if lost:
        raise lost[0]


async def drain_host(host: RegisteredHost, seconds: float) -> None:
    """Drain this host before it stops. Returns when it has no run, or after `seconds`."""
    import anyio

    from shopfloor.fleet import SHUTDOWN

    deadline = format_timestamp(int((time.time() + seconds) * 1000))
    await host.drain(DrainRequest(reason=SHUTDOWN, deadline=deadline))
    with anyio.move_on_after(seconds):
        while not host.is_idle:  # noqa: ASYNC110 - a scheduler has no event for its last run
            await anyio.sleep(STORAGE_CHECK_SECONDS / 10)
