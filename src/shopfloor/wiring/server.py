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

from shopfloor.errors import ResourceLimit, ServerRunning, ShopfloorError, storage_error
from shopfloor.record import Storage, lock, open_for_append, refuse_shared, write_private
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.settings import Workers
from shopfloor.wiring.storage import local_office, open_projects

if TYPE_CHECKING:
    from shopfloor.client import Address
    from shopfloor.engine import Catalogue

_log = logging.getLogger("shopfloor.wiring")


@contextmanager
def the_one_server(storage: Storage) -> Generator[None]:
    """Holds the storage's place for a server; the lock goes with the process, whatever ends it."""
    refuse_shared(storage.root)
    try:
        descriptor = open_for_append(storage.server_lock)
    except OSError as error:
        raise storage_error(error, f"cannot write {storage.server_lock}") from error
    try:
        if not lock(descriptor):
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
    workers: Workers | None = None,
    allowed_hosts: tuple[str, ...] = (),
    keep_seconds: float | None = None,
    on_started: Callable[[Address, Catalogue], None],
) -> None:
    """`shopfloor up`: all roles in one process, until it is told to stop.

    `on_started` gets the address and the workers when the server answers. It is called in a thread and may block.
    """
    import anyio

    from shopfloor.client import Address
    from shopfloor.engine import finish_deletions, keep, keep_until_lost, take_over
    from shopfloor.server import create_app, serve, serving_limits

    workers = workers or Workers()
    limits = serving_limits(workers.slots)
    lost: list[Exception] = []

    with the_one_server(storage):
        open_projects(storage).add(str(Path.cwd()))

        def started(url: str) -> None:
            # A server in a thread is a part of a program, which `shopfloor down` must not end.
            pid = os.getpid() if threading.current_thread() is threading.main_thread() else None
            address = Address(url, token, pid)
            write_private(storage.server_address, msgspec.json.encode(address))
            # Only now, so that the first answer does not wait for what is loaded ahead of time.
            tasks.start_soon(_warm_up, partial(on_started, address, engine.catalogue), engine.warm_up)

        async with local_office(storage, is_server=True) as office, local_engine(office, workers) as engine:
            token = await office.access.admin_token()
            await finish_deletions(engine.ports)
            await take_over(engine.ports, engine.resumption)
            await office.queue.show_queued()
            # Before anything runs: loading code may take long, and it belongs to the thread of the loop.
            engine.catalogue.load_code()
            async with anyio.create_task_group() as tasks:

                async def keeper() -> None:
                    upkeep = partial(keep, engine.ports, office.ingest, engine.resumption, keep_seconds=keep_seconds)
                    lost.append(await keep_until_lost(office.store, engine.scheduler, upkeep))
                    tasks.cancel_scope.cancel()

                tasks.start_soon(engine.scheduler.run)
                tasks.start_soon(keeper)
                app = create_app(office.services(engine.service, allowed_hosts=allowed_hosts))
                await serve(app, host, port, started, limits, on_signal=engine.scheduler.watchdog.request_stop)
                tasks.cancel_scope.cancel()
            if lost:
                raise lost[0]
            # What the last runs wrote while they were being left is listed too.
            await office.ingest.catch_up()
