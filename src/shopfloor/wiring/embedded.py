"""The API and a client of it: of the server that is there, or else of one in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from shopfloor.errors import UnsupportedOption
from shopfloor.record import Masking, Storage, refuse_shared
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.settings import Workers
from shopfloor.wiring.storage import local_office

if TYPE_CHECKING:
    from shopfloor.client import Api, Client

# What only a server or a list needs is imported where it is needed: a bare run shall not wait for it.

_HERE = "this-process"
"""The name of a server that is no process of its own."""


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


@asynccontextmanager
async def open_client(
    storage: Storage, *, workers: Workers | None = None, can_run: bool = False, mask: Masking | None = None
) -> AsyncGenerator[Client]:
    """A client of the server that is there, or else of one in this process, for as long as it is asked.

    With `can_run` it is always one in this process, beside any server of the storage, and executes what is asked of it
    and nothing else; only a server that the environment names (`SHOPFLOOR_URL`) executes instead, and cannot be told
    what to mask. Without `can_run`, one in this process keeps orders for who comes, and cancels what has no host.
    """
    import anyio

    from shopfloor.client import Client, find_server, named_server
    from shopfloor.engine import ClaimPolicy, reconcile
    from shopfloor.server import Tokens, create_app, serve

    address = named_server() if can_run else find_server(storage)
    if address is not None and mask is not None:
        raise UnsupportedOption(
            f"the server at {address.url} would execute this, and cannot be told what to mask",
            hint="unset SHOPFLOOR_URL to execute it here",
        )
    if address is not None:
        async with Client(address.url, address.token) as client:
            yield client
        return
    refuse_shared(storage.root)
    token = Tokens(storage.tokens).admin_token()
    policy = ClaimPolicy.OWN if can_run else ClaimPolicy.CANCELLED
    async with (
        local_office(storage) as office,
        local_engine(office, workers or Workers(), policy=policy, alone=can_run, mask=mask) as engine,
    ):
        await office.ingest.catch_up()
        if await reconcile(storage, office.store):
            await office.ingest.catch_up()
        async with anyio.create_task_group() as tasks:
            urls, listening = anyio.create_memory_object_stream[str](1)
            tasks.start_soon(engine.scheduler.run)
            tasks.start_soon(office.ingest.run)
            tasks.start_soon(serve, create_app(office.services(engine.service)), "127.0.0.1", 0, urls.send_nowait)
            with urls, listening:
                async with Client(await listening.receive(), token) as client:
                    yield client
            tasks.cancel_scope.cancel()
        await office.ingest.catch_up()
