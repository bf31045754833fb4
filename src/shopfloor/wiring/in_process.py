"""Clients of the server that is there, or of an app in this process: without a port, and without HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from shopfloor.errors import UnsupportedOption
from shopfloor.log import Masking
from shopfloor.record import Storage, require_private_folder
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.settings import WorkerSettings
from shopfloor.wiring.storage import StorageBackend, local_backend

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from shopfloor.client import Api, AppTransport, Client

_HERE: Final = "this process"
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

    from shopfloor.server import create_app

    async with local_backend(storage) as backend:
        await _look_at_files(backend)
        token = await backend.access.admin_token()
        async with _called(create_app(backend.services(), has_pages=False), token) as transport:
            yield Api(_HERE, transport=transport)


@asynccontextmanager
async def _called(app: Starlette, token: str) -> AsyncGenerator[AppTransport]:
    """The app, called in this process; requests that are open at the end are cancelled."""
    from shopfloor.client import AppTransport

    failure: Exception | None = None
    async with app.router.lifespan_context(app), anyio.create_task_group() as tasks:
        try:
            yield AppTransport(app, token, tasks)
        except Exception as error:  # noqa: BLE001 - raised below, without the group around it
            failure = error
        app.state.shutdown_event.set()
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def open_client(
    storage: Storage, *, workers: WorkerSettings | None = None, can_run: bool = False, mask: Masking | None = None
) -> AsyncGenerator[Client]:
    """A client of the server that is there, or else of one in this process, for as long as it is asked.

    With `can_run` it is always one in this process, beside any server of the storage, and executes what is asked of it
    and nothing else; only a server that the environment names (`SHOPFLOOR_URL`) executes instead, and cannot be told
    what to mask. Without `can_run`, one in this process keeps orders for who comes, and cancels what has no host.
    """
    from shopfloor.client import Client, find_server, named_server
    from shopfloor.engine import ClaimPolicy
    from shopfloor.server import create_app

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
    require_private_folder(storage.root)
    policy = ClaimPolicy.OWN if can_run else ClaimPolicy.CANCELLED
    async with (
        local_backend(storage, mask=mask) as backend,
        local_engine(backend, workers or WorkerSettings(), policy=policy, dedicated=can_run) as engine,
    ):
        token = await backend.access.admin_token()
        await _look_at_files(backend)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.scheduler.run)
            tasks.start_soon(backend.ingest.run)
            async with _called(create_app(backend.services(engine.service), has_pages=False), token) as transport:
                yield Client(_HERE, transport=transport)
            tasks.cancel_scope.cancel()
        await backend.ingest.catch_up()


async def _look_at_files(backend: StorageBackend) -> None:
    """Bring the rows up to what the logs say."""
    from shopfloor.engine import reconcile

    await backend.ingest.catch_up()
    if await reconcile(backend):
        await backend.ingest.catch_up()
