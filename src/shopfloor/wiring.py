"""The composition root: the only place that names adapters."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import msgspec

from shopfloor import __version__
from shopfloor.adapters.local import LocalHost, LocalLogReader, LocalLogs, LocalProcesses
from shopfloor.errors import ServerRunning, UsageError
from shopfloor.limits import DISK_LOW_WATER_BYTES, LOG_MODE
from shopfloor.ports import Logs, Processes
from shopfloor.record import Durability, Hook, Storage, lock, make_folder, open_for_append

if TYPE_CHECKING:
    from shopfloor.adapters.sqlite import SqliteStore
    from shopfloor.client import Api
    from shopfloor.engine import Ingest
    from shopfloor.server import Services

# What only a server or a list needs is imported where it is needed: a bare run shall not wait for it.


_HERE = "this-process"
"""The name of a server that is no process of its own."""


class Shop(msgspec.Struct, frozen=True):
    """A host with what it works with."""

    host: str
    logs: Logs
    processes: Processes


@contextmanager
def local_shop(
    storage: Storage, *, durability: Durability = Durability.GROUP, mask: Hook | None = None
) -> Generator[Shop]:
    """Everything on this machine, in this process."""
    with LocalHost(storage) as host:
        logs = LocalLogs(storage, durability=durability, mask=mask, low_water=_low_water())
        yield Shop(host.id, logs, LocalProcesses(host))


def _low_water() -> int:
    said = os.environ.get("SHOPFLOOR_DISK_LOW_WATER") or str(DISK_LOW_WATER_BYTES)
    if not said.isdecimal():
        raise UsageError(
            f"SHOPFLOOR_DISK_LOW_WATER is {said!r}, not a number of bytes", hint="unset it, or say e.g. 200000000"
        )
    return int(said)


class Office(msgspec.Struct, frozen=True):
    """The views of a storage, and what keeps them."""

    storage: Storage
    store: SqliteStore
    ingest: Ingest

    def services(self, *, allowed_hosts: tuple[str, ...] = ()) -> Services:
        from shopfloor.engine import delete_run
        from shopfloor.server import Services, Tokens

        async def delete(run_id: str, *, force: bool) -> list[str]:
            return await delete_run(self.storage, self.store, run_id, force=force)

        return Services(
            store=self.store,
            logs=LocalLogReader(self.storage),
            changes=self.ingest,
            tokens=Tokens(self.storage.tokens),
            version=__version__,
            delete_run=delete,
            allowed_hosts=allowed_hosts,
        )


@asynccontextmanager
async def local_office(storage: Storage) -> AsyncGenerator[Office]:
    from shopfloor.adapters.sqlite import SqliteStore
    from shopfloor.engine import Ingest

    store = await SqliteStore.open(storage.database)
    try:
        yield Office(storage, store, Ingest(storage, store))
    finally:
        await store.close()


@asynccontextmanager
async def open_api(storage: Storage) -> AsyncGenerator[Api]:
    """The API: of the server that is there, or else of one in this process that has just looked at the files."""
    from shopfloor.client import Api, find_server

    address = find_server(storage)
    if address is not None:
        api = Api(address.url, address.token)
        try:
            yield api
        finally:
            await api.close()
        return

    import httpx

    from shopfloor.engine import reconcile
    from shopfloor.server import Tokens, create_app

    async with local_office(storage) as office:
        await office.ingest.catch_up()
        if await reconcile(storage, office.store):
            await office.ingest.catch_up()
        app = create_app(office.services(allowed_hosts=(_HERE,)))
        token = Tokens(storage.tokens).admin_token()
        api = Api(f"http://{_HERE}", token, transport=httpx.ASGITransport(app))
        try:
            yield api
        finally:
            await api.close()


@contextmanager
def _the_one_server(storage: Storage) -> Generator[None]:
    """Holds the storage's place for a server; the lock goes with the process, whatever ends it."""
    make_folder(storage.root)
    descriptor = open_for_append(storage.server_lock)
    try:
        if not lock(descriptor):
            raise ServerRunning(
                f"a server is already running on {storage.root}", hint="use that one, or another --storage"
            )
        yield
    finally:
        storage.server_address.unlink(missing_ok=True)
        os.close(descriptor)


async def serve_storage(
    storage: Storage,
    *,
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...] = (),
    keep_seconds: float | None = None,
    on_started: Callable[[str, str], None],
) -> None:
    """`shopfloor up`: all roles in one process, until it is told to stop. `on_started` gets the URL and the token."""
    import anyio

    from shopfloor.client import Address
    from shopfloor.engine import keep
    from shopfloor.server import Tokens, create_app, serve

    with _the_one_server(storage):
        token = Tokens(storage.tokens).admin_token()

        def started(url: str) -> None:
            storage.server_address.write_bytes(msgspec.json.encode(Address(url, token)))
            storage.server_address.chmod(LOG_MODE)
            on_started(url, token)

        async with local_office(storage) as office, anyio.create_task_group() as tasks:

            async def keeper() -> None:
                await keep(storage, office.store, office.ingest, keep_seconds=keep_seconds)

            tasks.start_soon(keeper)
            app = create_app(office.services(allowed_hosts=allowed_hosts))
            await serve(app, host, port, started)
            tasks.cancel_scope.cancel()
