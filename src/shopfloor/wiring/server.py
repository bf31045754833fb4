"""The server of a storage (`shopfloor up`), with its access control and audit log."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shopfloor.adapters.local import LocalAudit, LocalTokens
from shopfloor.error_factories import storage_error
from shopfloor.errors import ResourceLimit, ServerRunning, ShopfloorError
from shopfloor.record import Storage, open_for_append, require_private_folder, try_lock, write_private
from shopfloor.wiring.hooks import deliver_notifications, remove_desktop_hook, settings_hooks, update_own_hooks
from shopfloor.wiring.hosts import find_usable_providers, maintain_storage, open_host, prepare_runs
from shopfloor.wiring.mcp import mount_mcp
from shopfloor.wiring.server_links import accepted_hosts, is_shared, public_url
from shopfloor.wiring.settings import WorkerSettings, heartbeat_seconds
from shopfloor.wiring.storage import local_backend, open_projects

if TYPE_CHECKING:
    from shopfloor.client import Address
    from shopfloor.engine import WorkerCatalog
    from shopfloor.server import AccessControl


def access_control(storage: Storage) -> AccessControl:
    """Return the access control of a storage on this machine."""
    from shopfloor.server import AccessControl

    return AccessControl(LocalTokens(storage.tokens))


def open_audit(storage: Storage) -> LocalAudit:
    """Return the audit log of a storage on this machine."""
    return LocalAudit(storage.audit)


_log = logging.getLogger("shopfloor.wiring")


@contextmanager
def hold_server_lock(storage: Storage) -> Generator[None]:
    """Hold the lock for the one server of a storage. The lock ends with the process, however that ends.

    Raises ServerRunning if another process has the lock.
    """
    require_private_folder(storage.root)
    try:
        descriptor = open_for_append(storage.server_lock)
    except OSError as error:
        raise storage_error(error, f"cannot write {storage.server_lock}") from error
    try:
        if not try_lock(descriptor):
            raise ServerRunning(f"a server is already running on {storage.root}", hint=_running_server_hint(storage))
        # Delete the address that a killed server may have left.
        storage.server_address.unlink(missing_ok=True)
        try:
            yield
        finally:
            storage.server_address.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _running_server_hint(storage: Storage) -> str:
    from shopfloor.client import find_storage_server

    address = find_storage_server(storage)
    location = f"it is at {address.url}; `shopfloor login` prints a link to log in" if address else "use that server"
    return f"{location}, or choose another storage with --storage"


async def _warm_up(*parts: Callable[[], None]) -> None:
    """Run slow parts of the start in a thread, one after the other.

    A part that fails is logged: the run that needs it fails, not the server. But the server ends after a
    ShopfloorError, and when memory runs out, since modules may then be only half loaded.
    """
    import anyio.to_thread

    try:
        for part in parts:
            await anyio.to_thread.run_sync(part, abandon_on_cancel=True)
    except MemoryError as error:
        raise ResourceLimit(
            "the server ran out of memory while it started", hint="give it more memory, then start it again"
        ) from error
    except ShopfloorError:
        raise
    except Exception as error:  # noqa: BLE001 - for example no descriptors left
        _log.warning("cannot preload modules; the first run loads them: %s: %s", type(error).__name__, error)


async def serve_storage(
    storage: Storage,
    *,
    host: str,
    port: int,
    workers: WorkerSettings | None = None,
    allowed_hosts: tuple[str, ...] = (),
    retention_seconds: float | None = None,
    notify_seconds: float | None = None,
    on_started: Callable[[Address, WorkerCatalog], None],
) -> None:
    """Run API, engine and maintenance of a storage in this process, until a signal or cancellation (`shopfloor up`).

    `on_started` is called with the address and the workers once the server accepts requests. It is called in a thread
    and may block. With `notify_seconds` questions, and outcomes of runs that took so long, are shown on
    this desktop, if it can show them. Raises ServerRunning if the storage already has a server.
    """
    import anyio

    from shopfloor.adapters.local import NotificationSender
    from shopfloor.client import Address
    from shopfloor.server import create_app, load_connection_limits, serve

    workers = workers or WorkerSettings()
    limits = load_connection_limits(workers.slots)
    lost: list[Exception] = []

    with hold_server_lock(storage):
        open_projects(storage).add(str(Path.cwd()))

        def publish_address(url: str) -> None:
            # Without a pid for a server in a thread: `shopfloor down` must not end the program around it.
            pid = os.getpid() if threading.current_thread() is threading.main_thread() else None
            address = Address(url, token, pid, public_url(host, url, allowed_hosts), is_shared(host))
            write_private(storage.server_address, msgspec.json.encode(address))
            # Warm up and register only now, so that the first response does not have to wait for it.
            tasks.start_soon(own.registered.run, find_usable_providers)
            tasks.start_soon(_warm_up, partial(on_started, address, engine.catalog), engine.warm_up)
            engine.plugins.start_all()
            tasks.start_soon(own.monitor.run)

        async with (
            local_backend(storage, is_server=True) as backend,
            open_host(backend, workers, heartbeat_seconds=heartbeat_seconds()) as own,
            NotificationSender() as send,
        ):
            engine = own.engine
            token = await backend.access.admin_token()
            await update_own_hooks(backend.hooks, settings_hooks(storage, notify_seconds=notify_seconds))
            await prepare_runs(backend, own)
            async with anyio.create_task_group() as tasks:

                async def maintain() -> None:
                    lost.append(await maintain_storage(backend, own, retention_seconds=retention_seconds))
                    tasks.cancel_scope.cancel()

                tasks.start_soon(engine.scheduler.run)
                tasks.start_soon(maintain)
                tasks.start_soon(deliver_notifications, backend.hooks, send)
                accepted = accepted_hosts(host, allowed_hosts)
                services = backend.services(engine, monitor=own.monitor, send_notification=send, allowed_hosts=accepted)
                app = create_app(services, mounted=[mount_mcp()])
                await serve(app, host, port, publish_address, limits, on_signal=engine.scheduler.watchdog.request_stop)
                tasks.cancel_scope.cancel()
            if lost:
                raise lost[0]
            await remove_desktop_hook(backend.hooks)
            # Also list what the last runs wrote while they were stopped.
            await backend.ingest.catch_up()
