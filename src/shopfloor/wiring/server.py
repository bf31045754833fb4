"""A server of a storage: `shopfloor up`."""

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
from shopfloor.errors import ResourceLimit, ServerRunning, ShopfloorError, storage_error
from shopfloor.record import Storage, open_for_append, require_private_folder, try_lock, write_private
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.settings import WorkerSettings
from shopfloor.wiring.storage import local_backend, open_projects

if TYPE_CHECKING:
    from shopfloor.client import Address
    from shopfloor.engine import WorkerCatalog
    from shopfloor.server import AccessControl


def access_control(storage: Storage) -> AccessControl:
    from shopfloor.server import AccessControl

    return AccessControl(LocalTokens(storage.tokens))


def open_audit(storage: Storage) -> LocalAudit:
    return LocalAudit(storage.audit)


_log = logging.getLogger("shopfloor.wiring")


@contextmanager
def hold_server_lock(storage: Storage) -> Generator[None]:
    """Holds the storage's place for a server; the lock goes with the process, whatever ends it."""
    require_private_folder(storage.root)
    try:
        descriptor = open_for_append(storage.server_lock)
    except OSError as error:
        raise storage_error(error, f"cannot write {storage.server_lock}") from error
    try:
        if not try_lock(descriptor):
            raise ServerRunning(f"a server is already running on {storage.root}", hint=_how_to_use_it(storage))
        # What a server that was killed has left is not the address of this one.
        storage.server_address.unlink(missing_ok=True)
        try:
            yield
        finally:
            storage.server_address.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _how_to_use_it(storage: Storage) -> str:
    from shopfloor.client import find_server

    address = find_server(storage, named=False)
    there = f"it is at {address.url}; `shopfloor login` prints a link to log in" if address else "use that one"
    return f"{there}, or name another --storage"


async def _warm_up(*parts: Callable[[], None]) -> None:
    """Execute slow parts in a thread, in order. What cannot be loaded fails the run that needs it, not the server.

    Without memory, modules may be left half loaded: then the server ends, as it does with an error of ours.
    """
    import anyio.to_thread

    try:
        for part in parts:
            await anyio.to_thread.run_sync(part, abandon_on_cancel=True)
    except MemoryError as error:
        raise ResourceLimit(
            "the server ran out of memory while it loaded its parts", hint="give it more, then start it again"
        ) from error
    except ShopfloorError:
        raise
    except Exception as error:  # noqa: BLE001 - for example without memory, or without descriptors
        _log.warning("cannot load ahead of time: %s: %s", type(error).__name__, error)


async def serve_storage(
    storage: Storage,
    *,
    host: str,
    port: int,
    workers: WorkerSettings | None = None,
    allowed_hosts: tuple[str, ...] = (),
    retention_seconds: float | None = None,
    on_started: Callable[[Address, WorkerCatalog], None],
) -> None:
    """`shopfloor up`: all roles in one process, until it is told to stop.

    `on_started` gets the address and the workers when the server answers. It is called in a thread and may block.
    """
    import anyio

    from shopfloor.client import Address
    from shopfloor.engine import finish_deletions, maintain_until_lost, requeue_abandoned, run_maintenance
    from shopfloor.server import create_app, load_connection_limits, serve

    workers = workers or WorkerSettings()
    limits = load_connection_limits(workers.slots)
    lost: list[Exception] = []

    with hold_server_lock(storage):
        open_projects(storage).add(str(Path.cwd()))

        def started(url: str) -> None:
            # A server in a thread is a part of a program, which `shopfloor down` must not end.
            pid = os.getpid() if threading.current_thread() is threading.main_thread() else None
            address = Address(url, token, pid)
            write_private(storage.server_address, msgspec.json.encode(address))
            # Only now, so that the first answer does not wait for what is loaded ahead of time.
            tasks.start_soon(_warm_up, partial(on_started, address, engine.catalogue), engine.warm_up)

        async with local_backend(storage, is_server=True) as backend, local_engine(backend, workers) as engine:
            token = await backend.access.admin_token()
            await finish_deletions(engine.ports)
            await requeue_abandoned(engine.ports, engine.resumption)
            await backend.queue.restore_queued_rows()
            # Before anything runs: loading code may take long, and it belongs to the thread of the loop.
            engine.catalogue.load_code()
            async with anyio.create_task_group() as tasks:

                async def keeper() -> None:
                    upkeep = partial(
                        run_maintenance,
                        engine.ports,
                        backend.ingest,
                        engine.resumption,
                        retention_seconds=retention_seconds,
                    )
                    lost.append(await maintain_until_lost(backend.store, engine.scheduler, upkeep))
                    tasks.cancel_scope.cancel()

                tasks.start_soon(engine.scheduler.run)
                tasks.start_soon(keeper)
                app = create_app(backend.services(engine.service, allowed_hosts=allowed_hosts))
                await serve(app, host, port, started, limits, on_signal=engine.scheduler.watchdog.request_stop)
                tasks.cancel_scope.cancel()
            if lost:
                raise lost[0]
            # What the last runs wrote while they were being left is listed too.
            await backend.ingest.catch_up()
